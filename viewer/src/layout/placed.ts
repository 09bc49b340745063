/** Computes places for boxes and ways for lines from their order and sizes. */
import type { Arranged, Piece } from "./arranged.ts";
import { boundsOf, middlesOf } from "./coordinates.ts";
import type { Box, Layout, Line } from "./layered.ts";
import { packPieces } from "./packed.ts";
import { placesIn, webOf } from "./order.ts";
import { wayAround, waysOf } from "./routes.ts";

/** From rank to rank, and the most that is added where lines run far sideways. */
const rankGap = 32;
/** The distance between the border and the nearest box; the frame has room of its own there. */
const borderGap = 6;
const mostSlack = 48;

/** A piece at a place of its own, from (0, 0) on. */
export interface PlacedPiece {
  readonly piece: Piece;
  /** By vertex the middle; by rank its top and bottom. */
  readonly x: ArrayLike<number>;
  readonly top: ArrayLike<number>;
  readonly bottom: ArrayLike<number>;
  readonly width: number;
  readonly height: number;
}

export function placeAll(arranged: Arranged, boxes: readonly Box[], lines: readonly Line[], gap = rankGap): Layout {
  const { rank, turned, marks, pieces } = arranged;
  const x = new Float64Array(boxes.length);
  const y = new Float64Array(boxes.length);
  const ways: Float64Array[] = new Array<Float64Array>(lines.length);
  const own = pieces.map((piece) => placePiece(piece, turned, boxes, lines, gap));
  const { left, top, width, height } = packPieces(own);
  own.forEach((part, number) => {
    const { piece } = part;
    if (piece.vertices === 1 && !piece.bordered) {
      x[piece.boxes[0]] = left[number];
      y[piece.boxes[0]] = top[number];
      return;
    }
    piece.layers.forEach((layer, step) => {
      for (const vertex of layer) {
        if (vertex >= piece.boxes.length) continue;
        const box = piece.boxes[vertex];
        const { width: wide, height: high, border } = boxes[box];
        x[box] = left[number] + part.x[vertex] - wide / 2;
        y[box] = top[number] + (part.top[step] + part.bottom[step] - high) / 2;
        if (border === "in") y[box] = 0;
        if (border === "out") y[box] = height - high;
      }
    });
    waysOf(part, { left: left[number], top: top[number] }, { boxes, lines, turned, x, y }, ways);
  });
  for (let line = 0; line < lines.length; line++) {
    if (!marks[line]) continue;
    const { from, to, fromAt, toAt } = lines[line];
    const [start, end] = [from, to].map((box) => ({ ...boxes[box], x: x[box], y: y[box] }));
    ways[line] = wayAround(start, end, 0, width, fromAt, toAt);
  }
  return { x, y, rank, width, height, ways, marks };
}

function placePiece(piece: Piece, turned: Uint8Array, boxes: readonly Box[], lines: readonly Line[], gap: number): PlacedPiece {
  if (piece.vertices === 1) {
    const { width, height } = boxes[piece.boxes[0]];
    return { piece, x: [width / 2], top: [0], bottom: [height], width, height };
  }
  const web = webOf(piece);
  const widths = new Float64Array(piece.vertices);
  piece.boxes.forEach((box, vertex) => (widths[vertex] = boxes[box].width));
  const x = middlesOf(web, widths, endsOf(piece, turned, lines));
  const [least, most] = boundsOf(x, widths);
  for (let vertex = 0; vertex < x.length; vertex++) x[vertex] -= least;
  const { top, bottom } = rows(piece, boxes, x, gap);
  return { piece, x, top, bottom, width: most - least, height: bottom[bottom.length - 1] };
}

function endsOf(piece: Piece, turned: Uint8Array, lines: readonly Line[]): { atUpper: Float64Array; atLower: Float64Array } {
  const atUpper = new Float64Array(piece.line.length);
  const atLower = new Float64Array(piece.line.length);
  const boxes = piece.boxes.length;
  for (let short = 0; short < piece.line.length; short++) {
    const { fromAt = 0, toAt = 0 } = lines[piece.line[short]];
    const [first, last] = turned[piece.line[short]] ? [toAt, fromAt] : [fromAt, toAt];
    if (piece.upper[short] < boxes) atUpper[short] = first;
    if (piece.lower[short] < boxes) atLower[short] = last;
  }
  return { atUpper, atLower };
}

/** The top and bottom of each rank. Where lines run far sideways there is more room below. */
function rows(piece: Piece, boxes: readonly Box[], x: Float64Array, gap: number): { top: Float64Array; bottom: Float64Array } {
  const { layers } = piece;
  const rankOf = placesIn(layers, piece.vertices).rank;
  const slack = new Float64Array(layers.length);
  for (let short = 0; short < piece.line.length; short++) {
    const sideways = Math.abs(x[piece.upper[short]] - x[piece.lower[short]]);
    const rank = rankOf[piece.upper[short]];
    slack[rank] = Math.max(slack[rank], Math.min(mostSlack, sideways / 12));
  }
  const isBorder = layers.map((layer) => layer.some((vertex) => vertex < piece.boxes.length && boxes[piece.boxes[vertex]].border !== undefined));
  const top = new Float64Array(layers.length);
  const bottom = new Float64Array(layers.length);
  let at = 0;
  layers.forEach((layer, rank) => {
    top[rank] = at;
    let high = 0;
    for (const vertex of layer) if (vertex < piece.boxes.length) high = Math.max(high, boxes[piece.boxes[vertex]].height);
    bottom[rank] = at + high;
    const least = isBorder[rank] || isBorder[rank + 1] ? borderGap : gap;
    if (layer.length) at += high + (rank + 1 < layers.length ? least + slack[rank] : 0);
  });
  return { top, bottom };
}
