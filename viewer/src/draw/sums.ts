/** What the modules hold, summed from the leaves up once. */

import { type Model, statuses } from "../data/model.ts";

export interface Sums {
  /** Nodes in each scope and below it. */
  readonly nodes: Int32Array;
  /** The same by status: of scope s and status t at s * statuses.length + t. */
  readonly byStatus: Int32Array;
  readonly cuts: Int32Array;
  /** Nodes, cuts and module changes aside: whether anything in the whole graph differs. */
  readonly differs: boolean;
  /** Of each scope the last node in it or below it that a node outside reads, -1 where none is. */
  readonly result: Int32Array;
}

export function sumsOf(model: Model): Sums {
  const { nodes, scopes, edges } = model;
  const wide = statuses.length;
  const all = new Int32Array(scopes.count);
  const byStatus = new Int32Array(scopes.count * wide);
  const cuts = new Int32Array(scopes.count);
  let differs = model.changes.length > 0;
  for (let node = 0; node < nodes.count; node++) {
    all[nodes.scope[node]]++;
    byStatus[nodes.scope[node] * wide + nodes.status[node]]++;
    if (nodes.status[node] !== 0) differs = true;
  }
  for (const cut of model.cuts) {
    const scope = cut.scope >= 0 ? cut.scope : cut.into >= 0 ? nodes.scope[cut.into] : cut.at >= 0 ? nodes.scope[cut.at] : 0;
    cuts[scope]++;
  }
  for (let scope = scopes.count - 1; scope > 0; scope--) {
    const parent = scopes.parent[scope];
    all[parent] += all[scope];
    cuts[parent] += cuts[scope];
    for (let status = 0; status < wide; status++) byStatus[parent * wide + status] += byStatus[scope * wide + status];
  }

  const depth = depths(model);
  const result = new Int32Array(scopes.count).fill(-1);
  for (let edge = 0; edge < edges.count; edge++) {
    const from = edges.from[edge];
    let inner = nodes.scope[from];
    let other = nodes.scope[edges.to[edge]];
    while (depth[other] > depth[inner]) other = scopes.parent[other];
    while (inner !== other) {
      if (result[inner] < from) result[inner] = from;
      inner = scopes.parent[inner];
      while (depth[other] > depth[inner]) other = scopes.parent[other];
    }
  }
  return { nodes: all, byStatus, cuts, differs, result };
}

export function depths(model: Model): Int32Array {
  const depth = new Int32Array(model.scopes.count);
  for (let scope = 1; scope < model.scopes.count; scope++) depth[scope] = depth[model.scopes.parent[scope]] + 1;
  return depth;
}

/** The path of a scope: "encoder.layer.0", empty of the root. */
export function pathOf(model: Model, scope: number): string {
  const parts: string[] = [];
  for (let at = scope; at > 0; at = model.scopes.parent[at]) parts.push(model.texts[model.scopes.name[at]]);
  return parts.reverse().join(".");
}
