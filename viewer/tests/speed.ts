/** How much processor time the steps to a scene take, in milliseconds: node tests/run.mjs speed. Other programs that run count less in it than in time. */
import { indexOf, search } from "../src/graph/search.ts";
import { chooseShown } from "../src/graph/shown.ts";
import { layOut } from "../src/layout/layered.ts";
import { Composer } from "../src/scene/compose.ts";
import type { Model } from "../src/data/model.ts";
import { chain, siblings, transformer } from "./samples.ts";

const switches = { layers: false, across: false, hideRearranging: true, dropAccumulators: true, rollUp: true, inlineParameters: true };

function timed(name: string, make: () => unknown, runs = 7): void {
  const times: number[] = [];
  for (let run = 0; run < runs; run++) {
    const start = process.cpuUsage();
    make();
    const { user, system } = process.cpuUsage(start);
    times.push((user + system) / 1000);
  }
  const first = times[0];
  times.sort((one, other) => one - other);
  const shown = [first, times[0], times[runs >> 1]].map((time) => time.toFixed(1).padStart(7)).join(" ");
  console.log(`${name.padEnd(58)} first, least, middle: ${shown}`);
}

function firstScene(model: Model, rollUp: boolean): void {
  const composer = new Composer(chooseShown(model, { ...switches, rollUp }));
  composer.scene(composer.firstOpened(1280, 800));
}

timed("cold: first scene of a transformer of 1k", () => firstScene(transformer(1000), true), 1);
for (const [words, count] of [["1k", 1000], ["20k", 20_000], ["100k", 100_000]] as const) {
  const model = transformer(count);
  for (const rollUp of [true, false]) {
    const name = `transformer ${words}${rollUp ? "" : ", no roll-up"}`;
    timed(`${name}: shown`, () => chooseShown(model, { ...switches, rollUp }));
    timed(`${name}: first scene in all`, () => firstScene(model, rollUp));
  }
  const composer = new Composer(chooseShown(model, { ...switches, rollUp: false }));
  const { scopes } = composer.shown;
  const stack = scopes.find("h");
  const opened = new Set([0, ...composer.firstOpened(1280, 800)]);
  composer.scene(opened);
  timed(`transformer ${words}: opening the stack of layers`, () => composer.scene(new Set([...opened, stack])), 1);
  const layer = scopes.find("h.3") >= 0 ? scopes.find("h.3") : stack;
  const way: number[] = [];
  for (let scope = layer; scope > 0; scope = scopes.parent[scope]) way.push(scope);
  composer.scene(new Set([...opened, ...way.slice(1)]));
  timed(`transformer ${words}: opening a layer`, () => composer.scene(new Set([...opened, ...way])), 1);
  timed(`transformer ${words}: the same scene again`, () => composer.scene(new Set([...opened, ...way])));
  timed(`transformer ${words}: index for search`, () => indexOf(model), 1);
  for (const query of ["addmm", "h.1 float32", "op:mm in:h.3", "e"]) timed(`transformer ${words}: search ${query}`, () => search(model, null, query));
}
for (const count of [2000, 20_000]) {
  const boxes = Array.from({ length: count + 1 }, () => ({ width: 100, height: 40 }));
  const lines = Array.from({ length: count }, (_, box) => ({ from: 0, to: box + 1, weight: 1 }));
  timed(`layered: ${count} siblings with a shared weight`, () => layOut(boxes, lines));
  timed(`layered: ${count} independent siblings`, () => layOut(boxes, []));
  const chained = Array.from({ length: count }, (_, box) => ({ from: box, to: box + 1, weight: 1 }));
  timed(`layered: a chain of ${count}`, () => layOut(boxes, chained), 3);
  timed(`layered: a chain of ${count} and a weight for all`, () => layOut([...boxes, boxes[0]], [...chained, ...lines.map(({ to }) => ({ from: count + 1, to, weight: 1 }))]), 3);
  const woven = chained.flatMap((line, place) => [line, { from: Math.max(0, place - (place % 5)), to: place + 1, weight: 1 }, { from: Math.max(0, place - 7), to: place + 1, weight: 1 }]);
  timed(`layered: ${count} boxes, ${woven.length} lines`, () => layOut(boxes, woven), 3);
}
for (const [name, model] of [["20,000 siblings", siblings(20_000)], ["a chain of 100,000", chain(100_000)], ["900 siblings", siblings(900)]] as const) {
  timed(`${name}: first scene`, () => firstScene(model, true), 3);
  const composer = new Composer(chooseShown(model, switches));
  composer.scene(new Set([0]));
  const { scopes } = composer.shown;
  const inner = new Set([0, ...Array.from({ length: scopes.count }, (_, scope) => scope).filter((scope) => scopes.isRun(scope)).slice(0, 2)]);
  timed(`${name}: opening a run`, () => composer.scene(inner), 1);
  const all = new Set(Array.from({ length: scopes.count }, (_, scope) => scope));
  timed(`${name}: opening all`, () => new Composer(composer.shown).scene(all), 1);
}
