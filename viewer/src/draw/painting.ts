/** A scene that is ready for painting: an index by place, the lines of each box, and the hidden and faded boxes. */

import { type Groups, groupByKey, rowsAt } from "../graph/columns.ts";
import type { Shown } from "../graph/shown.ts";
import type { Rectangle, Scene } from "../scene/scene.ts";
import { type Grid, gridOf } from "./grid.ts";
import type { Looks } from "./looks.ts";
import type { Theme } from "./theme.ts";

export interface Places {
  readonly scene: Scene;
  readonly boxes: Grid;
  readonly lines: Grid;
  /** By box the ends of lines there: first those that begin, by line, then those that end. */
  readonly ends: Groups;
  /** The frame of an opened scope. */
  readonly frameOf: ReadonlyMap<number, number>;
}

export interface Painting {
  readonly shown: Shown;
  readonly places: Places;
  readonly looks: Looks;
  readonly theme: Theme;
  /** A bit for each status that is not drawn: one side of two. */
  readonly hidden: number;
  /** 1 for each box on the followed way, 2 if all ways lead through it; the others fade. */
  readonly lit: Uint8Array | null;
  /** Texts of boxes and frames that replace those of the scene. */
  readonly words: ReadonlyMap<Rectangle, readonly string[]>;
}

export function placesOf(scene: Scene): Places {
  const { boxes, lines } = scene;
  const bounds = Float64Array.from(boxes.flatMap(({ x, y, width, height }) => [x, y, x + width, y + height]));
  const lineBounds = new Float64Array(4 * lines.length);
  lines.forEach(({ way }, at) => lineBounds.set(boundsOf(way), 4 * at));
  const ends = groupByKey([...lines.map(({ from }) => from), ...lines.map(({ to }) => to)], boxes.length);
  const frameOf = new Map(scene.frames.map((frame, at) => [frame.scope, at]));
  return { scene, boxes: gridOf(bounds), lines: gridOf(lineBounds), ends, frameOf };
}

function boundsOf(way: Float64Array): [number, number, number, number] {
  let [left, top] = way;
  let [right, bottom] = [left, top];
  for (let at = 2; at < way.length; at += 2) {
    left = Math.min(left, way[at]);
    right = Math.max(right, way[at]);
    top = Math.min(top, way[at + 1]);
    bottom = Math.max(bottom, way[at + 1]);
  }
  return [left, top, right, bottom];
}

/** The lines at a box. */
export function linesAt({ scene: { lines }, ends }: Places, box: number): Int32Array {
  return rowsAt(ends, box).map((row) => row % lines.length);
}
