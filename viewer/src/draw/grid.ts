/** Which of many rectangles meet a window, found by the cells of a grid: the cost is of what is in the window. */

import type { Rectangle } from "../scene/scene.ts";

export interface Grid {
  /** The places of all rectangles that meet the window, ascending. */
  inside(window: Rectangle): number[];
}

const mostCells = 1 << 16;
const wideSpan = 64;

/** `bounds` has left, top, right and bottom of each rectangle, one after the other. */
export function gridOf(bounds: Float64Array): Grid {
  const count = bounds.length / 4;
  let left = Infinity;
  let top = Infinity;
  let right = -Infinity;
  let bottom = -Infinity;
  for (let item = 0; item < bounds.length; item += 4) {
    left = Math.min(left, bounds[item]);
    top = Math.min(top, bounds[item + 1]);
    right = Math.max(right, bounds[item + 2]);
    bottom = Math.max(bottom, bounds[item + 3]);
  }
  if (count === 0) return { inside: () => [] };
  const cells = Math.min(mostCells, Math.max(1, count));
  const side = Math.max(1, Math.sqrt(((right - left) * (bottom - top)) / cells), (right - left) / 4096, (bottom - top) / 4096);
  const columns = Math.floor((right - left) / side) + 1;
  const rows = Math.floor((bottom - top) / side) + 1;
  const column = (x: number): number => Math.min(columns - 1, Math.max(0, Math.floor((x - left) / side)));
  const row = (y: number): number => Math.min(rows - 1, Math.max(0, Math.floor((y - top) / side)));

  // What spans many cells would be listed in all of them: it is looked at by itself.
  const wide: number[] = [];
  const first = new Int32Array(columns * rows + 1);
  const eachCell = (item: number, visit: (cell: number) => void): boolean => {
    const c0 = column(bounds[4 * item]);
    const r0 = row(bounds[4 * item + 1]);
    const c1 = column(bounds[4 * item + 2]);
    const r1 = row(bounds[4 * item + 3]);
    if ((c1 - c0 + 1) * (r1 - r0 + 1) > wideSpan) return false;
    for (let r = r0; r <= r1; r++) for (let c = c0; c <= c1; c++) visit(r * columns + c);
    return true;
  };
  for (let item = 0; item < count; item++) if (!eachCell(item, (cell) => first[cell + 1]++)) wide.push(item);
  for (let cell = 0; cell < columns * rows; cell++) first[cell + 1] += first[cell];
  const items = new Int32Array(first[columns * rows]);
  const next = first.slice(0, columns * rows);
  for (let item = 0; item < count; item++) eachCell(item, (cell) => (items[next[cell]++] = item));

  const stamps = new Int32Array(count);
  let stamp = 0;
  return {
    inside(window) {
      stamp++;
      const found: number[] = [];
      const x1 = window.x + window.width;
      const y1 = window.y + window.height;
      const look = (item: number): void => {
        if (stamps[item] === stamp) return;
        stamps[item] = stamp;
        const at = 4 * item;
        if (bounds[at] <= x1 && bounds[at + 2] >= window.x && bounds[at + 1] <= y1 && bounds[at + 3] >= window.y) found.push(item);
      };
      if (x1 < left || window.x > right || y1 < top || window.y > bottom) return found;
      const c1 = column(x1);
      const r1 = row(y1);
      for (let r = row(window.y); r <= r1; r++) {
        const line = r * columns;
        for (let place = first[line + column(window.x)]; place < first[line + c1 + 1]; place++) look(items[place]);
      }
      for (const item of wide) look(item);
      return found.sort((one, other) => one - other);
    },
  };
}
