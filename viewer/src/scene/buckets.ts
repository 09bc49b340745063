/** The tree of a graph, and its edges by the lowest scope that holds both ends. Made once for each state of the switches. */
import { roles, statuses } from "../data/model.ts";
import { depths, groupByKey } from "../graph/columns.ts";
import type { Groups } from "../graph/columns.ts";
import type { Shown } from "../graph/shown.ts";

const removed = statuses.indexOf("removed");
const parameterRole = roles.indexOf("parameter");

/** An item is a node, or a scope counted on after all nodes. */
export interface Tree {
  readonly shown: Shown;
  /** The number of the first scope among items. */
  readonly scopesFrom: number;
  /** The items of each scope that are drawn as boxes or frames. */
  readonly children: Groups;
  /** Edges by the lowest scope that holds both ends. */
  readonly within: Groups;
  /** By edge the items of that scope that hold its ends. */
  readonly fromItem: Int32Array;
  readonly toItem: Int32Array;
  /** By node with parameters written in its box those. */
  readonly inline: Groups;
  /** By scope of the model its parameters, where they are told with it. */
  readonly own: Groups;
  /** By scope of the model how many of its parts are drawn. */
  readonly copies: Int32Array;
  /** The dtype of most nodes, a text. */
  readonly dtype: number;
  /** For each scope its nodes, those that a diff marks, one whose value leaves it (-1 if none does) and whether others do. */
  readonly nodes: Int32Array;
  readonly changed: Int32Array;
  readonly gives: Int32Array;
  readonly givesMore: Uint8Array;
}

/** The scope that contains the box of an item. */
export function holderOf({ model: { nodes }, scope, scopes }: Shown, item: number): number {
  return item < nodes.count ? scope[item] : scopes.parent[item - nodes.count];
}

export function treeOf(shown: Shown): Tree {
  const { model, scopes, scope, host, wires } = shown;
  const scopesFrom = model.nodes.count;
  const { parent } = scopes;
  const depth = depths(parent);
  const nodes = new Int32Array(scopes.count);
  const changed = new Int32Array(scopes.count);
  const keys = new Int32Array(scopesFrom + scopes.count).fill(-1);
  const inlineOf = new Int32Array(scopesFrom).fill(-1);
  for (let node = 0; node < scopesFrom; node++) {
    if (host[node] < 0) continue;
    const isChanged = model.nodes.status[node] ? 1 : 0;
    for (let above = scope[node]; above >= 0; above = parent[above]) {
      nodes[above]++;
      changed[above] += isChanged;
    }
    if (host[node] === node) keys[node] = scope[node];
    else inlineOf[node] = host[node];
  }
  for (let inner = 1; inner < scopes.count; inner++) if (nodes[inner] || shown.lost.has(inner)) keys[scopesFrom + inner] = parent[inner];
  const copies = new Int32Array(scopes.count);
  for (let inner = 1; inner < scopes.count; inner++) if (nodes[inner]) copies[scopes.of[inner]]++;
  const gives = new Int32Array(scopes.count).fill(-1);
  const givesMore = new Uint8Array(scopes.count);
  const lowest = new Int32Array(wires.count);
  const fromItem = new Int32Array(wires.count);
  const toItem = new Int32Array(wires.count);
  for (let wire = 0; wire < wires.count; wire++) {
    const node = wires.from[wire];
    const isGone = wires.status[wire] === removed || node >= scopesFrom;
    let [fromChild, toChild] = [node, wires.to[wire]];
    let [one, other] = [holderOf(shown, node), scope[toChild]];
    while (one !== other) {
      if (depth[one] >= depth[other]) {
        if (gives[one] < 0) gives[one] = isGone ? -1 : node;
        else if (gives[one] !== node && !isGone) givesMore[one] = 1;
        fromChild = scopesFrom + one;
        one = parent[one];
      } else {
        toChild = scopesFrom + other;
        other = parent[other];
      }
    }
    lowest[wire] = one;
    fromItem[wire] = fromChild;
    toItem[wire] = toChild;
  }
  return {
    shown,
    scopesFrom,
    children: groupByKey(keys, scopes.count),
    within: groupByKey(lowest, scopes.count),
    fromItem,
    toItem,
    inline: groupByKey(inlineOf, scopesFrom),
    own: groupByKey(model.nodes.scope.map((own, node) => (shown.switches.layers && model.nodes.role[node] === parameterRole ? own : -1)), model.scopes.count),
    copies,
    dtype: commonest(model.nodes.dtype),
    nodes,
    changed,
    gives,
    givesMore,
  };
}

function commonest(texts: Int32Array): number {
  const counts = new Map<number, number>();
  for (const text of texts) if (text) counts.set(text, (counts.get(text) ?? 0) + 1);
  return [...counts].reduce((best, each) => (each[1] > best[1] ? each : best), [0, 0])[0];
}
