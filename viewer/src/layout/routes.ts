/** The ways of lines: from the bottom of a box past the points of the line to the top of another. */
import type { Box, Line } from "./layered.ts";
import { placesIn } from "./order.ts";
import type { PlacedPiece } from "./placed.ts";

interface Around {
  readonly boxes: readonly Box[];
  readonly lines: readonly Line[];
  readonly turned: Uint8Array;
  readonly x: Float64Array;
  readonly y: Float64Array;
}

/** Fills in the ways of the lines of a piece. Its short lines stand in the order of their lines, from above. */
export function waysOf(part: PlacedPiece, at: { left: number; top: number }, around: Around, ways: Float64Array[]): void {
  const { piece } = part;
  const { boxes, lines, turned, x, y } = around;
  const { rank } = placesIn(piece.layers, piece.vertices);
  let way: number[] = [];
  for (let short = 0; short < piece.line.length; short++) {
    const number = piece.line[short];
    const line = lines[number];
    const { fromAt = 0, toAt = 0 } = line;
    const [upper, lower] = [piece.upper[short], piece.lower[short]];
    if (upper < piece.boxes.length) {
      const box = piece.boxes[upper];
      const offset = turned[number] ? toAt : fromAt;
      way = [x[box] + boxes[box].width / 2 + offset, y[box] + boxes[box].height];
      // A box less high than its rank stands in its middle; beside it the way is straight.
      const bottom = at.top + part.bottom[rank[upper]];
      if (bottom > way[1] + 1) way.push(way[0], bottom);
    } else {
      const across = at.left + part.x[upper];
      way.push(across, at.top + part.top[rank[upper]], across, at.top + part.bottom[rank[upper]]);
    }
    if (lower >= piece.boxes.length) continue;
    const box = piece.boxes[lower];
    const end = x[box] + boxes[box].width / 2 + (turned[number] ? fromAt : toAt);
    const top = at.top + part.top[rank[lower]];
    if (top < y[box] - 1) way.push(end, top);
    way.push(end, y[box]);
    const straight = straighten(way);
    ways[number] = turned[number] === 1 ? backwards(straight) : straight;
  }
}

interface Placed extends Box {
  readonly x: number;
  readonly y: number;
}

/** How far a way round all boxes runs beside them, and above and below its ends. */
const aside = 9;

/** A line that is drawn when it is selected: round the boxes between its ends, on the nearer side of a drawing from left to right. */
export function wayAround(from: Placed, to: Placed, left: number, right: number, fromAt = 0, toAt = 0): Float64Array {
  const start = from.x + from.width / 2 + fromAt;
  const end = to.x + to.width / 2 + toAt;
  const [below, above] = [from.y + from.height, to.y];
  const side = start + end < left + right ? left - aside : right + aside;
  return Float64Array.of(start, below, side, below + aside, side, above - aside, end, above);
}

/** Leaves out corners that stand twice, or between which a way goes straight on. */
export function straighten(way: readonly number[]): Float64Array {
  const kept: number[] = [way[0], way[1]];
  for (let place = 2; place < way.length; place += 2) {
    const [x, y] = [way[place], way[place + 1]];
    const [startX, startY, beforeX, beforeY] = kept.length < 4 ? [NaN, NaN, ...kept] : kept.slice(-4);
    if (Math.abs(x - beforeX) < 0.01 && Math.abs(y - beforeY) < 0.01) continue;
    if (Math.abs((beforeX - startX) * (y - beforeY) - (x - beforeX) * (beforeY - startY)) < 0.5) kept.length -= 2;
    kept.push(x, y);
  }
  if (kept.length === 2) kept.push(kept[0], kept[1]);
  return Float64Array.from(kept);
}

function backwards(way: Float64Array): Float64Array {
  return way.map((_, at) => way[way.length - 2 - at + 2 * (at % 2)]);
}
