// Colours, sums and words of the drawing.
import assert from "node:assert/strict";
import { test } from "node:test";
import { flag, statuses } from "../src/data/model.ts";
import { colouring, colourings, looksOf } from "../src/draw/looks.ts";
import { curve } from "../src/draw/pen.ts";
import { bytesText, numberText, plain, shorten } from "../src/draw/plain.ts";
import { resultsOf, sumsOf } from "../src/draw/sums.ts";
import { chooseShown } from "../src/graph/shown.ts";
import { allOpened, openChanged, openUpTo } from "../src/opening.ts";
import { listUnreached } from "../src/panels/entries.ts";
import { Composer } from "../src/scene/compose.ts";
import { Sample } from "./samples.ts";

const switches = { layers: false, across: false, hideRearranging: false, dropAccumulators: false, rollUp: false, inlineParameters: false };

function changed() {
  const sample = new Sample("changed");
  const x = sample.add("input", [], "", { role: "input" });
  const same = sample.add("relu", [x], "h.0");
  const more = sample.add("mul", [same, same], "h.1.new", { status: "added" });
  const end = sample.add("add", [more, same], "h.1", { status: "changed", flags: flag.failed });
  sample.add("output", [end], "", { role: "output", flags: flag.output });
  return chooseShown(sample.done([{ kind: "changed", group: "h.1", text: "h.1/add", nodes: [end], scopes: [], fields: [] }]), switches);
}

test("a closed module says what it holds, and has the status that all in it share", () => {
  const all = changed();
  const { scopes } = all;
  const sums = sumsOf(all.model, all);
  assert.ok(sums.differs);
  const composer = new Composer(all);
  const colours = colouring(all.model, sumsOf(all.model), "changes");
  const seen = (opened: number[]) => {
    const scene = composer.scene(new Set(opened));
    const looks = looksOf(all, sums, colours, scene);
    return new Map(
      scene.boxes.map((box, at) => [
        box.node >= 0 ? all.model.nodes.id(box.node) : scopes.key(box.scope),
        [statuses[looks.status[at]], statuses.filter((_, each) => (looks.holds[at] >> each) & 1), looks.failed[at]],
      ]),
    );
  };
  assert.deepEqual(seen([]).get("h"), ["same", ["added", "changed"], 0]);
  const inner = seen([scopes.find("h"), scopes.find("h.1")]);
  assert.deepEqual(inner.get("h.0"), ["same", [], 0]);
  assert.deepEqual(inner.get("h.1.new"), ["added", [], 0]);
  assert.deepEqual(inner.get("h.1/add:3"), ["changed", [], 1]);
});

test("a diff opens what changed in part, and nothing else", () => {
  const all = changed();
  const opened = openChanged(all, sumsOf(all.model, all));
  assert.deepEqual(
    [...opened].filter((scope) => scope > 0).map((scope) => all.scopes.key(scope)),
    ["h", "h.1"],
  );
});

test("opening to a depth opens no deeper", () => {
  const all = changed();
  const keys = (opened: Set<number>) => [...opened].map((scope) => all.scopes.key(scope));
  assert.deepEqual(keys(openUpTo(all, 1)), ["h"]);
  assert.deepEqual(keys(allOpened(all)).sort(), ["h", "h.0", "h.1", "h.1.new"]);
});

test("the result of a module is the last node in it that is read outside", () => {
  const { model } = changed();
  const results = resultsOf(model);
  const byName = new Map(Array.from({ length: model.scopes.count }, (_, scope) => [model.texts[model.scopes.name[scope]], results[scope]]));
  assert.deepEqual(
    [byName.get("0"), byName.get("new"), byName.get("h")].map((node) => model.nodes.id(node ?? -1)),
    ["h.0/relu:1", "h.1.new/mul:2", "h.1/add:3"],
  );
});

test("every colouring has a look and a legend for all that it colours", () => {
  const { model } = changed();
  const sums = sumsOf(model);
  for (const [name] of colourings(model, sums)) {
    const colours = colouring(model, sums, name);
    const legend = new Set(colours.legend.map(({ token }) => token));
    for (let node = 0; node < model.nodes.count; node++) {
      const [token] = colours.node(node, []);
      assert.ok(legend.has(token) || token === "plain", `${name}: ${token}`);
    }
  }
  assert.equal(colourings(model, sums)[0][0], "changes");
});

test("a parameter without gradient leads to the place that cuts it", () => {
  const cut = { kind: "unreached", op: "", shape: "", names: ["w"], scope: 0, source: "", via: "", meant: "", at: -1, into: -1, slot: -1, text: "", advice: "" };
  const place = { ...cut, kind: "detach", op: "detach", shape: "", names: ["w", "reached otherwise"], source: "net.py:8" };
  assert.deepEqual(listUnreached([cut, { ...cut, shape: "", names: ["v"] }, place]), [
    ["w", 2],
    ["v", 1],
  ]);
});

test("text of a file neither acts nor hides", () => {
  assert.equal(plain("a\u202eb\u0000c\nd"), "a\\u202eb\\u0000c d");
  assert.equal(plain("x".repeat(100_000)).length, 2001);
  assert.equal(shorten("abcdefghij", 5), "abc\u2026ij");
  assert.deepEqual([0, 999, 1000, 34_500, 999_600, 58_300_000].map(bytesText), ["0 B", "999 B", "1.0 kB", "34.5 kB", "1.0 MB", "58.3 MB"]);
});

test("a curve passes its corners and never leaves the band between two of them", () => {
  const way = Float64Array.of(0, 0, 50, 40, 60, 80, 10, 120, 10, 160);
  const ends: number[] = [];
  let at = [0, 0];
  curve(
    {
      moveTo: (x, y) => void ends.push(...(at = [x, y])),
      lineTo: (x, y) => void ends.push(...(at = [x, y])),
      bezierCurveTo: (x1, y1, x2, y2, x, y) => {
        const [low, high] = [Math.min(at[0], x) - 1e-9, Math.max(at[0], x) + 1e-9];
        assert.ok(x1 >= low && x1 <= high && x2 >= low && x2 <= high && y1 <= y && y2 >= at[1]);
        ends.push(...(at = [x, y]));
      },
    },
    way,
    false,
  );
  assert.deepEqual(ends, [...way]);
});

test("what is drawn for several layers has the look of the worst of them, and the bytes of all", () => {
  const sample = new Sample("layers");
  let value = -1;
  for (let layer = 0; layer < 3; layer++) {
    sample.scope(`h.${layer}`, "Block", "h.0");
    value = sample.add("exp", value < 0 ? [] : [value], `h.${layer}.mlp`);
  }
  const channel = { name: "norm", look: Uint8Array.of(1, 1, 2), looks: ["", "good", "alarm"], said: new Int32Array(3), legend: [] };
  const model = { ...sample.done(), channels: [channel] };
  const sums = sumsOf(model);
  const [first, inner, holder] = ["h.0", "h.0.mlp", "h"].map((path) => sample.scope(path));
  for (const [isRolled, token] of [[false, "look-good"], [true, "look-alarm"]] as const) {
    const colours = colouring(model, sums, "overlay:norm", isRolled);
    assert.deepEqual([colours.node(0, []), colours.scope(first, 1), colours.scope(inner, 1)].map(([found]) => found), [token, token, token]);
    assert.equal(colours.scope(holder, 1)[0], "look-alarm");
  }
  model.scopes.saved[first] = 100;
  const bytes = colouring(model, sums, "saved");
  assert.notDeepEqual(bytes.scope(first, 1), bytes.scope(first, 8));
});

test("whole numbers have commas", () => {
  assert.deepEqual([0, 999, 1000, 65536, 1_234_567].map(numberText), ["0", "999", "1,000", "65,536", "1,234,567"]);
});
