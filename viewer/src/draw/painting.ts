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
  /** The visible box of a node or a closed scope, -1 where there is none. */
  readonly ofNode: ReadonlyMap<number, number>;
  readonly ofScope: ReadonlyMap<number, number>;
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
  const ofNode = new Map<number, number>();
  const ofScope = new Map<number, number>();
  scene.boxes.forEach((box, at) => {
    bounds.set([box.x, box.y, box.x + box.width, box.y + box.height], 4 * at);
    if (box.node >= 0) ofNode.set(box.node, at);
    else ofScope.set(box.scope, at);
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
  return { scene, boxes: gridOf(bounds), lines: gridOf(lineBounds), first, lineOf, ofNode, ofScope, frameOf };
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

/** The box that shows a node: its own, that of what stands for it, or the closed module that holds it; -1 where none does. */
export function boxOfNode(shown: Shown, places: Places, node: number): number {
  const host = shown.instead[node] < 0 ? -1 : shown.host[shown.instead[node]];
  if (host < 0) return boxOfScope(shown, places, shown.model.nodes.scope[node]);
  return places.ofNode.get(host) ?? boxOfScope(shown, places, shown.scope[host]);
}

/** The box of a closed module, or of the closed one around it; -1 where all are opened. */
export function boxOfScope(shown: Shown, places: Places, scope: number): number {
  for (let at = scope; at >= 0; at = shown.scopes.parent[at]) {
    const box = places.ofScope.get(at);
    if (box !== undefined) return box;
  }
  return -1;
}

export function linesAt(places: Places, box: number): Int32Array {
  return places.lineOf.subarray(places.first[box], places.first[box + 1]);
}
