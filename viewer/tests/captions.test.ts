import assert from "node:assert/strict";
import { test } from "node:test";
import { type Caption, captions } from "../src/draw/over.ts";
import { type Painting, placesOf } from "../src/draw/painting.ts";
import { chooseShown } from "../src/graph/shown.ts";
import { flag } from "../src/data/model.ts";
import { Composer } from "../src/scene/compose.ts";
import { caption } from "../src/scene/labels.ts";
import { experts, Sample, seeded, transformer, unet } from "./samples.ts";

const usual = { layers: false, across: false, hideRearranging: true, dropAccumulators: true, rollUp: false, inlineParameters: true };
const size = { width: 900, height: 700 };

function paintingOf(sample: Sample | ReturnType<Sample["done"]>): Painting {
  const left = chooseShown(sample instanceof Sample ? sample.done() : sample, usual);
  const scene = new Composer(left).scene(new Set(Array.from({ length: left.scopes.count }, (_, scope) => scope)));
  const looks = { frames: new Uint8Array(scene.frames.length) };
  return { shown: left, places: placesOf(scene), looks, hidden: 0, words: new Map() } as unknown as Painting;
}

function overlapping(all: readonly Caption[]): [Caption, Caption][] {
  return all.flatMap((one, at) =>
    all
      .slice(at + 1)
      .filter((other) => one.x < other.x + other.width && other.x < one.x + one.width && one.y < other.y + other.height && other.y < one.y + one.height)
      .map((other): [Caption, Caption] => [one, other]),
  );
}

test("captions of opened modules never run together", () => {
  let behind = 0;
  for (const [number, model] of [transformer(200), unet(), experts(40)].entries()) {
    const painting = paintingOf(model);
    const { scene } = painting.places;
    const next = seeded(number);
    for (let times = 0; times < 400; times++) {
      const frame = scene.frames[Math.floor(next() * scene.frames.length)];
      const k = 0.2 + next() * 1.5;
      const camera = { x: frame.x + (next() - 0.5) * 600, y: frame.y + frame.height * next(), k };
      const all = captions(painting, camera, size);
      assert.deepEqual(overlapping(all).map((both) => both.map(({ words }) => words)), []);
      behind += all.filter(({ isBehind }) => isBehind).length;
    }
  }
  assert.ok(behind > 100);
});

test("frames whose tops are out of sight are one line from the outer to the inner", () => {
  const sample = new Sample("nested");
  let value = -1;
  for (let each = 0; each < 12; each++) value = sample.add("exp", value < 0 ? [] : [value], "a.b.c");
  const painting = paintingOf(sample);
  const [{ x, y, height }] = painting.places.scene.frames;
  const all = captions(painting, { x: x - 100, y: y + height / 2, k: 1 }, size);
  assert.deepEqual(all.map(({ words, y: top, isBehind }) => [words, top, isBehind]), [["a", 0, false], ["b", 0, true], ["c", 0, true]]);
  assert.ok(all[0].x + all[0].width < all[1].x && all[1].x + all[1].width < all[2].x);
});

test("a frame has its caption where the boxes in it have text", () => {
  const sample = new Sample("small");
  sample.add("exp", [], "a");
  const painting = paintingOf(sample);
  assert.deepEqual(captions(painting, { x: 0, y: 0, k: 0.5 }, size).map(({ words }) => words), ["a"]);
  assert.deepEqual(captions(painting, { x: 0, y: 0, k: 0.3 }, size), []);
});

test("parts of a module say whether they run forward or backward", () => {
  const sample = new Sample("joint");
  const backward = { flags: flag.backward };
  let value = sample.add("mm", [], "fc");
  const early = sample.add("t", [value], "fc", backward);
  value = sample.add("sum", [value], "loss");
  value = sample.add("expand", [value], "loss", backward);
  value = sample.add("mm", [value, early], "fc", backward);
  const left = chooseShown(sample.done(), { ...usual, dropAccumulators: false });
  const captions = Array.from({ length: left.scopes.count }, (_, scope) => caption(left, scope)).slice(1);
  assert.deepEqual(captions.filter((words) => words.startsWith("fc")), ["fc (forward)", "fc (backward)"]);
});
