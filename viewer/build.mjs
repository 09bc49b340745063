// Builds src/page.ts and src/style.css into the package; --check compares with what is there, --tests builds the tests.
import { readFile, readdir } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = fileURLToPath(new URL(".", import.meta.url));
const home = join(here, "../exporters/gradir_exporters/_page");
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
    write: !arguments_.includes("--check"),
  });
  if (arguments_.includes("--check")) {
    for (const { path, text } of outputFiles ?? []) {
      if ((await readFile(path, "utf8").catch(() => "")) !== text) {
        console.error(`${path.slice(home.length + 1)} is not what viewer/ builds: run 'npm run build' there`);
        process.exitCode = 1;
      }
    }
  }
}
