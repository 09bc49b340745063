/** Which vertices stand in one vertical line: one of the four alignments of Brandes and Köpf (2002), with lines that end beside the middle of a box. */
import { rowsAt } from "../graph/columns.ts";
import type { Web } from "./order.ts";

export interface Columns {
  /** By vertex the first vertex of its column, and how far right of that one's middle its own stands. */
  readonly root: Int32Array;
  readonly shift: Float64Array;
}

/** How far right of the middles of its two ends a short line ends. */
export interface Ends {
  readonly atUpper: Float64Array;
  readonly atLower: Float64Array;
}

/**
 * Aligns each vertex with the middle one of its neighbours in the rank above (or below), where that crosses no alignment and the line is not
 * `blocked`; a strong line goes before the middle one. `fromRight` takes the right one of two middles, and starts from the right.
 */
export function alignColumns(web: Web, strong: Uint8Array, blocked: Uint8Array, ends: Ends, upward: boolean, fromRight: boolean): Columns {
  const { layers, position, piece } = web;
  const root = Int32Array.from({ length: piece.vertices }, (_, vertex) => vertex);
  const shift = new Float64Array(piece.vertices);
  const by = upward ? web.down : web.up;
  const neighbours = upward ? piece.lower : piece.upper;
  const [atOther, atOwn] = upward ? [ends.atLower, ends.atUpper] : [ends.atUpper, ends.atLower];
  const taken = new Uint8Array(piece.vertices);
  for (let step = 1; step < layers.length; step++) {
    const layer = layers[upward ? layers.length - 1 - step : step];
    let bound = fromRight ? 0x7fffffff : -1;
    for (let place = 0; place < layer.length; place++) {
      const vertex = layer[fromRight ? layer.length - 1 - place : place];
      for (const line of middles(web, by, vertex, neighbours, strong, fromRight)) {
        const neighbour = neighbours[line];
        const at = position[neighbour];
        if (taken[neighbour] || blocked[line] || (fromRight ? at >= bound : at <= bound)) continue;
        taken[neighbour] = 1;
        root[vertex] = root[neighbour];
        shift[vertex] = shift[neighbour] + atOther[line] - atOwn[line];
        bound = at;
        break;
      }
    }
  }
  return { root, shift };
}

/** The lines to the middle neighbours of a vertex, the wished one first; the trunk goes alone, and a liked one before them. */
function middles(web: Web, by: Web["up"], vertex: number, neighbours: Int32Array, strong: Uint8Array, fromRight: boolean): number[] {
  const lines = Array.from(rowsAt(by, vertex));
  const count = lines.length;
  if (count < 2) return lines;
  const trunk = lines.find((line) => strong[line] === strength.trunk);
  if (trunk !== undefined) return [trunk];
  const liked = lines.find((line) => strong[line] === strength.liked);
  lines.sort((one, other) => web.position[neighbours[one]] - web.position[neighbours[other]]);
  const [left, right] = [lines[(count - 1) >> 1], lines[count >> 1]];
  const others = left === right ? [left] : fromRight ? [right, left] : [left, right];
  return liked === undefined ? others : [liked, ...others];
}

/** How much a short line should be straight: on the longest way through the piece, between two points of a long line, on another long way. */
const strength = { trunk: 3, inner: 2, liked: 1 } as const;

/** How strong each short line is, and which ones must not be straight: they cross a stronger one, or end where the trunk goes on. */
export function strongLines(web: Web): { strong: Uint8Array; blocked: Uint8Array } {
  const { piece, layers, position, down } = web;
  const count = piece.upper.length;
  const strong = new Uint8Array(count);
  const blocked = new Uint8Array(count);
  const boxes = piece.boxes.length;
  const trunk = ways(web, strong);
  for (let line = 0; line < count; line++) if (piece.upper[line] >= boxes && piece.lower[line] >= boxes) strong[line] = strength.inner;
  // By vertex whether the trunk goes on below it, and comes from above.
  const goesOn = new Uint8Array(piece.vertices);
  const comesFrom = new Uint8Array(piece.vertices);
  for (const line of trunk) {
    strong[line] = strength.trunk;
    goesOn[piece.upper[line]] = comesFrom[piece.lower[line]] = 1;
  }
  for (const layer of layers) {
    const lines = Array.from(layer).flatMap((vertex) => Array.from(rowsAt(down, vertex)));
    const kept: number[] = [];
    for (const wanted of [strength.trunk, strength.inner, strength.liked]) {
      for (const line of lines) if (strong[line] === wanted && !crossesOne(line, kept)) kept.splice(placeIn(kept, line), 0, line);
    }
    for (const line of lines) if (crossesOne(line, kept)) blocked[line] = 1;
  }
  for (let line = 0; line < count; line++) {
    if (strong[line] !== strength.trunk && (goesOn[piece.upper[line]] || comesFrom[piece.lower[line]])) blocked[line] = 1;
  }
  return { strong, blocked };

  /** Where a line stands among some that do not cross. */
  function placeIn(kept: readonly number[], line: number): number {
    const [top, bottom] = [position[piece.upper[line]], position[piece.lower[line]]];
    let [low, high] = [0, kept.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      const own = position[piece.upper[kept[middle]]];
      if (own < top || (own === top && position[piece.lower[kept[middle]]] < bottom)) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  function crossesOne(line: number, kept: readonly number[]): boolean {
    const [top, bottom] = [position[piece.upper[line]], position[piece.lower[line]]];
    let place = placeIn(kept, line);
    for (let left = place - 1; left >= 0; left--) {
      if (position[piece.upper[kept[left]]] === top) continue;
      if (position[piece.lower[kept[left]]] > bottom) return true;
      break;
    }
    while (place < kept.length && position[piece.upper[kept[place]]] === top) place++;
    return place < kept.length && position[piece.lower[kept[place]]] < bottom;
  }
}

/**
 * The short lines of a longest way through boxes, the flow that a reader follows. Marks the lines that each other vertex and its neighbour
 * below have as their longest way on, down and up.
 */
function ways({ piece, layers, down, up }: Web, strong: Uint8Array): number[] {
  const boxes = piece.boxes.length;
  const below = longest(layers.toReversed(), down, piece.lower, boxes);
  const above = longest(layers, up, piece.upper, boxes);
  let start = -1;
  for (const layer of layers) for (const vertex of layer) if (start < 0 || below.length[vertex] > below.length[start]) start = vertex;
  for (const line of below.next) if (line >= 0 && above.next[piece.lower[line]] === line) strong[line] = strength.liked;
  const way: number[] = [];
  for (let vertex = start; below.next[vertex] >= 0; vertex = piece.lower[below.next[vertex]]) way.push(below.next[vertex]);
  return way;
}

/** By vertex the line on which the longest way goes on, and how many boxes are on it; ranks that are gone to come first. */
function longest(layers: readonly Int32Array[], by: Web["up"], ends: Int32Array, boxes: number): { next: Int32Array; length: Int32Array } {
  const next = new Int32Array(by.first.length - 1).fill(-1);
  const length = new Int32Array(next.length);
  for (const layer of layers) {
    for (const vertex of layer) {
      for (const line of rowsAt(by, vertex)) {
        if (next[vertex] < 0 || length[ends[line]] > length[ends[next[vertex]]]) next[vertex] = line;
      }
      length[vertex] = (next[vertex] < 0 ? 0 : length[ends[next[vertex]]]) + (vertex < boxes ? 1 : 0);
    }
  }
  return { next, length };
}
