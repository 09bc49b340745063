/** Writes scenes of the samples, or of pages, as SVG: node tests/run.mjs look FOLDER [PAGE…] */
import { writeFileSync } from "node:fs";
import { basename } from "node:path";
import { modelIn } from "./flat.ts";
import { Composer } from "../src/scene/compose.ts";
import { chooseShown } from "../src/graph/shown.ts";
import type { Model } from "../src/data/model.ts";
import { chain, experts, rnn, siblings, transformer, unet } from "./samples.ts";
import { svg } from "./svg.ts";

const folder = process.argv[2];
const usual = { layers: false, across: false, hideRearranging: true, dropAccumulators: true, rollUp: true, inlineParameters: true };
const whole = { layers: false, across: false, hideRearranging: false, dropAccumulators: false, rollUp: false, inlineParameters: true };

function look(name: string, model: Model, switches = usual, all = false): void {
  const composer = new Composer(chooseShown(model, switches));
  const { scopes } = composer.shown;
  const opened = all ? new Set(Array.from({ length: scopes.count }, (_, scope) => scope)) : composer.firstOpened(1280, 800);
  const scene = composer.scene(opened);
  writeFileSync(`${folder}/${name}.svg`, svg(scene));
  console.log(name, Math.round(scene.width), Math.round(scene.height), scene.boxes.length, scene.lines.length);
}

const pages = process.argv.slice(3);
for (const page of pages) {
  const model = await modelIn(page);
  const name = basename(page, ".html");
  look(name, model);
  look(`${name}-all`, model, usual, true);
}
if (!pages.length) {
  look("transformer", transformer(540));
  look("transformer-all", transformer(540), usual, true);
  look("transformer-whole", transformer(135), whole, true);
  look("transformer-1k-flat-layers", transformer(1000, false));
  look("unet", unet());
  look("unet-all", unet(), usual, true);
  look("rnn", rnn());
  look("rnn-all", rnn(6), usual, true);
  look("siblings", siblings(700));
  look("siblings-20k", siblings(20_000));
  look("experts", experts());
  look("experts-all", experts(40), usual, true);
  look("chain", chain(100_000));
}
