import assert from "node:assert/strict";
import { test } from "node:test";
import type { DetailsOfAll, Model } from "../src/data/model.ts";
import { parseQuery } from "../src/graph/query.ts";
import { search } from "../src/graph/search.ts";
import { ancestors, descendants, ways } from "../src/graph/walks.ts";
import { chain, Sample, seeded, transformer } from "./samples.ts";

const model = transformer(200);

function told(found: Model, words: string, details: DetailsOfAll | null = null): string[] {
  return search(found, details, words).map(({ node, scope }) => (node < 0 ? `module ${found.texts[found.scopes.name[scope]]}` : found.nodes.id(node)));
}

test("words are all looked for, in any field, whatever their case", () => {
  assert.equal(told(model, "GELU").length, 5);
  assert.equal(told(model, "gelu h.2").length, 1);
  assert.ok(told(model, "lm_head weight").some((id) => id.startsWith("lm_head/parameter")));
  assert.deepEqual(told(model, "gelu nothing"), []);
  assert.deepEqual(told(model, "  "), []);
});

test("a key looks in one field", () => {
  assert.ok(told(model, "op:softmax").every((id) => id.includes("/softmax:")));
  assert.equal(told(model, "op:softmax in:h.3").length, 1);
  assert.equal(told(model, "in:h.3 in:ln_1 op:layer_norm").length, 1);
  // "h.1" is not "h.10".
  const found = told(transformer(45 * 12), "in:h.1").filter((id) => !id.startsWith("module "));
  assert.ok(found.length > 30 && found.every((id) => /^h\.1[./]/.test(id)));
  assert.ok(told(model, "class:selfattention").includes("module attn"));
  assert.equal(told(model, "shape:[50257").length, 1);
  assert.equal(told(model, 'shape:"[50257, 64]"').length, 1);
  assert.deepEqual(told(model, "op:float32"), []);
});

test("what is the word comes first, then what starts with it", () => {
  const sample = new Sample("ranks");
  for (const op of ["xmm", "mmx", "mm", "addmm"]) sample.add(op, []);
  sample.scope("mm", "Module");
  assert.deepEqual(told(sample.done(), "mm").map((id) => id.replace(/:.*/, "")), ["module mm", "/mm", "/mmx", "/xmm", "/addmm"]);
});

test("the source line is looked in where the details are there", () => {
  const details: DetailsOfAll = { of: () => assert.fail(), sources: ["other.py:1", "Net.py:41"], sourceOf: model.nodes.op.map((_, node) => (node === 7 ? 1 : 0)) };
  assert.deepEqual(told(model, "net.py:41", details), [model.nodes.id(7)]);
  assert.deepEqual(told(model, "source:net.py", details), [model.nodes.id(7)]);
  assert.deepEqual(told(model, "source:net.py"), []);
});

test("hostile words find nothing and break nothing", () => {
  for (const words of ['"', "op:", "(((", "[", "\u202e", "a".repeat(100_000), "\\", "\n", '":"']) assert.ok(Array.isArray(search(model, null, words)));
  assert.deepEqual(parseQuery('a "b c" op:"d e" [1, 2] x:y'), [
    { text: "a", key: undefined },
    { text: "b c", key: undefined },
    { text: "d e", key: "op" },
    { text: "[1, 2]", key: undefined },
    { text: "x:y", key: undefined },
  ]);
});

test("what boxes and lists write is found", () => {
  assert.deepEqual(told(model, "gelu float32[8, 64] h.2"), told(model, "gelu h.2"));
  assert.deepEqual(told(model, "attn: SelfAttention (1 of 2) \u00d712"), told(model, "attn SelfAttention"));
  assert.ok(told(model, "attn: SelfAttention").length > 0);
  assert.deepEqual(told(model, "relu \u2192 gelu"), told(model, "relu gelu"));
});

test("between slashes stands a regular expression", () => {
  assert.deepEqual(new Set(told(model, "op:/^(gelu|softmax)$/")), new Set([...told(model, "op:gelu"), ...told(model, "op:softmax")]));
  assert.deepEqual(told(model, "/GELU|no thing/ in:h.2"), told(model, "gelu in:h.2"));
  assert.deepEqual(told(model, "in:/^h\\.[12]\\b/ op:gelu").length, 2);
  assert.ok(told(model, "id:/softmax:\\d+$/").length > 0);
  // A part of an id is none.
  assert.ok(told(model, "h.2.attn/softmax").length > 0);
  assert.throws(() => parseQuery("/(/"), SyntaxError);
});

test("the best hits come first, equal ones in their order, and no more than asked for", () => {
  const sample = new Sample("many");
  for (let each = 0; each < 40; each++) sample.add(each % 4 ? "add" : "addmm", []);
  const nodes = search(sample.done(), null, "addmm add", 15).map(({ node }) => node);
  assert.deepEqual(nodes, [0, 4, 8, 12, 16, 20, 24, 28, 32, 36]);
  const all = search(sample.done(), null, "add", 32).map(({ node }) => node);
  const whole = Array.from({ length: 40 }, (_, each) => each).filter((each) => each % 4);
  assert.deepEqual(all, [...whole, 0, 4]);
});

test("ancestors and descendants are what ways lead from and to", () => {
  for (let seed = 0; seed < 60; seed++) {
    const next = seeded(seed);
    const sample = new Sample("walks");
    const count = 30;
    const reach = Array.from({ length: count }, () => new Set<number>());
    for (let node = 0; node < count; node++) {
      const inputs = Array.from({ length: Math.floor(3 * next()) }, () => Math.floor(node * next())).filter(() => node > 0);
      sample.add("op", inputs);
      for (const input of inputs) for (const known of [input, ...reach[input]]) reach[node].add(known);
    }
    const graph = sample.done();
    for (let node = 0; node < count; node++) {
      const marked = (isOn: (other: number) => boolean) => reach.map((_, other) => (other === node || isOn(other) ? 1 : 0));
      assert.deepEqual([...ancestors(graph, [node])], marked((other) => reach[node].has(other)));
      assert.deepEqual([...descendants(graph, [node])], marked((other) => reach[other].has(node)));
      for (let other = 0; other < count; other++) {
        const found = ways(graph, [node], [other]);
        const isOn = (each: number): boolean => (each === node || reach[each].has(node)) && (each === other || reach[other].has(each));
        const leads = (without: number): boolean => {
          const met = new Set(node === without ? [] : [node]);
          for (let each = 0; each < count; each++)
            for (const from of graph.edges.from.slice(graph.edges.first[each], graph.edges.first[each + 1])) if (met.has(from) && each !== without) met.add(each);
          return met.has(other);
        };
        for (let each = 0; each < count; each++) assert.equal(found[each], !isOn(each) ? 0 : leads(each) ? 1 : 2, `${each} from ${node} to ${other}`);
      }
    }
  }
});

test("a walk over a long chain does not recurse", () => {
  const long = chain(100_000);
  assert.ok(ancestors(long, [100_000]).every((isOn) => isOn));
  assert.ok(descendants(long, [0]).every((isOn) => isOn));
  assert.equal(ways(long, [0], [100_000]).filter((how) => how === 2).length, 100_001);
});
