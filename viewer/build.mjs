// Builds src/page.ts and src/style.css into the package; --check compares with what is there, --tests builds the tests.
import { readFile, readdir, writeFile } from "node:fs/promises";
import { extname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { minify } from "terser";

const here = fileURLToPath(new URL(".", import.meta.url));
const home = join(here, "../exporters/gradir_exporters/_page");

/** Properties that get short names: neither the data of a page nor `window.gradir` has them, and no text in brackets names them. */
const inner = `atLower atUpper begin blocked bordered borders boxOf boxOfScope byKey byStatus classWas copies curves dash firstOpened frameOf fromAt
fromItem givesMore goTo holder idStarts isBehind isCaption isLeft isRun layerOf liked local placeOf plan polygons portOf rectangles reveal score
scopesFrom showDetails showLists sourceOf toAt toBottom toItem toTop toggleSide trunk vertices wires`;

const arguments_ = process.argv.slice(2);

if (arguments_.includes("--tests")) {
  const names = (await readdir(join(here, "tests"))).filter((name) => name.endsWith(".test.ts"));
  await build({
    absWorkingDir: here,
    entryPoints: names.map((name) => `tests/${name}`),
    outdir: ".tests",
    outExtension: { ".js": ".mjs" },
    bundle: true,
    platform: "node",
    format: "esm",
    logLevel: "warning",
  });
} else {
  const { outputFiles } = await build({
    absWorkingDir: here,
    entryPoints: { page: "src/page.ts", style: "src/style.css" },
    outdir: home,
    bundle: true,
    minify: true,
    format: "iife",
    target: "es2022",
    // Text beyond ASCII would depend on the encoding that a host gives the page.
    charset: "ascii",
    legalComments: "none",
    logLevel: "warning",
    write: false,
  });
  for (const { path, text } of outputFiles) {
    const made = extname(path) === ".js" ? await smaller(text) : text;
    if (!arguments_.includes("--check")) await writeFile(path, made);
    else if ((await readFile(path, "utf8").catch(() => "")) !== made) {
      console.error(`${path.slice(home.length + 1)} is not what viewer/ builds: run 'npm run build' there`);
      process.exitCode = 1;
    }
  }
}

/**
 * esbuild names things by how often they are used, terser alike in every function, which gzip makes more of. No function here is called
 * with a `this` of its own, and no getter does more than get.
 */
async function smaller(text) {
  const { code } = await minify(text, {
    ecma: 2020,
    toplevel: true,
    mangle: { properties: { regex: new RegExp(`^(${inner.replace(/\s+/g, "|")})$`) } },
    compress: { passes: 6, pure_getters: true, unsafe_arrows: true, unsafe: true, unsafe_methods: true, unsafe_comps: true, keep_fargs: false },
    format: { ascii_only: true },
  });
  return `${code}\n`;
}
