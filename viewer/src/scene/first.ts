/** Which modules are open when a page is first seen: those with the most in them, as far as the window has room for words that can be read. */
import { listOf, rowsAt } from "../graph/columns.ts";
import type { Tree } from "./buckets.ts";
import type { Opened } from "./compose.ts";
import { isLayer } from "./labels.ts";

const mostBoxes = 60;
const mostTried = 40;
/** A layer of more operations is no layer to who reads it. */
const mostInLayer = 8;
/** A drawing of fewer modules says too little: the module with most of the graph opens even if it runs off the window, sooner if it represents several. */
const fewest = 6;
const fewestEqual = 12;

/** `width` and `height` are those of the window at the least scale at which words can be read. */
export function firstOpened(tree: Tree, open: (opened: ReadonlySet<number>) => Opened, width: number, height: number): Set<number> {
  const { shown, scopesFrom, children, nodes } = tree;
  const { scopes, switches } = shown;
  let opened = new Set([0]);
  const size = (scope: number): number => children.first[scope + 1] - children.first[scope];
  const weight = (group: readonly number[]): number => group.reduce((sum, scope) => sum + nodes[scope] * scopes.times[scope], 0);
  let boxes = size(0);
  let waiting = groupsIn([0]);
  let modules = waiting.flat().length;
  for (let tried = 0; waiting.length && tried < mostTried; ) {
    const group = waiting.reduce((best, each) => (weight(each) > weight(best) ? each : best));
    waiting = waiting.filter((each) => each !== group);
    // Equal modules open together or not at all.
    const more = group.reduce((sum, scope) => sum + size(scope) - 1, 0);
    // A run of thousands is a choice of where to look; opened it would only push the others away.
    if (boxes + more > mostBoxes || (scopes.isRun(group[0]) && scopes.times[group[0]] === 1)) continue;
    // A frame around one operation says less than the box of the module.
    if (group.every((scope) => isLayer(tree, scope) && size(scope) <= (switches.layers ? mostInLayer : 1))) continue;
    tried++;
    const wider = new Set([...opened, ...group]);
    const { layout } = open(wider);
    const [wide, high] = switches.across ? [layout.height, layout.width] : [layout.width, layout.height];
    // Operations between modules say little, but steps and equal modules at once are many boxes.
    const few = group.length > 1 || scopes.isRun(group[0]) ? boxes : modules;
    const isMost = few < (scopes.times[group[0]] > 1 ? fewestEqual : fewest) && 2 * weight(group) > nodes[0];
    // A drawing longer than the window runs off it along the flow.
    if (switches.across ? high > height || (wide > width && !isMost) : wide > width || (high > height && !isMost)) continue;
    opened = wider;
    boxes += more;
    const inner = groupsIn(group);
    modules += inner.flat().length - group.length;
    waiting.push(...inner);
  }
  // Nor does a frame around one closed module, inner ones first.
  for (const scope of [...opened].reverse()) {
    const inner = rowsAt(children, scope)[0] - scopesFrom;
    if (scope && size(scope) === 1 && scopes.times[inner] === 1 && !opened.has(inner)) opened.delete(scope);
  }
  return opened;

  function groupsIn(found: readonly number[]): number[][] {
    const groups = new Map<number, number[]>();
    for (const scope of found)
      for (const item of rowsAt(children, scope))
        if (item >= scopesFrom && nodes[item - scopesFrom]) listOf(groups, shown.model.scopes.alike[scopes.of[item - scopesFrom]]).push(item - scopesFrom);
    return [...groups.values()];
  }
}
