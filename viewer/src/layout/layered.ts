/**
 * A layered layout of the boxes of one opened module: pure numbers in, numbers out. It knows nothing of graphs, modules or canvases.
 */
import { arrange } from "./arranged.ts";
import { placeAll } from "./placed.ts";

export interface Box {
  readonly width: number;
  readonly height: number;
  /** Pinned to the first rank (`in`) or the last one (`out`): where lines from and to the outside pass the border, in the order given. */
  readonly border?: "in" | "out" | undefined;
}

/** A line between two boxes, by their places; `weight` is how many edges it stands for. */
export interface Line {
  readonly from: number;
  readonly to: number;
  readonly weight: number;
  /** How far right of the middle of its box each end is, 0 if not said. */
  readonly fromAt?: number;
  readonly toAt?: number;
}

export interface Layout {
  /** Top left corners of the boxes, in the order given. */
  readonly x: Float64Array;
  readonly y: Float64Array;
  readonly rank: Int32Array;
  readonly width: number;
  readonly height: number;
  /** By line the corners of its way as x, y, x, y, …; drawn as a smooth curve, or straight where there are two. */
  readonly ways: readonly Float64Array[];
  /** By line 1 where it passes so many ranks, or its source has so many consumers, that marks at both ends are drawn instead until it is selected. */
  readonly marks: Uint8Array;
}

/**
 * Boxes in ranks, so that every line leads down (but for one of each cycle), with few crossings, without overlaps; a chain is straight.
 * Parts that no line joins stand beside each other in a compact block. The same boxes and lines give the same layout.
 */
export function layOut(boxes: readonly Box[], lines: readonly Line[]): Layout {
  return placeAll(arrange(boxes.map(({ border }) => border), lines), boxes, lines);
}
