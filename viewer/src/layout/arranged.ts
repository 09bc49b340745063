/** What of a layout depends on the lines alone, not on sizes: ranks, marks, and the order within each rank. It is kept while modules open and close. */
import type { Line } from "./layered.ts";
import { marked } from "./marks.ts";
import { ordered } from "./order.ts";
import { partsOf } from "./pieces.ts";
import { ranked } from "./ranks.ts";
import type { Border } from "./ranks.ts";

/** Boxes that lines join, with the points that long lines pass: their vertices, boxes first. */
export interface Piece {
  /** Places of its boxes. */
  readonly boxes: readonly number[];
  readonly vertices: number;
  /** By rank, from the first one of the piece, its vertices from left to right. */
  readonly layers: readonly Int32Array[];
  readonly firstRank: number;
  /** Short lines between neighbouring ranks: upper and lower vertex, and the line that they are part of. */
  readonly upper: Int32Array;
  readonly lower: Int32Array;
  readonly line: Int32Array;
  /** Whether it holds points of the border. */
  readonly bordered: boolean;
  /** Pieces that must stand above it, since marked lines lead from them. */
  readonly above: readonly number[];
}

export interface Arranged {
  readonly rank: Int32Array;
  readonly turned: Uint8Array;
  readonly marks: Uint8Array;
  readonly pieces: readonly Piece[];
}

export function arranged(borders: readonly Border[], lines: readonly Line[]): Arranged {
  const { rank, turned } = ranked(borders, lines);
  const marks = marked(rank, turned, lines);
  const pieces = partsOf(borders, lines, rank, turned, marks).map(ordered);
  return { rank, turned, marks, pieces };
}
