/** The edges among nodes that are left, with the rules of the command line's passes: no edge is invented. */
import { flag, roles } from "../data/model.ts";
import type { Model } from "../data/model.ts";

/** Edges in columns, sorted by consumer. */
export interface Wires {
  count: number;
  readonly from: Int32Array;
  readonly to: Int32Array;
  /** The node of the file that the value comes from, where hidden ones stand between. */
  readonly by: Int32Array;
  /** Places in `Edges.kinds` and in `statuses`. */
  readonly kind: Int32Array | Uint8Array;
  readonly status: Int32Array | Uint8Array;
}

const functionRole = roles.indexOf("function");

/** Keeps some of the edges, in their order. */
export function keep(wires: Wires, isKept: (wire: number) => boolean): void {
  const columns = [wires.from, wires.to, wires.by, wires.kind, wires.status];
  let kept = 0;
  for (let wire = 0; wire < wires.count; wire++) {
    if (!isKept(wire)) continue;
    for (const column of columns) column[kept] = column[wire];
    kept++;
  }
  wires.count = kept;
}

/**
 * Finds the nodes to hide: accumulators, and operations with one input that only rearrange it. A node with changes is never hidden.
 */
export function findHidden(model: Model, hideRearranging: boolean, dropAccumulators: boolean): Uint8Array {
  const { count, flags, role, status } = model.nodes;
  const { first, from } = model.edges;
  const found = new Uint8Array(count);
  const asked = (hideRearranging ? flag.rearranges : 0) | (dropAccumulators ? flag.accumulates : 0);
  if (!asked) return found;
  for (let node = 0; node < count; node++) {
    const flags_ = flags[node];
    const isAccumulator = asked & flags_ & flag.accumulates;
    if (!(flags_ & asked) || flags_ & flag.failed) continue;
    // A change of an accumulator is shown at its tensor if that changed in the same way.
    if (status[node] && !(isAccumulator && status[node] === status[from[first[node]]])) continue;
    if (isAccumulator) found[node] = 1;
    else if (role[node] === functionRole && !(flags_ & flag.opaque) && onlyInput(model, node) >= 0) found[node] = 1;
  }
  return found;
}

/** The edge into the one input slot of a node, -1 where there are more slots or none. */
export function onlyInput(model: Model, node: number): number {
  const { first, slot } = model.edges;
  let found = -1;
  for (let edge = first[node]; edge < first[node + 1]; edge++) {
    if (slot[edge] < 0) continue;
    if (found >= 0 || slot[edge] > 0) return -1;
    found = edge;
  }
  return found;
}

/**
 * Returns the node that represents each node (itself if it stays, the node whose value passes through it, or -1), and the edges that are left.
 */
export function rewire(model: Model, gone: Uint8Array): { instead: Int32Array; wires: Wires } {
  const { edges, nodes } = model;
  const instead = new Int32Array(nodes.count);
  // The status of the edges passed through, where one of them is not the same.
  const passed = new Uint8Array(nodes.count);
  for (let node = 0; node < nodes.count; node++) {
    instead[node] = node;
    if (!gone[node]) continue;
    const edge = onlyInput(model, node);
    instead[node] = edge < 0 ? -1 : instead[edges.from[edge]];
    if (edge >= 0) passed[node] = edges.status[edge] || passed[edges.from[edge]];
  }
  const data = edges.kinds.indexOf("data");
  const wires: Wires = { count: edges.count, from: edges.from.slice(), to: edges.to.slice(), by: edges.from.slice(), kind: edges.kind.slice(), status: edges.status.slice() };
  keep(wires, (edge) => {
    const producer = edges.from[edge];
    if (gone[edges.to[edge]] || (gone[producer] && edges.kind[edge] !== data) || instead[producer] < 0) return false;
    wires.from[edge] = instead[producer];
    // The file tells the shape of the first output alone.
    if (edges.output[edge]) wires.by[edge] = -1;
    wires.status[edge] ||= passed[producer];
    return true;
  });
  return { instead, wires };
}
