// Prints how long parts of the page's work take on samples; no test.
import { build } from "esbuild";
import { fileURLToPath } from "node:url";

const here = fileURLToPath(new URL("..", import.meta.url));
const name = process.argv[2] ?? "speed";
await build({
  absWorkingDir: here,
  entryPoints: [`tests/${name}.ts`],
  outdir: ".tools",
  outExtension: { ".js": ".mjs" },
  bundle: true,
  platform: "node",
  format: "esm",
  logLevel: "warning",
});
process.argv.splice(2, 1);
await import(`../.tools/${name}.mjs`);
