/** The order within each rank: few crossings, by sweeps of medians and means with swaps of neighbours (Gansner and others, 1993). */
import { groupByKey } from "../graph/columns.ts";
import type { Groups } from "../graph/columns.ts";
import type { Piece } from "./arranged.ts";
import { crossings } from "./crossings.ts";

/** Steps over short lines that all sweeps of a piece may take. */
const mostWork = 600_000;
const mostSweeps = 24;
const patience = 6;

/** A piece with its short lines by end. */
export interface Web {
  readonly piece: Piece;
  readonly layers: Int32Array[];
  readonly position: Int32Array;
  /** Short lines by their upper and by their lower vertex. */
  readonly down: Groups;
  readonly up: Groups;
}

export function webOf(piece: Piece): Web {
  const { layers, vertices, upper, lower } = piece;
  return { piece, layers: [...layers], position: placesIn(layers, vertices).position, down: groupByKey(upper, vertices), up: groupByKey(lower, vertices) };
}

/** By vertex its rank, and its place there. */
export function placesIn(layers: readonly Int32Array[], vertices: number): { rank: Int32Array; position: Int32Array } {
  const [rank, position] = [new Int32Array(vertices), new Int32Array(vertices)];
  layers.forEach((layer, own) =>
    layer.forEach((vertex, place) => {
      rank[vertex] = own;
      position[vertex] = place;
    }),
  );
  return { rank, position };
}

export function orderPiece(piece: Piece): Piece {
  if (piece.layers.every((layer) => layer.length < 2)) return piece;
  const web = webOf(piece);
  let best: Int32Array[] = [];
  let fewest = Infinity;
  const budget = { left: mostWork };
  for (const start of starts) {
    start(web);
    for (let rank = 0; rank < web.layers.length; rank++) {
      if (!isFixed(web, rank)) continue;
      web.layers[rank].sort();
      number(web, web.layers[rank]);
    }
    let crossed = crossings(web);
    const keep = (): boolean => {
      if (crossed >= fewest) return false;
      fewest = crossed;
      best = web.layers.map((layer) => layer.slice());
      return true;
    };
    keep();
    let without = 0;
    for (let sweep = 0; sweep < mostSweeps && fewest > 0 && without < patience && budget.left > 0; sweep++) {
      sweepOnce(web, sweep);
      budget.left -= 6 * piece.upper.length + piece.vertices;
      if (budget.left > 0) swapNeighbours(web, budget, sweep % 4 >= 2);
      crossed = crossings(web);
      without = keep() ? 0 : without + 1;
    }
    if (!fewest || budget.left <= 0) break;
  }
  return { ...piece, layers: best };
}

/** Points of the border keep their order, which is that of their lines outside. */
function isFixed({ piece: { fixed }, layers }: Web, rank: number): boolean {
  return (fixed.first && rank === 0) || (fixed.last && rank === layers.length - 1);
}

/** The first order puts boxes that are reached together side by side. Others are tried while lines cross and work is left. */
const starts: readonly ((web: Web) => void)[] = [
  (web) => search(web, web.down, web.piece.lower, false),
  (web) => search(web, web.up, web.piece.upper, true),
  ...[1, 2, 3, 4, 5, 6].map((seed) => (web: Web) => shuffle(web, seed)),
];

function search(web: Web, next: Groups, ends: Int32Array, backwards: boolean): void {
  const { piece } = web;
  const seen = new Uint8Array(piece.vertices);
  const layers: number[][] = piece.layers.map(() => []);
  const { rank } = placesIn(piece.layers, piece.vertices);
  const waiting: number[] = [];
  const ranks = backwards ? [...piece.layers].reverse() : piece.layers;
  for (const layer of ranks) {
    for (const start of layer) {
      waiting.push(start);
      while (waiting.length) {
        const vertex = waiting.pop()!;
        if (seen[vertex]) continue;
        seen[vertex] = 1;
        layers[rank[vertex]].push(vertex);
        for (let row = next.first[vertex + 1] - 1; row >= next.first[vertex]; row--) waiting.push(ends[next.rows[row]]);
      }
    }
  }
  layers.forEach((layer, place) => number(web, (web.layers[place] = Int32Array.from(layer))));
}

/** Any order, the same for the same seed. */
function shuffle(web: Web, seed: number): void {
  let state = seed;
  for (const layer of web.layers) {
    for (let place = layer.length - 1; place > 0; place--) {
      state = (Math.imul(state, 1103515245) + 12345) & 0x7fffffff;
      const other = (state >> 8) % (place + 1);
      [layer[place], layer[other]] = [layer[other], layer[place]];
    }
    number(web, layer);
  }
}

function number({ position }: Web, layer: Int32Array): void {
  for (let place = 0; place < layer.length; place++) position[layer[place]] = place;
}

/** One pass down or up: each rank is sorted by where its neighbours of the rank before stand. */
function sweepOnce(web: Web, sweep: number): void {
  const { layers, position, piece } = web;
  const down = sweep % 2 === 0;
  const useMean = sweep % 8 >= 4;
  const from = down ? web.up : web.down;
  const ends = down ? piece.upper : piece.lower;
  const wish = new Float64Array(piece.vertices);
  for (let step = 1; step < layers.length; step++) {
    const rank = down ? step : layers.length - 1 - step;
    const layer = layers[rank];
    if (layer.length < 2 || isFixed(web, rank)) continue;
    for (const vertex of layer) wish[vertex] = wishedPlace(vertex, from, ends, position, useMean);
    // Those without neighbours there keep their places; the others are sorted among theirs. Ties turn round every other time.
    const movable = layer.filter((vertex) => wish[vertex] >= 0);
    const turn = sweep % 4 < 2 ? 1 : -1;
    movable.sort((one, other) => wish[one] - wish[other] || turn * (position[one] - position[other]));
    let next = 0;
    for (let place = 0; place < layer.length; place++) if (wish[layer[place]] >= 0) layer[place] = movable[next++];
    number(web, layer);
  }
}

function wishedPlace(vertex: number, from: Groups, ends: Int32Array, position: Int32Array, useMean: boolean): number {
  const [start, end] = [from.first[vertex], from.first[vertex + 1]];
  const count = end - start;
  if (!count) return -1;
  if (count === 1) return position[ends[from.rows[start]]];
  if (useMean || count > 64) {
    let sum = 0;
    for (let row = start; row < end; row++) sum += position[ends[from.rows[row]]];
    return sum / count;
  }
  const places = from.rows.subarray(start, end).map((line) => position[ends[line]]).sort();
  const middle = count >> 1;
  if (count % 2) return places[middle];
  if (count === 2) return (places[0] + places[1]) / 2;
  const left = places[middle - 1] - places[0];
  const right = places[count - 1] - places[middle];
  return left + right ? (places[middle - 1] * right + places[middle] * left) / (left + right) : (places[middle - 1] + places[middle]) / 2;
}

/** Swaps neighbours of a rank where that saves crossings, until none does or the work is done; in the first round also where it costs none. */
function swapNeighbours(web: Web, budget: { left: number }, evenEqual: boolean): void {
  const { layers, position, piece, up, down } = web;
  for (let round = 0; round < 8; round++) {
    let saved = 0;
    for (const [rank, layer] of layers.entries()) {
      if (isFixed(web, rank)) continue;
      for (let place = 0; place + 1 < layer.length; place++) {
        const [one, other] = [layer[place], layer[place + 1]];
        const gain =
          swapGain(one, other, up, piece.upper, position, budget) + swapGain(one, other, down, piece.lower, position, budget);
        // A swap that saves nothing may make room for one that does, if it is not undone at once.
        if (gain < 0 || (gain === 0 && !(evenEqual && round === 0))) continue;
        saved += gain;
        layer[place] = other;
        layer[place + 1] = one;
        position[other] = place;
        position[one] = place + 1;
      }
      if (budget.left <= 0) return;
    }
    if (!saved && round > 0) return;
  }
}

/** How many crossings of their lines on one side are saved when two neighbours change places. */
function swapGain(one: number, other: number, by: Groups, ends: Int32Array, position: Int32Array, budget: { left: number }): number {
  const [start, end] = [by.first[one], by.first[one + 1]];
  const [first, last] = [by.first[other], by.first[other + 1]];
  const work = (end - start) * (last - first);
  budget.left -= 1 + work;
  if (work > 4096) return 0;
  let gain = 0;
  for (let row = start; row < end; row++) {
    const place = position[ends[by.rows[row]]];
    for (let beside = first; beside < last; beside++) gain += Math.sign(place - position[ends[by.rows[beside]]]);
  }
  return gain;
}
