/** Equal layers of a stack, one of them for all. */
import { grouped } from "./columns.ts";
import type { Model } from "../data/model.ts";
import type { Wires } from "./wiring.ts";

export interface Rolled {
  /** By scope how many equal ones it stands for; 1 for most. */
  readonly times: Int32Array;
  /** What each round hands to the next, as pairs of nodes of the first layer: it would be a cycle and is no edge. */
  readonly rounds: readonly (readonly [from: number, to: number])[];
}

/**
 * Let the first layer of each stack stand for all: `instead` then leads to its nodes, and what took from another layer takes from it.
 * Inner stacks first. A stack whose layers do not match node by node stays as it is.
 */
export function roll(model: Model, instead: Int32Array, wires: Wires): Rolled {
  const { scopes } = model;
  const times = new Int32Array(scopes.count).fill(1);
  const rounds: [number, number][] = [];
  const depth = new Int32Array(scopes.count);
  const levels = new Map<number, Map<number, number[]>>();
  for (let scope = 1; scope < scopes.count; scope++) {
    depth[scope] = depth[scopes.parent[scope]] + 1;
    const first = scopes.alike[scope];
    if (first === scope || scopes.parent[first] !== scopes.parent[scope]) continue;
    let stacks = levels.get(depth[scope]);
    if (!stacks) levels.set(depth[scope], (stacks = new Map()));
    const stack = stacks.get(first);
    if (stack) stack.push(scope);
    else stacks.set(first, [first, scope]);
  }
  for (const level of [...levels.keys()].sort((one, other) => other - one)) {
    const stacks = [...levels.get(level)!.values()];
    for (const [blocks, carried] of rolledLevel(model, instead, wires, stacks)) {
      times[blocks[0]] = blocks.length;
      for (const pair of carried) rounds.push(pair);
    }
  }
  return { times, rounds };
}

function* rolledLevel(
  model: Model,
  instead: Int32Array,
  wires: Wires,
  stacks: readonly number[][],
): Generator<readonly [blocks: readonly number[], carried: [number, number][]]> {
  const { scopes, nodes } = model;
  const numberOf = new Int32Array(scopes.count).fill(-1);
  const blocks = stacks.flat();
  blocks.forEach((scope, number) => (numberOf[scope] = number));
  for (let scope = 1; scope < scopes.count; scope++) {
    if (numberOf[scope] < 0) numberOf[scope] = numberOf[scopes.parent[scope]];
  }
  const blockOf = new Int32Array(nodes.count);
  for (let node = 0; node < nodes.count; node++) blockOf[node] = instead[node] === node ? numberOf[nodes.scope[node]] : -1;
  const members = grouped(blockOf, blocks.length);
  // The exporter found them to be equal node by node in the order of the file.
  const orders = (block: number): Int32Array => members.rows.subarray(members.first[block], members.first[block + 1]);
  const firstOf = new Int32Array(nodes.count).fill(-1);
  const stackOf = new Int32Array(blocks.length).fill(-1);
  let start = 0;
  for (const [number, stack] of stacks.entries()) {
    const first = orders(start);
    let same = true;
    for (let step = 0; step < stack.length && same; step++) {
      const order = orders(start + step);
      same = order.length === first.length;
      for (let place = 0; place < order.length && same; place++) {
        const [one, other] = [first[place], order[place]];
        same = nodes.op[one] === nodes.op[other] && nodes.role[one] === nodes.role[other] && nodes.shape[one] === nodes.shape[other];
        same &&= nodes.status[one] === nodes.status[other];
        firstOf[other] = one;
      }
    }
    if (same) stackOf.fill(number, start, start + stack.length);
    start += stack.length;
  }
  leaveOutOfOrder(wires, blockOf, stackOf, firstOf);
  const carried = stacks.map((): [number, number][] => []);
  apply(instead, wires, blockOf, stackOf, firstOf, carried);
  start = 0;
  for (const [number, stack] of stacks.entries()) {
    if (stackOf[start] >= 0) yield [stack, carried[number]];
    start += stack.length;
  }
}

/** What takes from a layer must stand after the first one, which it will take from; a stack where it does not stays. */
function leaveOutOfOrder(wires: Wires, blockOf: Int32Array, stackOf: Int32Array, firstOf: Int32Array): void {
  const left = new Set<number>();
  for (let wire = 0; wire < wires.count; wire++) {
    const from = wires.from[wire];
    const to = wires.to[wire];
    const stack = blockOf[from] < 0 ? -1 : stackOf[blockOf[from]];
    if (stack < 0 || (blockOf[to] >= 0 && stackOf[blockOf[to]] === stack)) continue;
    if (firstOf[from] >= to) left.add(stack);
  }
  if (left.size) for (let block = 0; block < stackOf.length; block++) if (left.has(stackOf[block])) stackOf[block] = -1;
}

function apply(
  instead: Int32Array,
  wires: Wires,
  blockOf: Int32Array,
  stackOf: Int32Array,
  firstOf: Int32Array,
  carried: readonly [number, number][][],
): void {
  const known = new Set<number>();
  const stand = (node: number): number => (blockOf[node] >= 0 && stackOf[blockOf[node]] >= 0 ? firstOf[node] : node);
  let count = 0;
  for (let wire = 0; wire < wires.count; wire++) {
    const from = stand(wires.from[wire]);
    const to = stand(wires.to[wire]);
    if (to !== wires.to[wire]) {
      const [one, other] = [blockOf[wires.from[wire]], blockOf[wires.to[wire]]];
      const key = from * blockOf.length + to;
      if (one >= 0 && one !== other && stackOf[one] === stackOf[other] && !known.has(key)) {
        known.add(key);
        carried[stackOf[other]].push([from, to]);
      }
      continue;
    }
    wires.from[count] = from;
    wires.to[count] = to;
    wires.kind[count] = wires.kind[wire];
    wires.slot[count] = wires.slot[wire];
    wires.status[count++] = wires.status[wire];
  }
  wires.count = count;
  for (let node = 0; node < instead.length; node++) if (instead[node] >= 0) instead[node] = stand(instead[node]);
}
