/** Laid out scopes → everything in it at its place in one coordinate system. */
import { statuses } from "../data/model.ts";
import { listOf, rowsAt } from "../graph/columns.ts";
import { holderOf } from "./buckets.ts";
import type { Tree } from "./buckets.ts";
import { turnBox, turnWay } from "../layout/turned.ts";
import { straighten, wayAround } from "../layout/routes.ts";
import type { Opened } from "./compose.ts";
import { caption, shapeOn } from "./labels.ts";
import type { Label } from "./labels.ts";
import { itemUnder, pairKey, passes } from "./plans.ts";
import type { Frame, Scene, SceneBox, SceneLine } from "./scene.ts";
import { stubsOf } from "./stubs.ts";

const margin = 20;
const changed = statuses.indexOf("changed");

/** An opened scope with the place of its layout's (0, 0). */
interface Put {
  readonly opened: Opened;
  readonly x: number;
  readonly y: number;
}

export function drawTree(tree: Tree, root: Opened, opened: ReadonlySet<number>): Scene {
  const { shown, scopesFrom } = tree;
  const { across } = shown.switches;
  const frames: Frame[] = [];
  const boxes: SceneBox[] = [];
  const boxOfItem = new Map<number, number>();
  const puts: Put[] = [{ opened: root, x: margin, y: margin }];
  const depths: number[] = [0];
  const putOf = new Map<Opened, Put>();
  for (let next = 0; next < puts.length; next++) {
    const { opened: own, x, y } = puts[next];
    putOf.set(own, puts[next]);
    const { plan, layout, inner } = own;
    plan.items.forEach((item, place) => {
      const [left, top] = [x + layout.x[place], y + layout.y[place]];
      const open = inner.get(place);
      if (open) {
        const scope = item - scopesFrom;
        const { width, height } = open;
        const depth = depths[next] + 1;
        const frame = { x: left, y: top, width, height, scope, depth, caption: caption(shown, scope) };
        frames.push(across ? turnBox(frame) : frame);
        puts.push({ opened: open, x: left + open.left, y: top + open.top });
        depths.push(depth);
        return;
      }
      boxOfItem.set(item, boxes.length);
      boxes.push(across ? boxAt(tree, item, top, left, plan.labels[place]) : boxAt(tree, item, left, top, plan.labels[place]));
    });
  }
  const lines: SceneLine[] = [];
  for (const put of puts) linesOf(tree, put, opened, putOf, boxOfItem, boxes, lines);
  const boxOf = (node: number): number => {
    const stands = shown.instead[node];
    if (!(stands >= 0)) return -1;
    return boxOfItem.get(visibleItem(tree, opened, shown.host[stands])) ?? -1;
  };
  const boxOfScope = (scope: number): number => boxOfItem.get(visibleItem(tree, opened, scopesFrom + scope)) ?? -1;
  const upright = { width: root.layout.width + 2 * margin, height: root.layout.height + 2 * margin };
  const { width, height } = across ? turnBox(upright) : upright;
  // A gradient that the root lacks is marked at the outer border.
  const whole = { x: 0, y: 0, width, height: height - margin, scope: 0, depth: 0, caption: "" };
  const stubs = stubsOf(shown, boxes, [...frames, whole], boxOf, boxOfScope);
  placeWords(lines, across, new Set(stubs.flatMap(({ box, above }) => (above ? [] : [box]))));
  return {
    width,
    height,
    across,
    frames,
    boxes,
    lines,
    stubs,
    boxOf,
    boxOfScope,
  };
}

function boxAt({ shown, scopesFrom, inline, changed }: Tree, item: number, x: number, y: number, { lines, width, height }: Label): SceneBox {
  const scope = item - scopesFrom;
  const place = { x, y, width, height, label: lines };
  if (scope >= 0) return { ...place, node: -1, scope, times: shown.scopes.times[scope], inline: [], changed: changed[scope] };
  return { ...place, node: item, scope: -1, times: 1, inline: Array.from(rowsAt(inline, item)), changed: shown.model.nodes.status[item] ? 1 : 0 };
}

/** The item that is drawn as a box and holds one. */
export function visibleItem(tree: Tree, opened: ReadonlySet<number>, inner: number): number {
  const { shown, scopesFrom } = tree;
  let item = inner;
  for (let above = holderOf(shown, inner); above > 0; above = shown.scopes.parent[above]) if (!opened.has(above)) item = scopesFrom + above;
  return item;
}

/** The lines of one open scope between its items; those that go on in open items are drawn through to their boxes there. */
function linesOf(
  tree: Tree,
  { opened: own, x, y }: Put,
  opened: ReadonlySet<number>,
  putOf: ReadonlyMap<Opened, Put>,
  boxOfItem: ReadonlyMap<number, number>,
  boxes: readonly SceneBox[],
  lines: SceneLine[],
): void {
  const { plan, layout, inner } = own;
  const { wires, switches: { across } } = tree.shown;
  plan.lines.forEach((line, number) => {
    // A line that passes the border is drawn with that of the scope around.
    if (line.from >= plan.items.length || line.to >= plan.items.length) return;
    const way = moveWay(layout.ways[number], x, y);
    const isMarked = plan.arranged.marks[number] === 1;
    const outOf = inner.get(line.from);
    const into = inner.get(line.to);
    if (!outOf && !into) {
      const from = boxOfItem.get(plan.items[line.from])!;
      const to = boxOfItem.get(plan.items[line.to])!;
      const edges = plan.edges[number];
      add(from, to, edges, way, isMarked);
      return;
    }
    const pairs = new Map<number, number[]>();
    for (const wire of plan.edges[number]) {
      const from = outOf ? visibleItem(tree, opened, wires.from[wire]) : plan.items[line.from];
      const to = into ? visibleItem(tree, opened, wires.to[wire]) : plan.items[line.to];
      const key = pairKey(boxOfItem.get(from)!, boxOfItem.get(to)!);
      listOf(pairs, key).push(wire);
    }
    for (const [key, edges] of pairs) {
      const [from, to] = [Math.floor(key / 0x4000000), key % 0x4000000];
      const whole = passes(plan, number) ? throughBorders(number, edges[0], way, outOf, into) : undefined;
      add(from, to, edges, whole ?? around(boxes[from], boxes[to]), !whole);
    }
  });

  function around(from: SceneBox, to: SceneBox): Float64Array {
    const ends = across ? [turnBox(from), turnBox(to)] : [from, to];
    return wayAround(ends[0], ends[1], x, x + layout.width);
  }

  function add(from: number, to: number, edges: readonly number[], way: Float64Array, marked: boolean): void {
    const words = marked || !tree.shown.switches.layers ? "" : shapeOn(tree, edges);
    lines.push({ from, to, weight: edges.length, way: across ? turnWay(way) : way, marked, kind: wires.kind[edges[0]], words, at: 0, isLeft: false, status: statusOf(edges) });
  }

  function statusOf(edges: readonly number[]): number {
    const status = wires.status[edges[0]];
    return edges.every((wire) => wires.status[wire] === status) ? status : changed;
  }

  /** The way within opened scopes on both sides, and between them; nothing where it is but marks in one of them. */
  function throughBorders(line: number, wire: number, middle: Float64Array, outOf?: Opened, into?: Opened): Float64Array | undefined {
    const before = outOf ? inside(outOf, line, wires.from[wire], true) : [];
    const after = into ? inside(into, line, wires.to[wire], false) : [];
    return before && after && straighten([...before.reverse(), middle, ...after].flatMap((part) => [...part]));
  }

  function inside(start: Opened, line: number, node: number, outward: boolean): Float64Array[] | undefined {
    const ways: Float64Array[] = [];
    let outer = line;
    for (let at: Opened | undefined = start; at; ) {
      const { plan: own, layout: places, inner: deeper }: Opened = at;
      const port = own.portOf.get(outer)!;
      const place: number = own.placeOf.get(itemUnder(tree, own.scope, node))!;
      outer = own.between.get(outward ? pairKey(place, port) : pairKey(port, place))!;
      if (!passes(own, outer)) return undefined;
      const put = putOf.get(at)!;
      ways.push(moveWay(places.ways[outer], put.x, put.y));
      at = deeper.get(place);
    }
    return ways;
  }
}

/** Writes the shape that leaves a box once below it, beside the lines that turn away; a different shape stands where it arrives. */
function placeWords(lines: readonly SceneLine[], across: boolean, cut: ReadonlySet<number>): void {
  const first = new Map<number, SceneLine>();
  const turns = new Map<number, number>();
  for (const line of lines) {
    if (line.marked) continue;
    for (let at = across ? 1 : 0; at < line.way.length; at += 2) {
      const aside = line.way[at] - line.way[across ? 1 : 0];
      if (Math.abs(aside) > 2) turns.set(line.from, (turns.get(line.from) ?? 0) | (aside > 0 !== across ? 1 : 2));
    }
    const before = first.get(line.from);
    if (before?.words === line.words) line.words = "";
    else if (line.words && before) {
      line.at = line.way.length - 2;
      line.isLeft = true;
    } else if (line.words) first.set(line.from, line);
  }
  for (const [box, line] of first) line.isLeft = cut.has(box) || turns.get(box) === 1;
}

function moveWay(way: Float64Array, x: number, y: number): Float64Array {
  const there = new Float64Array(way.length);
  for (let place = 0; place < way.length; place += 2) {
    there[place] = way[place] + x;
    there[place + 1] = way[place + 1] + y;
  }
  return there;
}
