/** Which vertices stand in one vertical line: one of the four alignments of Brandes and Köpf (2002), with lines that end beside the middle of a box. */
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
 * Aligns each vertex with the middle one of its neighbours in the rank above (or below), where that crosses no alignment and no line that is
 * `strong`. `fromRight` takes the right one of two middles, and starts from the right.
 */
export function aligned(web: Web, strong: Uint8Array, blocked: Uint8Array, ends: Ends, upward: boolean, fromRight: boolean): Columns {
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

/** The lines to the middle neighbours of a vertex, the wished one first; a strong one goes before all. */
function middles(web: Web, by: Web["up"], vertex: number, neighbours: Int32Array, strong: Uint8Array, fromRight: boolean): number[] {
  const [start, end] = [by.first[vertex], by.first[vertex + 1]];
  const count = end - start;
  if (count === 0) return [];
  if (count === 1) return [by.rows[start]];
  const lines = Array.from(by.rows.subarray(start, end));
  const trunk = lines.find((line) => strong[line] === 2);
  if (trunk !== undefined) return [trunk];
  lines.sort((one, other) => web.position[neighbours[one]] - web.position[neighbours[other]]);
  const [left, right] = [lines[(count - 1) >> 1], lines[count >> 1]];
  if (left === right) return [left];
  return fromRight ? [right, left] : [left, right];
}

/**
 * Lines that must stay straight: 2 on the longest way through the piece, 1 between two points of a long line. Of strong lines that cross
 * the stronger one stays, and `blocked` are all that cross one that stays.
 */
export function strongLines(web: Web): { strong: Uint8Array; blocked: Uint8Array } {
  const { piece, layers, position, down } = web;
  const count = piece.upper.length;
  const strong = new Uint8Array(count);
  const blocked = new Uint8Array(count);
  const boxes = piece.boxes.length;
  for (let line = 0; line < count; line++) if (piece.upper[line] >= boxes && piece.lower[line] >= boxes) strong[line] = 1;
  for (const line of trunk(web)) strong[line] = 2;
  for (const layer of layers) {
    const lines: number[] = [];
    for (const vertex of layer) for (let row = down.first[vertex]; row < down.first[vertex + 1]; row++) lines.push(down.rows[row]);
    const kept = withoutCrossings(lines, web, strong);
    if (!kept.length) continue;
    for (const line of lines) if (crossesOne(line, kept)) blocked[line] = 1;
  }
  return { strong, blocked };

  function crossesOne(line: number, kept: readonly number[]): boolean {
    const [top, bottom] = [position[piece.upper[line]], position[piece.lower[line]]];
    let [low, high] = [0, kept.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (position[piece.upper[kept[middle]]] < top) low = middle + 1;
      else high = middle;
    }
    if (low > 0 && position[piece.lower[kept[low - 1]]] > bottom) return true;
    while (low < kept.length && position[piece.upper[kept[low]]] === top) low++;
    return low < kept.length && position[piece.lower[kept[low]]] < bottom;
  }
}

/** The strong ones of the lines below a rank that do not cross each other, from left to right: those on the trunk, then the others. */
function withoutCrossings(lines: readonly number[], { piece, position }: Web, strong: Uint8Array): number[] {
  const trunks = lines.filter((line) => strong[line] === 2);
  const kept: number[] = [];
  let bottom = -1;
  for (const line of lines) {
    if (!strong[line]) continue;
    const at = position[piece.lower[line]];
    if (strong[line] === 1) {
      if (at < bottom) continue;
      const crossed = trunks.some(
        (other) => (position[piece.upper[other]] - position[piece.upper[line]]) * (position[piece.lower[other]] - at) < 0,
      );
      if (crossed) continue;
    } else while (kept.length && position[piece.lower[kept[kept.length - 1]]] > at) kept.pop();
    kept.push(line);
    bottom = at;
  }
  return kept;
}

/** The short lines of a longest way through boxes: the flow that a reader follows. */
function trunk({ piece, layers, down }: Web): number[] {
  const boxes = piece.boxes.length;
  const length = new Float64Array(piece.vertices);
  const next = new Int32Array(piece.vertices).fill(-1);
  let start = -1;
  for (let rank = layers.length - 1; rank >= 0; rank--) {
    for (const vertex of layers[rank]) {
      for (let row = down.first[vertex]; row < down.first[vertex + 1]; row++) {
        const line = down.rows[row];
        if (next[vertex] < 0 || length[piece.lower[line]] > length[piece.lower[next[vertex]]]) next[vertex] = line;
      }
      length[vertex] = (next[vertex] < 0 ? 0 : length[piece.lower[next[vertex]]]) + (vertex < boxes ? 1 : 0);
      if (start < 0 || length[vertex] > length[start]) start = vertex;
    }
  }
  const way: number[] = [];
  for (let vertex = start; vertex >= 0 && next[vertex] >= 0; vertex = piece.lower[next[vertex]]) way.push(next[vertex]);
  return way;
}
