/** Which modules are open after one asks for it. */

import type { Shown } from "./graph/shown.ts";
import type { Selected } from "./state.ts";
import { statuses } from "./data/model.ts";
import { type Sums, scopeOf } from "./draw/sums.ts";
import { depths } from "./graph/columns.ts";

/** With more boxes than this a picture of all says nothing, and takes its time. */
const mostOpened = 20_000;
const mostChanged = 40;

/** All modules, or as deep as they can be seen at once. */
export function allOpened(shown: Shown): Set<number> {
  const depth = depths(shown.scopes.parent);
  const wide: number[] = [];
  for (let node = 0; node < shown.host.length; node++) {
    if (shown.host[node] !== node) continue;
    const at = depth[shown.scope[node]];
    wide[at] = (wide[at] ?? 0) + 1;
  }
  let deepest = 0;
  for (let boxes = 0; deepest < wide.length; deepest++) {
    boxes += wide[deepest] ?? 0;
    if (boxes > mostOpened) break;
  }
  return openedTo(shown, deepest);
}

export function openedTo(shown: Shown, most: number): Set<number> {
  const opened = new Set<number>();
  depths(shown.scopes.parent).forEach((depth, scope) => depth > 0 && depth <= most && opened.add(scope));
  return opened;
}

/** The modules of a diff in which something changed; one that came or went whole stays closed. `sums` are of what is shown. */
export function changedOpened(shown: Shown, sums: Sums): Set<number> {
  const { parent } = shown.scopes;
  const depth = depths(shown.scopes.parent);
  const opened = new Set<number>([0]);
  const mixed: number[] = [];
  for (let scope = 1; scope < shown.scopes.count; scope++) {
    const same = sums.byStatus[scope * statuses.length];
    if (same < sums.nodes[scope] && !shared(sums, scope)) mixed.push(scope);
  }
  for (const scope of mixed.sort((one, other) => depth[one] - depth[other]))
    if (opened.size < mostChanged && opened.has(parent[scope])) opened.add(scope);
  return opened;
}

function shared(sums: Sums, scope: number): boolean {
  const all = sums.byStatus.subarray(scope * statuses.length + 1, (scope + 1) * statuses.length);
  return all.includes(sums.nodes[scope]);
}

/** The scopes around what is selected, innermost first. */
export function around(shown: Shown, selected: Selected): number[] {
  const { model, scopes } = shown;
  const starts: number[] = [];
  if (selected.kind === "node") starts.push(scopeOf(model, shown, selected.at));
  else if (selected.kind === "module") starts.push(scopes.parent[shown.scopes.drawn(selected.at)]);
  else if (selected.kind === "cut") {
    const { at, into, scope } = model.cuts[selected.at];
    for (const node of [at, into]) if (node >= 0) starts.push(scopeOf(model, shown, node));
    if (starts.length === 0) starts.push(scope);
  } else if (selected.kind === "change") {
    const { nodes, scopes: modules } = model.changes[selected.at];
    if (modules.length > 0) starts.push(scopes.parent[modules[0]]);
    else if (nodes.length > 1) starts.push(scopes.parent[holder(shown, nodes)] ?? 0);
    else for (const node of nodes) starts.push(scopeOf(model, shown, node));
  }
  const found = new Set<number>();
  for (const start of starts) for (let at = start; at > 0; at = scopes.parent[at]) found.add(at);
  return [...found];
}

/** The innermost scope that holds all the nodes. */
function holder(shown: Shown, nodes: readonly number[]): number {
  const { parent } = shown.scopes;
  const wayTo = (node: number): number[] => {
    const way: number[] = [];
    for (let at = scopeOf(shown.model, shown, node); at >= 0; at = parent[at]) way.push(at);
    return way.reverse();
  };
  let common = wayTo(nodes[0]);
  for (const node of nodes) {
    const way = wayTo(node);
    common = common.filter((scope, at) => way[at] === scope);
  }
  return common[common.length - 1] ?? 0;
}

/** The opened ones with a scope toggled; what lies in a closed one stays remembered as it was. */
export function toggled(opened: ReadonlySet<number>, scope: number): Set<number> {
  const next = new Set(opened);
  if (!next.delete(scope)) next.add(scope);
  return next;
}
