/** A scene made ready for painting: found by place, with lines by box, and what is hidden or faded. */

import type { Shown } from "../graph/shown.ts";
import type { Scene } from "../scene/scene.ts";
import { type Grid, gridOf } from "./grid.ts";
import type { Looks } from "./looks.ts";
import type { Theme } from "./theme.ts";

export interface Places {
  readonly scene: Scene;
  readonly boxes: Grid;
  readonly lines: Grid;
  /** The lines at box b are `lineOf[first[b]]` up to `lineOf[first[b + 1]]`. */
  readonly first: Int32Array;
  readonly lineOf: Int32Array;
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
  /** 1 for each box that is part of what is followed; the others fade. */
  readonly lit: Uint8Array | null;
}

export function placesOf(scene: Scene): Places {
  const bounds = new Float64Array(4 * scene.boxes.length);
  scene.boxes.forEach((box, at) => {
    bounds.set([box.x, box.y, box.x + box.width, box.y + box.height], 4 * at);
  });
  const lineBounds = new Float64Array(4 * scene.lines.length);
  const first = new Int32Array(scene.boxes.length + 1);
  scene.lines.forEach((line, at) => {
    lineBounds.set(boundsOf(line.way), 4 * at);
    first[line.from + 1]++;
    first[line.to + 1]++;
  });
  for (let box = 0; box < scene.boxes.length; box++) first[box + 1] += first[box];
  const lineOf = new Int32Array(2 * scene.lines.length);
  const next = first.slice(0, scene.boxes.length);
  scene.lines.forEach((line, at) => {
    lineOf[next[line.from]++] = at;
    lineOf[next[line.to]++] = at;
  });
  const frameOf = new Map(scene.frames.map((frame, at) => [frame.scope, at]));
  return { scene, boxes: gridOf(bounds), lines: gridOf(lineBounds), first, lineOf, frameOf };
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

export function linesAt(places: Places, box: number): Int32Array {
  return places.lineOf.subarray(places.first[box], places.first[box + 1]);
}
