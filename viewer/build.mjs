// Builds src/page.ts and src/style.css into the package; --check compares with what is there, --tests builds the tests.
import { readFile, readdir, writeFile } from "node:fs/promises";
import { extname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { minify } from "terser";

const here = fileURLToPath(new URL(".", import.meta.url));
const home = join(here, "../exporters/gradir_exporters/_page");

/** Properties that get short names: neither the data of a page nor `window.gradir` has them, and no text in brackets names them. */
const inner = `arranged atLower atUpper begin blocked bordered borders boxOf boxOfScope byKey byStatus classWas colours copies curves dash differs drawn
firstOpened frameOf fromAt fromItem givesMore goTo holder inside instead isBehind isCaption isLeft isRun layerOf liked local lower piece placeOf
phases places plan polygons portOf rectangles reveal scopesFrom showDetails showLists sourceOf theme toAt toBottom toItem toTop toggleSide trunk
turned upper vertices wires`;

/** Names of the browser that stand in the script dozens of times: each gets a short one, once. */
const often = `Array.from Float64Array Int32Array Math.abs Math.ceil Math.floor Math.hypot Math.max Math.min Math.round Uint8Array document
requestAnimationFrame Map Set performance Object.entries`.split(/\s+/);
const shortOf = (name) => `short_${name.replace(".", "_")}`;

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
    define: Object.fromEntries(often.map((name) => [name, shortOf(name)])),
    inject: ["short"],
    plugins: [{ name: "short", setup: shorts }],
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

/** The module that gives the browser's names short ones. */
function shorts({ onResolve, onLoad }) {
  onResolve({ filter: /^short$/ }, () => ({ path: "short", namespace: "short" }));
  onLoad({ filter: /./, namespace: "short" }, () => ({ contents: often.map((name) => `export const ${shortOf(name)} = globalThis.${name};`).join("\n") }));
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
