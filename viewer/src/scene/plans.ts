/** The contents of one open scope, without places: its items, the points where lines pass its border, and the bundles of edges between them. */
import { rowsAt } from "../graph/columns.ts";
import { acrossOrder, arrange } from "../layout/arranged.ts";
import type { Arranged } from "../layout/arranged.ts";
import type { Line } from "../layout/layered.ts";
import { holderOf } from "./buckets.ts";
import type { Tree } from "./buckets.ts";
import { nodeLabel, scopeLabel } from "./labels.ts";
import type { Label } from "./labels.ts";

export interface Plan {
  readonly scope: number;
  /** The items; lines join their indices and, after these, those of the border points. */
  readonly items: Int32Array;
  readonly placeOf: ReadonlyMap<number, number>;
  readonly labels: readonly Label[];
  /** By border point whether lines come in there. */
  readonly ports: readonly ("in" | "out")[];
  /** The border point of a line of the scope around, by its place there; a line that is only marked has none. */
  readonly portOf: ReadonlyMap<number, number>;
  readonly lines: readonly Line[];
  /** By line its edges. */
  readonly edges: readonly number[][];
  /** The line between two places. */
  readonly between: ReadonlyMap<number, number>;
  readonly arranged: Arranged;
}

/** More border points than this on a side are one. */
const mostPorts = 32;

export function planOf(tree: Tree, scope: number, around: Plan | undefined): Plan {
  const { children, scopesFrom, within, fromItem, toItem, shown } = tree;
  const items = rowsAt(children, scope);
  const placeOf = new Map<number, number>();
  items.forEach((item, place) => placeOf.set(item, place));
  const ports: ("in" | "out")[] = [];
  const portOf = new Map<number, number>();
  const pairs = new Map<number, number>();
  const lines: { from: number; to: number; weight: number }[] = [];
  const edges: number[][] = [];
  for (const wire of rowsAt(within, scope)) {
    add(placeOf.get(fromItem[wire])!, placeOf.get(toItem[wire])!, wire);
  }
  if (around) addBorder(around, around.placeOf.get(scopesFrom + scope)!);
  const borders = [...Array<undefined>(items.length).fill(undefined), ...ports];
  return {
    scope,
    items,
    placeOf,
    labels: Array.from(items, (item) => labelOf(tree, item)),
    ports,
    portOf,
    lines,
    edges,
    between: pairs,
    arranged: arrange(borders, lines),
  };

  function add(from: number, to: number, wire: number): void {
    const key = pairKey(from, to);
    const line = pairs.get(key);
    if (line === undefined) {
      pairs.set(key, lines.length);
      lines.push({ from, to, weight: 1 });
      edges.push([wire]);
    } else {
      lines[line].weight++;
      edges[line].push(wire);
    }
  }

  /** The points of each side stand in the order of their lines outside, so that lines do not cross at the border. */
  function addBorder(outer: Plan, own: number): void {
    for (const side of ["in", "out"] as const) {
      acrossOrder(outer.arranged, own, side).forEach((line, rank) => {
        if (rank < mostPorts) ports.push(side);
        const port = items.length + ports.length - 1;
        portOf.set(line, port);
        for (const wire of outer.edges[line]) {
          const place = placeOf.get(itemUnder(tree, scope, side === "in" ? shown.wires.to[wire] : shown.wires.from[wire]))!;
          if (side === "in") add(port, place, wire);
          else add(place, port, wire);
        }
      });
    }
  }
}

/** Whether a line goes on within the scopes that it joins. */
export function passes({ arranged }: Plan, line: number): boolean {
  return !arranged.marks[line] && !arranged.turned[line];
}

export function pairKey(from: number, to: number): number {
  return from * 0x4000000 + to;
}

/** The item of a scope that holds an inner one. */
export function itemUnder({ shown, scopesFrom }: Tree, scope: number, inner: number): number {
  let item = inner;
  for (let above = holderOf(shown, inner); above !== scope; above = shown.scopes.parent[above]) item = scopesFrom + above;
  return item;
}

export function labelOf(tree: Tree, item: number): Label {
  return item < tree.scopesFrom ? nodeLabel(tree, item) : scopeLabel(tree, item - tree.scopesFrom);
}
