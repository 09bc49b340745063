import assert from "node:assert/strict";
import { test } from "node:test";
import { flag } from "../src/data/model.ts";
import type { Model } from "../src/data/model.ts";
import { mostChildren } from "../src/graph/runs.ts";
import { chooseShown } from "../src/graph/shown.ts";
import type { Shown, Switches } from "../src/graph/shown.ts";
import { chain, rnn, Sample, seeded, siblings, transformer, unet } from "./samples.ts";

const off: Switches = { layers: false, across: false, hideRearranging: false, dropAccumulators: false, rollUp: false, inlineParameters: false };

function pairs({ wires }: Shown): string[] {
  return Array.from({ length: wires.count }, (_, wire) => `${wires.from[wire]} ${wires.to[wire]}`);
}

/** A graph with modules, hidden operations and accumulators in any order. */
function random(seed: number): Model {
  const next = seeded(seed);
  const sample = new Sample(`random ${seed}`);
  const paths = ["", "a", "a.b", "a.c", "d", "d.0", "d.1", "d.1.e"];
  const count = 2 + Math.floor(60 * next());
  for (let node = 0; node < count; node++) {
    const inputs = Array.from({ length: Math.floor(3 * next() + 0.4) }, () => Math.floor(node * next())).filter(() => node > 0);
    const flags = next() < 0.3 ? flag.rearranges : next() < 0.2 ? flag.accumulates : 0;
    sample.add("op", inputs, paths[Math.floor(paths.length * next())], { flags, role: inputs.length ? "function" : "parameter" });
  }
  return sample.done();
}

test("an operation that only rearranges and has one input goes, and its consumers take that input", () => {
  const sample = new Sample("hidden");
  const x = sample.add("input", [], "", { role: "input" });
  const first = sample.add("view", [x], "", { flags: flag.rearranges });
  const second = sample.add("t", [first], "", { flags: flag.rearranges });
  const joined = sample.add("cat", [second, x], "", { flags: flag.rearranges });
  const opaque = sample.add("view", [joined], "", { flags: flag.rearranges | flag.opaque });
  const changed = sample.add("view", [opaque], "", { flags: flag.rearranges, status: "changed" });
  const left = chooseShown(sample.done(), { ...off, hideRearranging: true });
  assert.deepEqual([...left.instead], [x, x, x, joined, opaque, changed]);
  assert.deepEqual(pairs(left), [`${x} ${joined}`, `${x} ${joined}`, `${joined} ${opaque}`, `${opaque} ${changed}`]);
});

test("accumulators go, with what they take in their place", () => {
  const sample = new Sample("dropped");
  const weight = sample.parameter("fc.weight", "[2]");
  const accumulated = sample.add("accumulate_grad", [weight], "fc", { flags: flag.accumulates });
  const used = sample.add("exp", [accumulated], "fc");
  const lone = sample.add("accumulate_grad", [], "fc", { flags: flag.accumulates });
  const after = sample.add("sin", [lone], "fc");
  const left = chooseShown(sample.done(), { ...off, dropAccumulators: true });
  assert.deepEqual([...left.instead], [weight, weight, used, -1, after]);
  assert.deepEqual(pairs(left), [`${weight} ${used}`]);
});

test("an accumulator goes with a change that its parameter tells, and stays with one of its own", () => {
  for (const [status, instead] of [["changed", 0], ["same", 1]] as const) {
    const sample = new Sample("grown");
    const weight = sample.add("parameter", [], "fc", { role: "parameter", status });
    sample.add("accumulate_grad", [weight], "fc", { flags: flag.accumulates, status: "changed" });
    assert.equal(chooseShown(sample.done(), { ...off, dropAccumulators: true }).instead[1], instead);
  }
});

test("no edge is invented: each stands for a way through nodes that are gone", () => {
  for (let seed = 0; seed < 100; seed++) {
    const model = random(seed);
    const left = chooseShown(model, { ...off, hideRearranging: true, dropAccumulators: true });
    const { first, from } = model.edges;
    const found = new Set(pairs(left));
    const wanted = new Set<string>();
    for (let node = 0; node < model.nodes.count; node++) {
      if (left.instead[node] !== node) continue;
      for (let edge = first[node]; edge < first[node + 1]; edge++) {
        let source = from[edge];
        while (source >= 0 && left.instead[source] !== source) source = first[source + 1] - first[source] === 1 ? from[first[source]] : -1;
        if (source >= 0) wanted.add(`${source} ${node}`);
      }
    }
    assert.deepEqual(found, wanted, `seed ${seed}`);
  }
});

/** The items that edges join within each scope must have no cycle. */
function hasCycle({ model, scopes, scope, wires, host }: Shown): boolean {
  const nodes = model.nodes.count;
  const way = (node: number): number[] => {
    const items = [node];
    for (let above = scope[node]; above > 0; above = scopes.parent[above]) items.push(nodes + above);
    return items.reverse();
  };
  const out = new Map<number, Set<number>>();
  for (let wire = 0; wire < wires.count; wire++) {
    assert.equal(host[wires.from[wire]], wires.from[wire]);
    const [one, other] = [way(wires.from[wire]), way(wires.to[wire])];
    let level = 0;
    while (one[level] === other[level]) level++;
    if (!out.has(one[level])) out.set(one[level], new Set());
    out.get(one[level])!.add(other[level]);
  }
  const state = new Map<number, number>();
  for (const start of out.keys()) {
    const stack: [number, boolean][] = [[start, false]];
    while (stack.length) {
      const [item, done] = stack.pop()!;
      if (done) state.set(item, 2);
      else if (!state.has(item)) {
        state.set(item, 1);
        stack.push([item, true]);
        for (const next of out.get(item) ?? []) {
          if (state.get(next) === 1) return true;
          stack.push([next, false]);
        }
      }
    }
  }
  return false;
}

test("modules that the flow enters again are in parts, so that boxes close no cycle", () => {
  for (let seed = 0; seed < 200; seed++) assert.ok(!hasCycle(chooseShown(random(seed), off)), `seed ${seed}`);
  for (const model of [unet(), rnn(5), transformer(300)]) assert.ok(!hasCycle(chooseShown(model, { ...off, inlineParameters: true })));
});

test("every node is in its module, or in a part of it", () => {
  for (let seed = 0; seed < 100; seed++) {
    const model = random(seed);
    const { scope, scopes } = chooseShown(model, off);
    const calledOf = model.scopes.calls;
    for (let node = 0; node < model.nodes.count; node++) {
      let wanted = model.nodes.scope[node];
      // What stood in a container that is never called may stand in the module around it.
      while (wanted !== scopes.of[scope[node]]) {
        assert.equal(calledOf[wanted], 0);
        wanted = model.scopes.parent[wanted];
      }
    }
  }
});

test("a container that is never called is not split, and what it held says where it is from", () => {
  const model = unet(3);
  const { scopes } = chooseShown(model, { ...off, inlineParameters: true });
  for (const path of ["down.0", "down.2", "pool", "pool#3", "middle.relu#2"]) assert.ok(scopes.find(path) > 0, path);
  assert.equal(scopes.find("down#2"), -1);
  assert.equal(scopes.name(scopes.find("down.1")), "down.1");
  assert.equal(scopes.parent[scopes.find("down.1")], 0);
});

/** What each layer hands to the next, as pairs of nodes that are left. */
function rounds({ model, instead, host, wires }: Shown): [number, number][] {
  const kept = new Set(Array.from({ length: wires.count }, (_, wire) => `${wires.from[wire]} ${wires.to[wire]}`));
  const found = new Map<string, [number, number]>();
  const unrolled = chooseShown(model, { layers: false, across: false, hideRearranging: true, dropAccumulators: true, rollUp: false, inlineParameters: true }).wires;
  for (let wire = 0; wire < unrolled.count; wire++) {
    const pair: [number, number] = [instead[unrolled.from[wire]], instead[unrolled.to[wire]]];
    if (host[pair[0]] === pair[0] && !kept.has(pair.join(" "))) found.set(pair.join(" "), pair);
  }
  return [...found.values()];
}

test("equal layers are rolled up into the first: what it is fed, what takes from the last, and rounds", () => {
  const model = transformer(45 * 12);
  const rolled = chooseShown(model, { layers: false, across: false, hideRearranging: true, dropAccumulators: true, rollUp: true, inlineParameters: true });
  const first = rolled.scopes.find("h.0");
  assert.equal(rolled.scopes.times[first], 12);
  assert.equal(rolled.scopes.name(first), "0–11");
  const op = (node: number): string => model.texts[model.nodes.op[node]];
  const path = (node: number): string => rolled.scopes.key(rolled.scope[node]);
  const crossing = pairs(rolled)
    .map((pair) => pair.split(" ").map(Number))
    .filter(([from, to]) => path(from).startsWith("h.") !== path(to).startsWith("h."))
    .map(([from, to]) => `${op(from)} → ${op(to)} in ${path(to)}`);
  assert.deepEqual(crossing, ["embedding → layer_norm in h.0.ln_1", "embedding → add in h.0", "add → layer_norm in ln_f"]);
  assert.deepEqual(rounds(rolled).map(([from, to]) => `${op(from)} → ${op(to)} in ${path(to)}`), [
    "add → layer_norm in h.0.ln_1",
    "add → add in h.0",
  ]);
  // Every node of every layer leads to its equal.
  for (let node = 0; node < model.nodes.count; node++) {
    const stands = rolled.instead[node];
    assert.ok(stands >= 0 && (rolled.instead[stands] === stands));
  }
});

test("layers that do not match node by node stay", () => {
  const sample = new Sample("uneven");
  let value = sample.add("input", [], "", { role: "input" });
  for (const [layer, op] of ["sin", "sin", "cos"].entries()) {
    sample.scope(`h.${layer}`, "Layer", "h.0");
    value = sample.add(op, [value], `h.${layer}`);
  }
  const left = chooseShown(sample.done(), { ...off, rollUp: true });
  assert.equal(left.wires.count, 3);
  assert.ok(left.scopes.times.every((times) => times === 1));
});

test("a parameter of one operation is written in its box, one of several stands by itself, and so does a cut one", () => {
  const sample = new Sample("inline");
  const [single, shared, cut] = ["fc.weight", "fc.shared", "fc.cut"].map((name) => sample.parameter(name, "[2]"));
  const buffer = sample.add("buffer", [], "bn", { role: "buffer", name: "bn.running_mean" });
  const one = sample.add("mm", [single, shared, cut], "fc");
  sample.add("mm", [one, shared], "fc");
  const batched = sample.add("native_batch_norm", [one], "bn");
  sample.cuts.push({ kind: "detach", op: "", shape: "", names: [], scope: 0, source: "", via: "", meant: "", at: cut, into: -1, slot: -1, text: "", advice: "" });
  const { host } = chooseShown(sample.done(), { ...off, inlineParameters: true });
  assert.deepEqual([host[single], host[shared], host[cut], host[buffer]], [one, shared, cut, batched]);
});

test("a module with thousands of children shows them in runs", () => {
  for (const model of [siblings(20_000), chain(5_000)]) {
    const left = chooseShown(model, off);
    const children = new Int32Array(left.scopes.count);
    for (const scope of left.scope) children[scope]++;
    for (let scope = 1; scope < left.scopes.count; scope++) {
      assert.ok(left.scopes.isRun(scope));
      children[left.scopes.parent[scope]]++;
      assert.equal(left.scopes.find(left.scopes.key(scope)), scope);
    }
    assert.ok(Math.max(...children) <= mostChildren);
    assert.ok(!hasCycle(left));
  }
  // What feeds all runs stands beside them.
  assert.equal(chooseShown(siblings(20_000), off).scope[0], 0);
});
