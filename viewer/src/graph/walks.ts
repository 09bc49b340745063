/** What a node depends on, what depends on it, and a way between two: along all edges of the file, also those of hidden nodes. */
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

/** The nodes of a shortest way along the flow, both ends among them; empty where none leads there. */
export function path(model: Model, from: number, to: number): Int32Array {
  const out = consumers(model);
  const heads = model.edges.to;
  const before = new Int32Array(model.nodes.count).fill(-1);
  const queue = [from];
  before[from] = from;
  for (let place = 0; place < queue.length && before[to] < 0; place++) {
    const node = queue[place];
    for (const edge of rowsAt(out, node)) {
      const next = heads[edge];
      // Nodes stand after what they take from, so no way leads back.
      if (before[next] >= 0 || next > to) continue;
      before[next] = node;
      queue.push(next);
    }
  }
  if (before[to] < 0) return new Int32Array(0);
  const way: number[] = [];
  for (let node = to; node !== from; node = before[node]) way.push(node);
  way.push(from);
  return Int32Array.from(way.reverse());
}
