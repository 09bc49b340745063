/** Which modules are open after one asks for it. */

import type { Shown } from "./graph/shown.ts";
import type { Selected } from "./state.ts";
import { scopeOf } from "./draw/sums.ts";

/** With this many nodes everything open is no picture any more, and takes long. */
export function allOpened(shown: Shown): Set<number> {
  return new Set(Array.from({ length: shown.scopes.count - 1 }, (_, at) => at + 1));
}

export function openedTo(shown: Shown, depth: number): Set<number> {
  const { parent, count } = shown.scopes;
  const opened = new Set<number>();
  const levels = new Int32Array(count).fill(-1);
  levels[0] = 0;
  const way: number[] = [];
  for (let scope = 0; scope < count; scope++) {
    for (let at = scope; levels[at] < 0; at = parent[at]) way.push(at);
    while (way.length > 0) {
      const at = way.pop() ?? 0;
      levels[at] = levels[parent[at]] + 1;
    }
    if (scope > 0 && levels[scope] <= depth) opened.add(scope);
  }
  return opened;
}

/** The scopes around what is selected, innermost first. */
export function around(shown: Shown, selected: Selected): number[] {
  const { model, scopes } = shown;
  const starts: number[] = [];
  if (selected.kind === "node") starts.push(scopeOf(model, shown, selected.at));
  else if (selected.kind === "module") starts.push(scopes.parent[selected.at]);
  else if (selected.kind === "cut") {
    const { at, into, scope } = model.cuts[selected.at];
    for (const node of [at, into]) if (node >= 0) starts.push(scopeOf(model, shown, node));
    if (starts.length === 0) starts.push(scope);
  } else if (selected.kind === "change") for (const node of model.changes[selected.at].nodes.slice(0, 20)) starts.push(scopeOf(model, shown, node));
  const found = new Set<number>();
  for (const start of starts) for (let at = start; at > 0; at = scopes.parent[at]) found.add(at);
  return [...found];
}

/** The opened ones with a scope toggled; what lies in a closed one stays remembered as it was. */
export function toggled(opened: ReadonlySet<number>, scope: number): Set<number> {
  const next = new Set(opened);
  if (!next.delete(scope)) next.add(scope);
  return next;
}
