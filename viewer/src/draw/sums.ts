/** The contents of the modules, summed once from the leaves up. */

import { type Model, statuses } from "../data/model.ts";
import { depths } from "../graph/columns.ts";
import type { Shown } from "../graph/shown.ts";

export interface Sums {
  /** Nodes in each scope and below it. */
  readonly nodes: Int32Array;
  /** The same by status: of scope s and status t at s * statuses.length + t. */
  readonly byStatus: Int32Array;
  readonly cuts: Int32Array;
  /** Whether anything in the whole graph differs. */
  readonly differs: boolean;
}

/** Sums by module of the graph, or by shown scope, where a part of a module counts only its own contents. */
export function sumsOf(model: Model, shown: Shown | null = null): Sums {
  const { nodes } = model;
  const { count, parent } = shown?.scopes ?? model.scopes;
  const wide = statuses.length;
  const all = new Int32Array(count);
  const byStatus = new Int32Array(count * wide);
  const cuts = new Int32Array(count);
  const differs = model.changes.length > 0 || nodes.status.some((status) => status > 0);
  // Only changes are needed by shown scope.
  if (shown !== null && !differs) return { nodes: all, byStatus, cuts, differs };
  for (let node = 0; node < nodes.count; node++) {
    const scope = scopeOf(model, shown, node);
    all[scope]++;
    byStatus[scope * wide + nodes.status[node]]++;
  }
  for (const cut of model.cuts) {
    const node = cut.into >= 0 ? cut.into : cut.at;
    if (cut.status !== 2) cuts[node >= 0 ? scopeOf(model, shown, node) : Math.max(0, cut.scope)]++;
  }
  // A scope after those of the model may contain them, so the order is by depth.
  const depth = depths(parent);
  for (const scope of depth.map((_, at) => at).sort((one, other) => depth[other] - depth[one])) {
    if (scope === 0) continue;
    const above = parent[scope];
    all[above] += all[scope];
    cuts[above] += cuts[scope];
    for (let status = 0; status < wide; status++) byStatus[above * wide + status] += byStatus[scope * wide + status];
  }
  return { nodes: all, byStatus, cuts, differs };
}

/** The shown scope that a node counts for, even if a switch hides the node. */
export function scopeOf(model: Model, shown: Shown | null, node: number): number {
  const instead = shown === null ? -1 : shown.instead[node];
  return shown !== null && instead >= 0 && shown.host[instead] >= 0 ? shown.scope[shown.host[instead]] : model.nodes.scope[node];
}

/** Of each module the last node in it that a node outside reads, -1 where none is. */
export function resultsOf(model: Model): Int32Array {
  const { nodes, scopes, edges } = model;
  const depth = depths(model.scopes.parent);
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
  return result;
}

/** The status that all nodes of a scope share, else 0. */
export function sharedStatus(sums: Sums, scope: number): number {
  for (let status = 1; status < statuses.length; status++) {
    if (sums.nodes[scope] > 0 && sums.byStatus[scope * statuses.length + status] === sums.nodes[scope]) return status;
  }
  return 0;
}
