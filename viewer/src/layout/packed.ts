/** Pieces side by side in a compact block, each below those from which marked lines lead to it. */
import type { PlacedPiece } from "./placed.ts";

const gap = 32;
const aspect = 1.6;

export interface Packed {
  readonly left: Float64Array;
  readonly top: Float64Array;
  readonly width: number;
  readonly height: number;
}

export function packed(pieces: readonly PlacedPiece[]): Packed {
  const left = new Float64Array(pieces.length);
  const top = new Float64Array(pieces.length);
  if (pieces.length === 1) return { left, top, width: pieces[0].width, height: pieces[0].height };
  let [columns, area, widest, tallest] = [0, 0, 0, 0];
  for (const { piece, width, height } of pieces) {
    if (piece.bordered) {
      // What the border has lines to keeps its column free up to the top and down to the bottom.
      tallest = Math.max(tallest, height);
      continue;
    }
    area += (width + gap) * (height + gap);
    widest = Math.max(widest, width);
  }
  const width = Math.max(widest + gap, (area * 1.08) / Math.max(tallest, Math.sqrt(area / aspect)));
  const skyline = new Skyline(width);
  let [right, bottom] = [0, 0];
  const rest: number[] = [];
  for (const number of inFlow(pieces)) {
    const { piece, width: wide, height: high } = pieces[number];
    let lowest = 0;
    for (const above of piece.above) lowest = Math.max(lowest, top[above] + pieces[above].height + gap);
    if (piece.bordered) {
      left[number] = columns;
      top[number] = lowest;
      columns += wide + gap;
    } else {
      const place = skyline.put(wide + gap, high + gap, lowest);
      left[number] = place.x;
      top[number] = place.y;
      rest.push(number);
    }
    bottom = Math.max(bottom, top[number] + high);
  }
  for (const number of rest) left[number] += columns;
  for (let number = 0; number < pieces.length; number++) right = Math.max(right, left[number] + pieces[number].width);
  return { left, top, width: right, height: bottom };
}

/** Pieces after those that must stand above them; they have no cycle. */
function inFlow(pieces: readonly PlacedPiece[]): number[] {
  const waiting = new Int32Array(pieces.length);
  const below: number[][] = [];
  pieces.forEach(({ piece }, number) => {
    waiting[number] = piece.above.length;
    for (const above of piece.above) (below[above] ??= []).push(number);
  });
  const order: number[] = [];
  for (let number = 0; number < pieces.length; number++) if (!waiting[number]) order.push(number);
  for (let place = 0; place < order.length; place++) {
    for (const number of below[order[place]] ?? []) if (!--waiting[number]) order.push(number);
  }
  return order;
}

/** The lower edge of what is placed so far; the next piece goes where it lies highest. */
class Skyline {
  private readonly starts: number[] = [0];
  private readonly depths: number[] = [0];

  constructor(private readonly width: number) {}

  put(wide: number, high: number, lowest: number): { x: number; y: number } {
    const { starts, depths } = this;
    let [best, y] = [0, Infinity];
    for (let step = 0; step < starts.length; step++) {
      if (step > 0 && starts[step] + wide > this.width + 0.01) break;
      let depth = lowest;
      for (let other = step; other < starts.length && starts[other] < starts[step] + wide - 0.01; other++) {
        depth = Math.max(depth, depths[other]);
        if (depth >= y) break;
      }
      if (depth < y) [best, y] = [step, depth];
    }
    const x = starts[best];
    let last = best;
    while (last + 1 < starts.length && starts[last + 1] <= x + wide + 0.01) last++;
    const tail = depths[last];
    const reaches = last + 1 < starts.length ? starts[last + 1] : this.width;
    const rest = x + wide < reaches - 0.01;
    starts.splice(best, last - best + 1, ...(rest ? [x, x + wide] : [x]));
    depths.splice(best, last - best + 1, ...(rest ? [y + high, tail] : [y + high]));
    return { x, y };
  }
}
