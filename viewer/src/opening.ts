/** Which modules are open after one asks for it. */

import type { Shown } from "./graph/shown.ts";
import type { Selected } from "./state.ts";
import { statuses } from "./data/model.ts";
import { type Sums, scopeOf, sharedStatus } from "./draw/sums.ts";
import { nodesOf } from "./draw/trail.ts";
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
  return openUpTo(shown, deepest);
}

export function openUpTo(shown: Shown, most: number): Set<number> {
  const opened = new Set<number>();
  depths(shown.scopes.parent).forEach((depth, scope) => depth > 0 && depth <= most && opened.add(scope));
  return opened;
}

/** The modules of a diff that contain a change; one that was added or removed whole stays closed. `sums` are by shown scope. */
export function openChanged(shown: Shown, sums: Sums): Set<number> {
  const { parent } = shown.scopes;
  const depth = depths(shown.scopes.parent);
  const opened = new Set<number>([0]);
  const mixed: number[] = [];
  for (let scope = 1; scope < shown.scopes.count; scope++) {
    const same = sums.byStatus[scope * statuses.length];
    if (same < sums.nodes[scope] && !sharedStatus(sums, scope)) mixed.push(scope);
  }
  for (const scope of mixed.sort((one, other) => depth[one] - depth[other]))
    if (opened.size < mostChanged && opened.has(parent[scope])) opened.add(scope);
  return opened;
}

/** The scopes around the selection, innermost first. */
export function scopesAround(shown: Shown, selected: Selected): number[] {
  const { kind, at } = selected;
  const { model, scopes } = shown;
  const outward = (scope: number): number[] => {
    const way: number[] = [];
    for (let each = scope; each > 0; each = scopes.parent[each]) way.push(each);
    return way;
  };
  const ofNode = (node: number): number[] => outward(scopeOf(model, shown, node));
  const ofModule = (scope: number): number[] => outward(scopes.parent[scope]);
  if (kind === "node") return ofNode(at);
  if (kind === "module") return ofModule(scopes.drawn(at));
  if (kind === "cut") {
    const nodes = nodesOf(shown, selected);
    return nodes.length > 0 ? nodes.flatMap(ofNode) : outward(model.cuts[at].scope);
  }
  if (kind === "none") return [];
  const { nodes, scopes: modules } = model.changes[at];
  if (modules.length > 0) return ofModule(modules[0]);
  if (nodes.length < 2) return nodes.flatMap(ofNode);
  // Of several nodes the innermost scope that holds all of them is seen.
  const common = nodes.map(ofNode).reduce((all, way) => {
    const held = new Set(way);
    return all.filter((scope) => held.has(scope));
  });
  return common.slice(1);
}

/** The shown modules that represent some modules of the model. */
export function modulesDrawnFor({ scopes }: Shown, isOne: (module: number) => boolean): number[] {
  return [...scopes.of.keys()].filter((scope) => scope > 0 && !scopes.isRun(scope) && scopes.drawn(scope) === scope && isOne(scopes.of[scope]));
}

/** The open scopes with some more and those around them, or without them. */
export function setOpen(opened: ReadonlySet<number>, parent: Int32Array, scopes: readonly number[], isOpen: boolean): Set<number> {
  const next = new Set(opened);
  for (const scope of scopes)
    if (isOpen) for (let around = scope; around > 0; around = parent[around]) next.add(around);
    else next.delete(scope);
  return next;
}

/** The open scopes with one toggled; the state inside of a closed one is remembered. */
export function toggleScope(opened: ReadonlySet<number>, scope: number): Set<number> {
  const next = new Set(opened);
  if (!next.delete(scope)) next.add(scope);
  return next;
}
