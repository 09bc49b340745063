/** Ancestors, descendants, and all ways between nodes: along all edges of the file, also those of hidden nodes. */
import type { Model } from "../data/model.ts";
import { groupByKey, rowsAt } from "./columns.ts";
import type { Groups } from "./columns.ts";

const outOf = new WeakMap<Model, Groups>();

/** The edges out of each node. */
export function consumers(model: Model): Groups {
  let known = outOf.get(model);
  if (!known) outOf.set(model, (known = groupByKey(model.edges.from, model.nodes.count)));
  return known;
}

/** By node 1 where some nodes depend on it, and where it is one of them. */
export function ancestors(model: Model, nodes: Iterable<number>): Uint8Array {
  const { first, from } = model.edges;
  return findReached(model, nodes, (node) => from.subarray(first[node], first[node + 1]));
}

/** By node 1 where it depends on some nodes, and where it is one of them. */
export function descendants(model: Model, nodes: Iterable<number>): Uint8Array {
  const out = consumers(model);
  const { to } = model.edges;
  return findReached(model, nodes, (node) => rowsAt(out, node).map((edge) => to[edge]));
}

function findReached(model: Model, nodes: Iterable<number>, next: (node: number) => Int32Array): Uint8Array {
  const seen = new Uint8Array(model.nodes.count);
  const stack = [...nodes];
  while (stack.length) {
    const node = stack.pop()!;
    if (seen[node]) continue;
    seen[node] = 1;
    for (const each of next(node)) stack.push(each);
  }
  return seen;
}

/** By node 1 where it lies on a way from some nodes to some ends, 2 where all ways lead through it, else 0. */
export function ways(model: Model, from: readonly number[], ends: readonly number[]): Uint8Array {
  const { count } = model.nodes;
  const out = consumers(model);
  const { to } = model.edges;
  const above = ancestors(model, ends);
  const found = descendants(model, from).map((own, node) => own & above[node]);
  // Nodes stand after what they take from: one that no edge passes by is on every way.
  let farthest = from.reduce((most, node) => Math.max(most, found[node] && node), 0);
  for (let node = 0; node < count; node++) {
    if (!found[node]) continue;
    if (farthest <= node) found[node] = 2;
    if (ends.includes(node)) farthest = count;
    for (const edge of rowsAt(out, node)) if (found[to[edge]]) farthest = Math.max(farthest, to[edge]);
  }
  return found;
}
