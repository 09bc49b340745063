// A link brings back what was chosen, and a link of another graph or a broken one does no harm.
import assert from "node:assert/strict";
import { test } from "node:test";
import { chooseShown } from "../src/graph/shown.ts";
import { eyeOf, withoutEye } from "../src/memory.ts";
import { type State, carryOver, hashOf, nothing, stateOf, switchesOf } from "../src/state.ts";
import { Sample } from "./samples.ts";

const switches = { layers: false, across: false, hideRearranging: false, dropAccumulators: true, rollUp: false, inlineParameters: true };
const sample = new Sample("links");
let last = sample.add("input", []);
for (let layer = 0; layer < 400; layer++) {
  last = sample.add("relu", [last], `stack.${layer}.inner`);
  last = sample.add("mul", [last, last], `stack.${layer}`);
}
sample.add("odd &=#,@%/ \u202e name", [last], "a,b=c&d.\u00e9 #1");
const model = sample.done();
const { scopes } = chooseShown(model, switches);
const base: State = { selected: nothing, opened: new Set(), colour: "role", switches, trail: "", sides: false };
const find = (path: string): number => {
  const scope = scopes.find(path);
  assert.ok(scope > 0, path);
  return scope;
};

function comesBack(state: State): string {
  const hash = hashOf(state, model, scopes);
  const back = stateOf(hash, model, scopes, base);
  assert.deepEqual(
    { ...back, opened: [...back.opened].filter((scope) => scope > 0).sort() },
    { ...state, opened: [...state.opened].filter((scope) => scope > 0).sort() },
    hash,
  );
  assert.match(hash, /^#[\x21-\x7e]*$/);
  return hash;
}

test("what is selected comes back", () => {
  assert.equal(comesBack({ ...base, selected: { kind: "node", at: 1 } }), "#node=stack.0.inner/relu:1&open=&colour=role&on=accumulators,inline");
  comesBack({ ...base, selected: { kind: "node", at: model.nodes.count - 1 } });
  comesBack({ ...base, selected: { kind: "module", at: find("stack.7.inner") } });
  comesBack({ ...base, selected: { kind: "module", at: find("a,b=c&d.\u00e9 #1") } });
});

test("what is open comes back, said by the innermost", () => {
  const way = ["stack", "stack.3", "stack.3.inner"].map(find);
  assert.match(comesBack({ ...base, opened: new Set([0, ...way]) }), /[#&]open=stack\.3\.inner&/);
  // Opened inside a closed one: it is remembered for when that opens.
  comesBack({ ...base, opened: new Set([way[2]]) });
  const all = new Set(Array.from({ length: scopes.count - 1 }, (_, at) => at + 1));
  assert.match(comesBack({ ...base, opened: all }), /[#&]open=\*&/);
  all.delete(find("stack.9"));
  assert.ok(comesBack({ ...base, opened: all }).length < 2000);
});

test("switches, colours, what is followed and both sides come back", () => {
  comesBack({
    ...base,
    switches: { layers: false, across: false, hideRearranging: true, dropAccumulators: false, rollUp: true, inlineParameters: false },
    colour: "overlay:a & b=c",
    trail: "path",
    sides: true,
  });
  comesBack({ ...base, switches: { layers: false, across: false, hideRearranging: false, dropAccumulators: false, rollUp: false, inlineParameters: false } });
});

test("a link of another graph or a broken one leaves what was", () => {
  for (const hash of [
    "",
    "#",
    "#node=nowhere",
    "#module=no.where",
    "#cut=3",
    "#change=-1",
    "#cut=1.5",
    "#open=%E0%A4%A",
    "#=&&=x",
    "#follow=me",
    "#open=@5-2,x,999999-9999999999,-4",
  ]) {
    const state = stateOf(hash, model, scopes, base);
    assert.deepEqual(state.selected, nothing, hash);
    assert.ok(
      [...state.opened].every((scope) => scope >= 0 && scope < scopes.count),
      hash,
    );
    assert.equal(state.trail, "");
  }
  assert.deepEqual(stateOf("", model, scopes, { ...base, opened: new Set([3]) }).opened, new Set([3]));
  assert.equal(switchesOf("#node=x", switches), switches);
});

test("what is open is carried over to other switches by its path", () => {
  const rolled = chooseShown(model, { ...switches, dropAccumulators: false }).scopes;
  const opened = new Set([find("stack"), find("stack.3")]);
  assert.deepEqual(
    [...carryOver(opened, scopes, rolled)].map((scope) => rolled.key(scope)),
    ["stack", "stack.3"],
  );
});

test("where the eye is, is a part of a link of its own", () => {
  assert.deepEqual(eyeOf("#node=x&eye=-12,40,0.25"), { x: -12, y: 40, k: 0.25 });
  assert.equal(withoutEye("#node=x&eye=-12,40,0.25&sides=1"), "#node=x&sides=1");
  for (const hash of ["", "#eye=1,2", "#eye=1,2,0", "#eye=a,b,c", "#node=eye=1,2,3"]) assert.equal(eyeOf(hash), null);
});
