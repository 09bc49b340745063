/** What a node depends on, what depends on it, and all ways between some: along all edges of the file, also those of hidden nodes. */
import type { Model } from "../data/model.ts";
import { grouped, rowsAt } from "./columns.ts";
import type { Groups } from "./columns.ts";

const outOf = new WeakMap<Model, Groups>();

/** The edges out of each node. */
export function consumers(model: Model): Groups {
  let known = outOf.get(model);
  if (!known) outOf.set(model, (known = grouped(model.edges.from, model.nodes.count)));
  return known;
}

/** All nodes that some nodes depend on, in the order of the file, without these nodes. */
export function ancestors(model: Model, nodes: Iterable<number>): Int32Array {
  const { first, from } = model.edges;
  return reached(model, nodes, (node, meet) => {
    for (let edge = first[node]; edge < first[node + 1]; edge++) meet(from[edge]);
  });
}

/** All nodes that depend on some nodes, in the order of the file, without these nodes. */
export function descendants(model: Model, nodes: Iterable<number>): Int32Array {
  const out = consumers(model);
  const { to } = model.edges;
  return reached(model, nodes, (node, meet) => {
    for (const edge of rowsAt(out, node)) meet(to[edge]);
  });
}

function reached(model: Model, nodes: Iterable<number>, each: (node: number, meet: (next: number) => void) => void): Int32Array {
  const seen = new Uint8Array(model.nodes.count);
  const stack = [...nodes];
  const starts = stack.slice();
  for (const node of starts) seen[node] = 1;
  let count = 0;
  const meet = (next: number): void => {
    if (seen[next]) return;
    seen[next] = 1;
    count++;
    stack.push(next);
  };
  while (stack.length) each(stack.pop()!, meet);
  for (const node of starts) seen[node] = 0;
  const found = new Int32Array(count);
  let place = 0;
  for (let node = 0; node < seen.length; node++) if (seen[node]) found[place++] = node;
  return found;
}

/** By node 1 where it lies on a way from some nodes to some ends, 2 where all ways lead through it, else 0. */
export function ways(model: Model, from: readonly number[], ends: readonly number[]): Uint8Array {
  const { count } = model.nodes;
  const out = consumers(model);
  const { to } = model.edges;
  const found = new Uint8Array(count);
  for (const node of [...descendants(model, from), ...from]) found[node] = 1;
  const above = new Uint8Array(count);
  for (const node of [...ancestors(model, ends), ...ends]) above[node] = 1;
  for (let node = 0; node < count; node++) found[node] &= above[node];
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
