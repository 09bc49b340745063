/** A module with very many children shows them in runs that open one by one: nobody reads thousands of boxes at once. */
import { groupByKey, rowsAt } from "./columns.ts";
import { roles } from "../data/model.ts";
import type { Model } from "../data/model.ts";
import type { Wires } from "./wiring.ts";

/** More children than this are put into runs. */
export const mostChildren = 1000;
const runLength = 500;
const mostRuns = 40;
const mostBeside = 200;

const functionRole = roles.indexOf("function");

/**
 * Puts the children of large scopes into runs of about 500, in the order of the file, and runs into runs of runs. Changes `scopeOf` and `parent`;
 * new scopes get the numbers from `parent.length` on. A node that feeds several runs (a shared weight, an input) stays beside them while these are few.
 */
export function runs(model: Model, scopeOf: Int32Array, boxed: Int32Array, parent: number[], wires: Wires): { parent: number; from: number; to: number }[] {
  const made: { parent: number; from: number; to: number }[] = [];
  const nodes = model.nodes.count;
  const counts = new Int32Array(parent.length);
  for (let node = 0; node < nodes; node++) if (boxed[node]) counts[scopeOf[node]]++;
  // By item its first node, -1 of a scope that has none.
  const first = Int32Array.from({ length: nodes + parent.length }, (_, item) => (item < nodes ? item : -1));
  for (let node = 0; node < nodes; node++) {
    for (let scope = scopeOf[node]; scope > 0 && first[nodes + scope] < 0; scope = parent[scope]) {
      first[nodes + scope] = node;
      counts[parent[scope]]++;
    }
  }
  const large = new Set<number>();
  for (let scope = 0; scope < counts.length; scope++) if (counts[scope] > mostChildren) large.add(scope);
  if (!large.size) return made;
  const scopes = parent.length;
  const keys = new Int32Array(nodes + scopes).fill(-1);
  for (let node = 0; node < nodes; node++) if (boxed[node] && large.has(scopeOf[node])) keys[node] = scopeOf[node];
  for (let scope = 1; scope < scopes; scope++) if (first[nodes + scope] >= 0 && large.has(parent[scope])) keys[nodes + scope] = parent[scope];
  const children = groupByKey(keys, scopes);
  const lines = linesOf(large, keys, scopeOf, parent, wires, nodes);
  const place = new Int32Array(nodes + scopes);
  for (const scope of large) cut(scope, rowsAt(children, scope), lines.get(scope)!);
  return made;

  /** `pairs` are the items at both ends of its lines. */
  function cut(scope: number, items: Int32Array, pairs: readonly number[]): void {
    items.forEach((item, number) => (place[item] = number));
    const [tails, heads] = [0, 1].map((end) => pairs.filter((_, at) => at % 2 === end).map((item) => place[item]));
    // Nodes stand after their inputs.
    const order = Array.from(items.keys()).sort((one, other) => first[items[one]] - first[items[other]]);
    const fed = new Uint8Array(items.length);
    for (const head of heads) fed[head] = 1;
    const source = (number: number): boolean => !fed[number] && items[number] < nodes && model.nodes.role[items[number]] !== functionRole;
    const run = new Int32Array(items.length).fill(-1);
    let placed = 0;
    for (const number of order) if (!source(number)) run[number] = Math.floor(placed++ / runLength);
    const out = groupByKey(tails, items.length);
    const beside: number[] = [];
    for (const number of order) {
      if (!source(number)) continue;
      let [least, most] = [0x7fffffff, -1];
      for (const line of rowsAt(out, number)) {
        const consumer = run[heads[line]];
        least = Math.min(least, consumer);
        most = Math.max(most, consumer);
      }
      if (most < 0) [least, most] = [0, 0];
      run[number] = least;
      if (least !== most) beside.push(number);
    }
    if (beside.length <= mostBeside) for (const number of beside) run[number] = -1;
    let count = Math.max(1, Math.ceil(placed / runLength));
    // Without functions there is nothing to follow: all nodes, in the order of the file.
    if (!placed) {
      count = Math.ceil(items.length / runLength);
      order.forEach((number, rank) => (run[number] = Math.floor(rank / runLength)));
    }
    const groups: number[][] = [];
    let width = 1;
    for (let runsLeft = count; runsLeft > mostRuns; runsLeft = Math.ceil(runsLeft / 20)) width *= 20;
    // Outer runs first, so that a scope stands after its parent.
    for (let size = width; size >= 1; size = size === 1 ? 0 : size / 20) {
      const level: number[] = [];
      for (let from = 0; from < count; from += size) {
        level.push(parent.length);
        parent.push(size === width ? scope : groups[groups.length - 1][Math.floor(from / (size * 20))]);
        made.push({ parent: scope, from: from * runLength + 1, to: Math.min((from + size) * runLength, placed || items.length) });
      }
      groups.push(level);
    }
    const last = groups[groups.length - 1];
    items.forEach((item, number) => {
      if (run[number] < 0) return;
      if (item < nodes) scopeOf[item] = last[run[number]];
      else parent[item - nodes] = last[run[number]];
    });
  }
}

/** For each of some scopes the edges between its children, as the two items of each one after the other. */
function linesOf(
  large: ReadonlySet<number>,
  keys: Int32Array,
  scopeOf: Int32Array,
  parent: readonly number[],
  wires: Wires,
  nodes: number,
): Map<number, number[]> {
  const lines = new Map<number, number[]>();
  for (const scope of large) lines.set(scope, []);
  for (let wire = 0; wire < wires.count; wire++) {
    // Few modules lie within each other, so the ends have few pairs of modules around them.
    for (let to = wires.to[wire]; to !== nodes; to = nodes + above(to)) {
      if (keys[to] < 0) continue;
      for (let from = wires.from[wire]; from !== nodes; from = nodes + above(from)) {
        if (keys[from] !== keys[to] || from === to) continue;
        lines.get(keys[to])!.push(from, to);
      }
    }
  }
  return lines;

  function above(item: number): number {
    return item < nodes ? scopeOf[item] : parent[item - nodes];
  }
}
