/** The part of a layout that depends on the lines alone, not on sizes: ranks, marks, and the order within each rank. It is cached while modules open and close. */
import type { Line } from "./layered.ts";
import { markLines } from "./marks.ts";
import { orderPiece, placesIn } from "./order.ts";
import { partsOf } from "./pieces.ts";
import { rankBoxes } from "./ranks.ts";
import type { Border } from "./ranks.ts";

/** Boxes that lines join, with the points that long lines pass: their vertices, boxes first. */
export interface Piece {
  /** Places of its boxes. */
  readonly boxes: readonly number[];
  readonly vertices: number;
  /** By rank its vertices from left to right. */
  readonly layers: readonly Int32Array[];
  /** Short lines between neighbouring ranks: upper and lower vertex, and the line that they are part of. */
  readonly upper: Int32Array;
  readonly lower: Int32Array;
  readonly line: Int32Array;
  /** Whether it holds points of the border, and whether its first and its last layer are such points, which keep the order given. */
  readonly bordered: boolean;
  readonly fixed: { readonly first: boolean; readonly last: boolean };
  /** Pieces that must stand above it, since marked lines lead from them. */
  readonly above: readonly number[];
}

export interface Arranged {
  readonly rank: Int32Array;
  readonly turned: Uint8Array;
  readonly marks: Uint8Array;
  readonly pieces: readonly Piece[];
}

export function arrange(borders: readonly Border[], lines: readonly Line[]): Arranged {
  const { rank, turned } = rankBoxes(borders, lines);
  const marks = markLines(rank, turned, lines);
  const pieces = partsOf(borders, lines, rank, turned, marks).map(orderPiece);
  return { rank, turned, marks, pieces };
}

/**
 * Lines at one side of a box from left to right, by where they come from or lead to next. Lines that are only marks are left out.
 */
export function acrossOrder({ pieces, turned }: Arranged, box: number, side: "in" | "out"): number[] {
  for (const piece of pieces) {
    const vertex = piece.boxes.indexOf(box);
    if (vertex < 0) continue;
    const { position } = placesIn(piece.layers, piece.vertices);
    const [at, next] = side === "in" ? [piece.lower, piece.upper] : [piece.upper, piece.lower];
    const found: { line: number; place: number }[] = [];
    at.forEach((own, short) => {
      const line = piece.line[short];
      if (own === vertex && !turned[line]) found.push({ line, place: position[next[short]] });
    });
    return found.sort((one, other) => one.place - other.place || one.line - other.line).map(({ line }) => line);
  }
  return [];
}
