/** The rank of each box: every line leads to a higher one, and lines are short. */
import { flowOrder, groupByKey, rowsAt } from "../graph/columns.ts";
import type { Groups } from "../graph/columns.ts";
import type { Line } from "./layered.ts";
import { mostFar } from "./marks.ts";

export type Border = "in" | "out" | undefined;

export interface Ranked {
  readonly rank: Int32Array;
  /** By line 1 where it closes a cycle and counts the other way round; lines from a box to itself are 2 and count nowhere. */
  readonly turned: Uint8Array;
}

const sweeps = 4;

export function rankBoxes(borders: readonly Border[], lines: readonly Line[]): Ranked {
  const count = borders.length;
  const turned = findBackLines(borders, lines);
  const tails = new Int32Array(lines.length);
  const heads = new Int32Array(lines.length);
  lines.forEach(({ from, to }, line) => {
    const skipped = turned[line] === 2;
    tails[line] = skipped ? -1 : turned[line] ? to : from;
    heads[line] = skipped ? -1 : turned[line] ? from : to;
  });
  const out = groupByKey(tails, count);
  const into = groupByKey(heads, count);
  const order = flowOrder(out, heads);
  const rank = new Int32Array(count);
  const pinnedIn = borders.includes("in") ? 1 : 0;
  for (const box of order) {
    if (borders[box] === "in") continue;
    rank[box] = Math.max(rank[box], pinnedIn);
    for (const line of rowsAt(out, box)) rank[heads[line]] = Math.max(rank[heads[line]], rank[box] + 1);
  }
  // Lines from a border point count above only for their heads.
  for (let box = 0; box < count; box++) if (borders[box] === "in") rank[box] = 0;
  tighten(borders, lines, { order, out, into, tails, heads }, rank);
  let last = 0;
  for (let box = 0; box < count; box++) if (borders[box] !== "out") last = Math.max(last, rank[box]);
  for (let box = 0; box < count; box++) if (borders[box] === "out") rank[box] = last + 1;
  return { rank, turned };
}

interface Flow {
  readonly order: Int32Array;
  readonly out: Groups;
  readonly into: Groups;
  readonly tails: Int32Array;
  readonly heads: Int32Array;
}

/**
 * Moves boxes toward most of their lines, within the room that their neighbours leave. A source moves down to its consumer,
 * and so does all that feeds nothing else.
 */
function tighten(borders: readonly Border[], lines: readonly Line[], { order, out, into, tails, heads }: Flow, rank: Int32Array): void {
  const count = borders.length;
  // A box that depends on such boxes alone as feed only it: it moves with all of them.
  const free = new Uint8Array(count);
  const consumers = new Int32Array(count);
  for (let box = 0; box < count; box++) consumers[box] = out.first[box + 1] - out.first[box];
  // Far lines of a box with many are drawn as marks: its consumers need not be near.
  const weights = Float64Array.from(lines, ({ weight }, line) => {
    const share = tails[line] < 0 ? 0 : consumers[tails[line]];
    return share > mostFar ? 1 / share : Math.min(weight, 8);
  });
  for (const box of order) {
    free[box] = borders[box] === undefined && rowsAt(into, box).every((line) => free[tails[line]] && consumers[tails[line]] === 1) ? 1 : 0;
  }
  for (let sweep = 0; sweep < sweeps; sweep++) {
    let moved = false;
    for (let place = count - 1; place >= 0; place--) {
      const box = order[place];
      if (borders[box] !== undefined || !consumers[box]) continue;
      let pull = 0;
      let limit = 0x7fffffff;
      for (const line of rowsAt(out, box)) {
        if (borders[heads[line]] === "out") continue;
        pull += weights[line];
        limit = Math.min(limit, rank[heads[line]] - 1);
      }
      if (limit === 0x7fffffff) continue;
      if (!free[box]) for (const line of rowsAt(into, box)) pull -= weights[line];
      if (pull > 0 && limit > rank[box]) {
        rank[box] = limit;
        moved = true;
      }
    }
    for (const box of order) {
      if (borders[box] !== undefined || free[box]) continue;
      let pull = 0;
      let limit = 0;
      for (const line of rowsAt(into, box)) {
        pull += weights[line];
        limit = Math.max(limit, rank[tails[line]] + 1);
      }
      for (const line of rowsAt(out, box)) pull -= weights[line];
      if (pull > 0 && limit < rank[box] && limit > 0) {
        rank[box] = limit;
        moved = true;
      }
    }
    if (!moved) break;
  }
}

/** Lines that lead back in a search from the sources, in the order of the boxes: without them no cycle is left. */
function findBackLines(borders: readonly Border[], lines: readonly Line[]): Uint8Array {
  const count = borders.length;
  const turned = new Uint8Array(lines.length);
  const tails = Int32Array.from(lines, ({ from, to }) => (from === to ? -1 : from));
  const out = groupByKey(tails, count);
  const waiting = new Int32Array(count);
  lines.forEach(({ from, to }, line) => {
    if (from === to) turned[line] = 2;
    else waiting[to]++;
  });
  const starts: number[] = [];
  for (let box = 0; box < count; box++) if (!waiting[box]) starts.push(box);
  // A box that no search reached lies after a cycle.
  for (let box = 0; box < count; box++) if (waiting[box]) starts.push(box);
  const state = new Uint8Array(count);
  const next = out.first.slice(0, count);
  const path = new Int32Array(count);
  for (const start of starts) {
    if (state[start]) continue;
    let top = 0;
    path[0] = start;
    state[start] = 1;
    while (top >= 0) {
      const box = path[top];
      if (next[box] === out.first[box + 1]) {
        state[box] = 2;
        top--;
        continue;
      }
      const line = out.rows[next[box]++];
      const head = lines[line].to;
      if (state[head] === 1) turned[line] = 1;
      else if (!state[head]) {
        state[head] = 1;
        path[++top] = head;
      }
    }
  }
  return turned;
}
