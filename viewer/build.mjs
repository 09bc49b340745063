// Builds src/page.ts and src/style.css into the package; --check compares with what is there, --tests builds the tests.
import { readFile, readdir, writeFile } from "node:fs/promises";
import { basename, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { minify } from "terser";
import { shortened } from "./names.mjs";

const here = fileURLToPath(new URL(".", import.meta.url));
const home = join(here, "../exporters/gradir_exporters/_page");
const support = join(here, "../tests/support");

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
  const shared = {
    absWorkingDir: here,
    mangleProps: new RegExp(`^(${shortened(here).join("|")})$`),
    bundle: true,
    minify: true,
    format: "iife",
    target: "es2022",
    // Text beyond ASCII would depend on the encoding that a host gives the page.
    charset: "ascii",
    legalComments: "none",
    logLevel: "warning",
    write: false,
  };
  const page = await build({
    ...shared,
    mangleCache: {},
    entryPoints: { page: "src/page.ts", style: "src/style.css" },
    outdir: home,
    define: Object.fromEntries(often.map((name) => [name, shortOf(name)])),
    inject: ["short"],
    plugins: [{ name: "short", setup: shorts }],
  });
  // Tests ask the page by the same short names.
  const probe = await build({ ...shared, mangleCache: page.mangleCache, entryPoints: ["tests/probe.ts"], outdir: support });
  for (const { path, text } of [...page.outputFiles, ...probe.outputFiles]) {
    const made = basename(path) === "page.js" ? await smaller(text) : text;
    if (!arguments_.includes("--check")) await writeFile(path, made);
    else if ((await readFile(path, "utf8").catch(() => "")) !== made) {
      console.error(`${basename(path)} is not what viewer/ builds: run 'npm run build' there`);
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
 * esbuild names variables by how often they are used, terser alike in every function, which gzip makes more of. No function here is called
 * with a `this` of its own, and no getter does more than get.
 */
async function smaller(text) {
  const { code } = await minify(text, {
    ecma: 2020,
    toplevel: true,
    compress: { passes: 6, pure_getters: true, unsafe_arrows: true, unsafe: true, unsafe_methods: true, unsafe_comps: true, keep_fargs: false },
    format: { ascii_only: true },
  });
  return `${code}\n`;
}
