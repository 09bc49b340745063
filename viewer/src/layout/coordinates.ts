/** Where the vertices of a piece stand from left to right. */
import { flowOrder, groupByKey, rowsAt } from "../graph/columns.ts";
import { alignColumns, strongLines } from "./align.ts";
import type { Columns, Ends } from "./align.ts";
import type { Web } from "./order.ts";

export const gap = { boxes: 24, points: 10 } as const;

/** The middle of each vertex: of four placements, leaning to each side and followed each way, the mean of the middle two. */
export function middlesOf(web: Web, widths: Float64Array, ends: Ends): Float64Array {
  const { piece } = web;
  const { strong, blocked } = strongLines(web);
  const placements: Float64Array[] = [];
  for (const upward of [false, true]) {
    for (const fromRight of [false, true]) {
      const columns = alignColumns(web, strong, blocked, ends, upward, fromRight);
      placements.push(packColumns(web, columns, widths, fromRight));
    }
  }
  // All stand where the narrowest one does: those that lean left by their left side, the others by their right.
  const bounds = placements.map((x) => boundsOf(x, widths));
  const narrowest = bounds.reduce((best, [left, right], place) => (right - left < bounds[best][1] - bounds[best][0] ? place : best), 0);
  placements.forEach((x, place) => {
    const side = place % 2;
    const move = bounds[narrowest][side] - bounds[place][side];
    for (let vertex = 0; vertex < x.length; vertex++) x[vertex] += move;
  });
  const [a, b, c, d] = placements;
  const x = new Float64Array(piece.vertices);
  for (let vertex = 0; vertex < x.length; vertex++) {
    const least = Math.min(a[vertex], b[vertex], c[vertex], d[vertex]);
    const most = Math.max(a[vertex], b[vertex], c[vertex], d[vertex]);
    x[vertex] = (a[vertex] + b[vertex] + c[vertex] + d[vertex] - least - most) / 2;
  }
  return x;
}

export function boundsOf(x: Float64Array, widths: Float64Array): [left: number, right: number] {
  let [left, right] = [Infinity, -Infinity];
  for (let vertex = 0; vertex < x.length; vertex++) {
    left = Math.min(left, x[vertex] - widths[vertex] / 2);
    right = Math.max(right, x[vertex] + widths[vertex] / 2);
  }
  return [left, right];
}

/** Puts columns as far to one side as their neighbours let them, then those that have room beside them back. */
function packColumns({ layers, piece }: Web, { root, shift }: Columns, widths: Float64Array, fromRight: boolean): Float64Array {
  const count = piece.vertices;
  const boxes = piece.boxes.length;
  const sign = fromRight ? -1 : 1;
  // Neighbours in a rank, as columns that keep a distance, in the direction of packing.
  const before: number[] = [];
  const after: number[] = [];
  const distance: number[] = [];
  for (const layer of layers) {
    for (let place = 0; place + 1 < layer.length; place++) {
      const [left, right] = [layer[place], layer[place + 1]];
      // Points of the border are as narrow as those of long lines.
      const room = left < boxes && right < boxes && widths[left] > 2 && widths[right] > 2 ? gap.boxes : gap.points;
      const apart = (widths[left] + widths[right]) / 2 + room + shift[left] - shift[right];
      before.push(root[fromRight ? right : left]);
      after.push(root[fromRight ? left : right]);
      distance.push(apart);
    }
  }
  const pairs = groupByKey(before, count);
  const order = flowOrder(pairs, after);
  const at = new Float64Array(count);
  for (const column of order) for (const pair of rowsAt(pairs, column)) at[after[pair]] = Math.max(at[after[pair]], at[column] + distance[pair]);
  for (const column of order.reverse()) {
    const room = rowsAt(pairs, column).reduce((least, pair) => Math.min(least, at[after[pair]] - distance[pair]), Infinity);
    if (room < Infinity) at[column] = Math.max(at[column], room);
  }
  const x = new Float64Array(count);
  for (let vertex = 0; vertex < count; vertex++) x[vertex] = sign * at[root[vertex]] + shift[vertex];
  return x;
}
