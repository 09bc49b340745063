/** Which modules are open when a page is first seen: as many as can be read in the window. */
import { listOf, rowsAt } from "../graph/columns.ts";
import type { Tree } from "./buckets.ts";
import type { Opened } from "./compose.ts";

const mostBoxes = 60;
const mostTried = 40;
/** Below this scale text can no longer be read. */
const leastScale = 0.6;

export function firstOpened(tree: Tree, open: (opened: ReadonlySet<number>) => Opened, width: number, height: number): Set<number> {
  const { shown, scopesFrom, children } = tree;
  const { scopes } = shown;
  let opened = new Set([0]);
  const childScopes = (scope: number): number[] =>
    Array.from(rowsAt(children, scope))
      .filter((item) => item >= scopesFrom)
      .map((item) => item - scopesFrom);
  const size = (scope: number): number => children.first[scope + 1] - children.first[scope];
  let boxes = size(0);
  let level = [0];
  let tried = 0;
  while (level.length) {
    const inner: number[] = [];
    for (const group of alikeGroups(level.flatMap(childScopes))) {
      // Equal modules open together or not at all.
      const more = group.reduce((sum, scope) => sum + size(scope) - 1, 0);
      // A run of thousands is a choice of where to look; opened it would only push the others away.
      if (boxes + more > mostBoxes || (scopes.isRun(group[0]) && scopes.times[group[0]] === 1)) continue;
      // A frame around one operation says less than the box of the module.
      if (group.every((scope) => size(scope) === 1 && !childScopes(scope).length)) continue;
      if (tried++ >= mostTried) return opened;
      const wider = new Set([...opened, ...group]);
      const root = open(wider);
      if (Math.min(width / root.layout.width, height / root.layout.height) < leastScale) continue;
      opened = wider;
      boxes += more;
      inner.push(...group);
    }
    level = inner;
  }
  return opened;

  function alikeGroups(found: readonly number[]): number[][] {
    const groups = new Map<number, number[]>();
    for (const scope of found) {
      const first = shown.model.scopes.alike[scopes.of[scope]];
      listOf(groups, first).push(scope);
    }
    return [...groups.values()];
  }
}
