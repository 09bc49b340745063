import assert from "node:assert/strict";
import { test } from "node:test";
import { statuses } from "../src/data/model.ts";
import type { Model } from "../src/data/model.ts";
import { chooseShown } from "../src/graph/shown.ts";
import type { Switches } from "../src/graph/shown.ts";
import { Composer } from "../src/scene/compose.ts";
import { bytes, formatCount } from "../src/scene/labels.ts";
import type { Rectangle, Scene } from "../src/scene/scene.ts";
import { cutToWidth, textWidth } from "../src/scene/widths.ts";
import { overlaps } from "./measure.ts";
import { chain, experts, rnn, Sample, seeded, siblings, transformer, unet } from "./samples.ts";

const usual: Switches = { layers: false, across: false, hideRearranging: true, dropAccumulators: true, rollUp: false, inlineParameters: true };

function composer(model: Model, switches = usual): Composer {
  return new Composer(chooseShown(model, switches));
}

function all({ shown: { scopes } }: Composer): Set<number> {
  return new Set(Array.from({ length: scopes.count }, (_, scope) => scope));
}

function holds(outer: Rectangle, inner: Rectangle): boolean {
  const [right, bottom] = [inner.x + inner.width, inner.y + inner.height];
  return inner.x >= outer.x && inner.y >= outer.y && right <= outer.x + outer.width && bottom <= outer.y + outer.height;
}

/** What is true of every scene. */
function check(scene: Scene, made: Composer): void {
  const { shown: left } = made;
  const { model, scopes } = left;
  const at = { x: Float64Array.from(scene.boxes, ({ x }) => x), y: Float64Array.from(scene.boxes, ({ y }) => y) };
  assert.equal(overlaps(scene.boxes, at), 0);
  const page = { x: 0, y: 0, width: scene.width, height: scene.height };
  const frames = new Map(scene.frames.map((frame) => [frame.scope, frame]));
  const scopeOf = scene.boxes.map(({ node, scope }) => (node < 0 ? scopes.parent[scope] : left.scope[node]));
  scene.boxes.forEach((box, place) => assert.ok(holds(frames.get(scopeOf[place]) ?? page, box)));
  for (const frame of scene.frames) assert.ok(holds(frames.get(scopes.parent[frame.scope]) ?? page, frame));
  for (const line of scene.lines) {
    const [from, to] = [scene.boxes[line.from], scene.boxes[line.to]];
    const { way } = line;
    assert.ok(Math.abs(way[1] - from.y - from.height) < 0.01 && way[0] > from.x && way[0] < from.x + from.width);
    assert.ok(Math.abs(way[way.length - 1] - to.y) < 0.01 && way[way.length - 2] > to.x && way[way.length - 2] < to.x + to.width);
    for (let place = 3; place < way.length; place += 2) assert.ok(way[place] >= way[place - 2] - 0.01);
  }
  // Every edge between nodes in different boxes is in one line, once.
  const weights = new Map<string, number>();
  for (let wire = 0; wire < left.wires.count; wire++) {
    const [from, to] = [scene.boxOf(left.wires.from[wire]), scene.boxOf(left.wires.to[wire])];
    assert.ok(from >= 0 && to >= 0);
    if (from !== to) weights.set(`${from} ${to}`, (weights.get(`${from} ${to}`) ?? 0) + 1);
  }
  assert.deepEqual(new Map(scene.lines.map(({ from, to, weight }) => [`${from} ${to}`, weight])), weights);
  assert.equal(scene.lines.length, weights.size);
  for (let node = 0; node < model.nodes.count; node++) if (left.instead[node] >= 0) assert.ok(scene.boxOf(node) >= 0);
}

test("scenes of samples with any modules open are whole", () => {
  for (const [number, model] of [transformer(200), unet(), rnn(6), experts(40), chain(2_100), siblings(1_500)].entries()) {
    for (const switches of [usual, { ...usual, rollUp: true }, { layers: false, across: false, hideRearranging: false, dropAccumulators: false, rollUp: false, inlineParameters: false }]) {
      const made = composer(model, switches);
      check(made.scene(new Set()), made);
      const next = seeded(number);
      for (let times = 0; times < 6; times++) check(made.scene(new Set([...all(made)].filter(() => next() < 0.7))), made);
      check(made.scene(all(made)), made);
    }
  }
});

test("a scene does not depend on what was open before", () => {
  const made = composer(transformer(200));
  const some = new Set([0, made.shown.scopes.find("h"), made.shown.scopes.find("h.2"), made.shown.scopes.find("h.2.attn")]);
  const before = made.scene(some);
  made.scene(all(made));
  made.scene(new Set());
  const plain = ({ boxOf: _, boxOfScope: __, ...rest }: Scene): object => rest;
  assert.deepEqual(plain(made.scene(some)), plain(before));
  assert.deepEqual(plain(composer(transformer(200)).scene(some)), plain(before));
});

test("what is in a closed module has its box", () => {
  const model = transformer(200);
  const made = composer(model);
  const { scopes } = made.shown;
  const scene = made.scene(new Set([0]));
  const stack = scene.boxes.findIndex(({ scope }) => scope === scopes.find("h"));
  for (let node = 0; node < model.nodes.count; node++) {
    if (model.nodes.id(node).startsWith("h.")) assert.equal(scene.boxOf(node), stack);
  }
  assert.equal(scene.boxOfScope(scopes.find("h.1.mlp")), stack);
  assert.equal(made.scene(new Set([0, scopes.find("h")])).boxOfScope(scopes.find("h")), -1);
});

test("boxes say what they are", () => {
  const made = composer(transformer(540), { ...usual, rollUp: true });
  const { scopes } = made.shown;
  const labels = made.scene(new Set([0, scopes.find("h"), scopes.find("lm_head")])).boxes.map(({ label }) => label);
  assert.deepEqual(
    labels.filter(([title]) => title !== "nll_loss" && title !== "loss"),
    [
      ["wte: Embedding", "float32 [8, 64]", "65.8 k parameters · 34.5 kB saved"],
      ["ln_f: LayerNorm", "float32 [8, 64]", "65.8 k parameters · 34.5 kB saved"],
      ["0–11: Block ×12", "float32 [8, 64]", "790 k parameters · 414 kB saved"],
      ["addmm", "float32 [8, 64]", "bias [64] · weight [64, 64]"],
    ],
  );
  assert.deepEqual([formatCount(999), formatCount(1_000), formatCount(1_250_000), bytes(0), bytes(34_500_000)], ["999", "1 k", "1.3 M", "0 B", "34.5 MB"]);
});

test("text is as wide as its box, however long or strange it is", () => {
  for (const text of ["a".repeat(100_000), "\u202eabc\u0000\n", "界".repeat(50), "", "😀".repeat(40)]) {
    const cut = cutToWidth(text, 200);
    assert.ok(textWidth(cut) <= 200);
    assert.ok(!/[\u0000-\u001f\u202a-\u202e]/.test(cut));
  }
  const sample = new Sample("hostile");
  sample.scope("</script>".repeat(100), "\u202e".repeat(50));
  sample.add("x".repeat(100_000), [], "</script>".repeat(100), { shape: `[${"1, ".repeat(10_000)}1]` });
  const made = composer(sample.done());
  for (const { width, height } of [...made.scene(new Set()).boxes, ...made.scene(all(made)).boxes]) assert.ok(width <= 260 && height <= 120);
});

test("a cut is a stub at its box or at the closed module that holds it", () => {
  const sample = new Sample("cuts");
  const x = sample.parameter("a.b.weight", "[2]");
  const stopped = sample.add("exp", [x], "a.b");
  const after = sample.add("sin", [stopped], "c");
  const cut = { kind: "detach", op: "detach", shape: "", names: [], source: "", via: "", meant: "", slot: -1, text: "", advice: "" };
  sample.cuts.push({ ...cut, scope: 0, at: stopped, into: after }, { ...cut, scope: sample.scope("a.b"), at: -1, into: -1 });
  const made = composer(sample.done());
  const closed = made.scene(new Set([0]));
  const [first, second] = ["a", "c"].map((path) => closed.boxOfScope(made.shown.scopes.find(path)));
  assert.deepEqual(closed.stubs.map(({ cut, box, above }) => [cut, box, above]), [[0, first, false], [0, second, true], [1, first, false]]);
  const opened = made.scene(all(made));
  const frame = opened.frames.findIndex(({ scope }) => scope === made.shown.scopes.find("a.b"));
  assert.deepEqual(opened.stubs.map(({ cut, box, above }) => [cut, box, above]), [
    [0, opened.boxOf(stopped), false],
    [0, opened.boxOf(after), true],
    [1, opened.boxes.length + frame, false],
  ]);
  // At the lower edge of the frame, off its middle.
  const [around, stub] = [opened.frames[frame], opened.stubs[2]];
  assert.equal(stub.y, around.y + around.height);
  assert.ok(stub.x > around.x + around.width / 2 && stub.x < around.x + around.width);
});

test("what the root lacks is marked below the drawing", () => {
  const sample = new Sample("lacking");
  sample.add("exp", []);
  sample.cuts.push({ kind: "unreached", op: "", shape: "", names: ["scale"], scope: 0, source: "", via: "", meant: "", at: -1, into: -1, slot: -1, text: "", advice: "" });
  const { stubs, boxes, width } = composer(sample.done()).scene(new Set());
  const [stub] = stubs;
  assert.ok(stub.y >= boxes[0].y + boxes[0].height && stub.x < width);
});

test("what a file knows of a whole module only is not said of a part of it", () => {
  const sample = new Sample("twice");
  const first = sample.add("exp", [], "fc");
  sample.scope("fc", "Linear");
  sample.add("exp", [sample.add("sin", [first])], "fc");
  const { boxes } = composer(sample.done()).scene(new Set());
  const told = boxes.filter(({ scope }) => scope > 0).map(({ label }) => label.slice(1).filter((line) => !line.startsWith("float32")));
  assert.deepEqual(told, [["65.8 k parameters in all", "34.5 kB saved in all"], []]);
});

test("of a module that lies in a step the whole of it is told as that", () => {
  const sample = new Sample("step");
  sample.add("sin", [sample.add("exp", [], "fc")]);
  const model = sample.done();
  const [step, inner] = [model.scopes.count, model.scopes.count + 1];
  const steps = [[0, 0, model.texts.length, 3], [step, sample.scope("fc"), 0, 1]] as const;
  const stepped = { ...model, texts: [...model.texts, "\u00d73"], steps, nodes: { ...model.nodes, home: Int32Array.of(inner, step) } };
  const made = new Composer(chooseShown(stepped, { ...usual, rollUp: true }));
  const [box] = made.scene(new Set([0, step])).boxes.filter(({ scope }) => scope === inner);
  assert.deepEqual(box.label.slice(2), ["65.8 k parameters in all", "34.5 kB saved in all"]);
});

test("changes are counted in closed modules", () => {
  const sample = new Sample("diff");
  sample.add("sin", [], "a.b", { status: "added" });
  sample.add("cos", [0], "a");
  const made = composer(sample.done());
  assert.deepEqual(made.scene(new Set()).boxes.map(({ changed }) => changed), [1]);
  assert.equal(statuses[made.shown.model.nodes.status[0]], "added");
});

test("at first as much is open as can be read", () => {
  for (const model of [transformer(540), transformer(2_000), unet(), rnn(), chain(100_000), siblings(20_000)]) {
    const made = composer(model, { ...usual, rollUp: true });
    const scene = made.scene(made.firstOpened(1280, 800));
    assert.ok(scene.boxes.length <= 60, model.title);
  }
  // With room more is open.
  const made = composer(transformer(540), { ...usual, rollUp: true });
  assert.ok(made.firstOpened(4000, 4000).size > made.firstOpened(900, 500).size);
  // Equal modules are open together or not at all.
  const apart = composer(transformer(90));
  const opened = apart.firstOpened(6000, 6000);
  assert.equal(opened.has(apart.shown.scopes.find("h.0")), opened.has(apart.shown.scopes.find("h.1")));
});
