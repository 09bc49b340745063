/** Pieces side by side in a compact block, each below those from which marked lines lead to it, none where others have lines to the border. */
import type { PlacedPiece } from "./placed.ts";

const gap = 32;
const aspect = 1.6;

export interface Packed {
  readonly left: Float64Array;
  readonly top: Float64Array;
  readonly width: number;
  readonly height: number;
}

export function packPieces(pieces: readonly PlacedPiece[]): Packed {
  const left = new Float64Array(pieces.length);
  const top = new Float64Array(pieces.length);
  if (pieces.length === 1) return { left, top, width: pieces[0].width, height: pieces[0].height };
  let [closed, area, widest, tallest] = [0, 0, 0, 0];
  for (const { piece, width, height } of pieces) {
    if (piece.fixed.last) {
      closed += width + gap;
      tallest = Math.max(tallest, height);
    } else {
      area += (width + gap) * (height + gap);
      widest = Math.max(widest, width + gap);
    }
  }
  const put = skyline(closed + Math.max(widest, (area * 1.08) / Math.max(tallest, Math.sqrt(area / aspect), 1)));
  let [right, bottom] = [0, 0];
  for (const number of orderByFlow(pieces)) {
    const { piece, width, height } = pieces[number];
    let lowest = 0;
    for (const above of piece.above) lowest = Math.max(lowest, top[above] + pieces[above].height + gap);
    const { x, y } = put(width + gap, height + gap, { lowest, toTop: piece.fixed.first, toBottom: piece.fixed.last });
    left[number] = x;
    top[number] = y;
    right = Math.max(right, x + width);
    bottom = Math.max(bottom, y + height);
  }
  return { left, top, width: right, height: bottom };
}

/** Pieces after those that must stand above them, of which there is no cycle; first those with lines from the border, which need its room. */
function orderByFlow(pieces: readonly PlacedPiece[]): number[] {
  const waiting = new Int32Array(pieces.length);
  const below: number[][] = [];
  pieces.forEach(({ piece }, number) => {
    waiting[number] = piece.above.length;
    for (const above of piece.above) (below[above] ??= []).push(number);
  });
  const order: number[] = [];
  for (const first of [true, false]) {
    for (let number = 0; number < pieces.length; number++) if (!waiting[number] && pieces[number].piece.fixed.first === first) order.push(number);
  }
  for (let place = 0; place < order.length; place++) {
    for (const number of below[order[place]] ?? []) if (!--waiting[number]) order.push(number);
  }
  return order;
}

interface Wish {
  readonly lowest: number;
  /** Lines lead on to the border at the top, or at the bottom: nothing may stand there. */
  readonly toTop: boolean;
  readonly toBottom: boolean;
}

/** The lower edge of the pieces so far: the next one goes where it lies highest. */
function skyline(end: number): (wide: number, high: number, wish: Wish) => { x: number; y: number } {
  const starts = [0];
  const depths = [0];
  return (wide, high, { lowest, toTop, toBottom }) => {
    let [best, y] = [-1, Infinity];
    for (let step = 0; step < starts.length && starts[step] + wide <= end + 0.01; step++) {
      let depth = lowest;
      for (let other = step; other < starts.length && starts[other] < starts[step] + wide - 0.01; other++) {
        depth = Math.max(depth, toTop && depths[other] > 0 ? Infinity : depths[other]);
        if (depth >= y) break;
      }
      if (depth < y) [best, y] = [step, depth];
    }
    if (best < 0) {
      // No room is left between the reserved areas: the block grows to the right.
      [best, y] = [starts.length, lowest];
      starts.push(end);
      depths.push(0);
      end += wide;
    }
    const x = starts[best];
    let last = best;
    while (last + 1 < starts.length && starts[last + 1] <= x + wide + 0.01) last++;
    const rest = x + wide < (starts[last + 1] ?? end) - 0.01;
    const depth = toBottom ? Infinity : y + high;
    depths.splice(best, last - best + 1, depth, ...(rest ? [depths[last]] : []));
    starts.splice(best, last - best + 1, x, ...(rest ? [x + wide] : []));
    return { x, y };
  };
}
