/** The layer over the painted scene that changes with every move: captions of frames, the pointed box, the selection. */

import { listOf } from "../graph/columns.ts";
import { room } from "../scene/compose.ts";
import { cutToWidth, font, textWidth } from "../scene/widths.ts";
import { type Camera, type Size, overlap, visibleArea } from "./camera.ts";
import { arrow, isHidden, legible, paintSigns, rims, stubLength } from "./paint.ts";
import { type Painting, linesAt } from "./painting.ts";
import { type Pen, canvasPen, lookFrom } from "./pen.ts";

/** Places in the scene, -1 for none. */
export interface Marks {
  readonly box: number;
  readonly frame: number;
  readonly stub: number;
}

export const noMarks: Marks = { box: -1, frame: -1, stub: -1 };

export interface Caption {
  readonly frame: number;
  readonly x: number;
  readonly y: number;
  readonly width: number;
  readonly height: number;
  readonly words: string;
  readonly size: number;
  /** Where it and those behind it end at the latest. */
  readonly end: number;
  /** Whether it goes on after that of the frame around it. */
  readonly isBehind: boolean;
}

const mostLines = 3000;

/**
 * The captions in pixels of the view: at the top of each frame, or of the view where that is out of sight. There they are one line, each behind
 * that of the frame around it; frames beside each other keep to their own columns.
 */
export function captions(painting: Painting, camera: Camera, size: Size): Caption[] {
  const window = visibleArea(camera, size);
  const high = Math.min(18, Math.max(13, 26 * camera.k));
  const { parent } = painting.shown.scopes;
  const { frames } = painting.places.scene;
  const inSight = [...frames.keys()].filter((at) => overlap(frames[at], window) && !isHidden(painting, painting.looks.frames[at]));
  // With too little room in the frame the caption stands above it, not over its contents.
  const topOf = (at: number): number => (frames[at].y - camera.y) * camera.k + Math.min(0, room.top * camera.k - high);
  // By the scope around, how many frames the top of the view may pass through.
  const beside = new Map<number, number>();
  for (const at of inSight) {
    const around = parent[frames[at].scope];
    if (topOf(at) < high) beside.set(around, (beside.get(around) ?? 0) + 1);
  }
  const known = new Map<number, Caption | undefined>();
  const made: Caption[] = [];
  for (const at of inSight) {
    const frame = frames[at];
    const left = (frame.x - camera.x) * camera.k;
    const top = topOf(at);
    const width = frame.width * camera.k;
    const height = frame.height * camera.k;
    if (width < 36 || height < (camera.k * font.size < legible ? 70 : 18)) continue;
    const scale = Math.min(13, Math.max(11, font.size * camera.k));
    const outer = known.get(parent[frame.scope]);
    const isBelow = outer === undefined || top >= outer.y + high;
    const isStuck = outer === undefined ? top < 0 : outer.y <= 0 && !isBelow;
    // Far out there is no room for the captions of all depths.
    if (!isBelow && !isStuck) {
      known.set(frame.scope, outer);
      continue;
    }
    const isBehind = isStuck && outer !== undefined;
    const hasOwn = !isStuck || beside.get(parent[frame.scope])! > 1;
    const lowest = top + height - high;
    const y = isBehind ? outer.y : Math.min(isStuck ? 0 : top, lowest);
    const x = isBehind ? Math.max(outer.x + outer.width + 10, hasOwn ? left : 0) : Math.min(Math.max(left, 0), Math.max(left, left + width - 60));
    const end = Math.min(isBehind ? outer.end : size.width, hasOwn ? left + width : size.width);
    const most = ((end - x - 26) * font.size) / scale;
    const words = cutToWidth(painting.words.get(frame)?.[0] ?? frame.caption, most, true);
    const wide = Math.min(end - x, (textWidth(words, true) * scale) / font.size + 28);
    const caption = { frame: at, x, y, width: wide, height: high, words, size: scale, end, isBehind };
    known.set(frame.scope, caption);
    // Where there is no room for it there is none for those in it.
    if (most >= 40 && lowest >= y) made.push(caption);
  }
  return made;
}

/** The signs are painted with each caption: click on it to close the frame. */
export function paintCaptions(pen: Pen, painting: Painting, camera: Camera, size: Size): void {
  const { theme, places } = painting;
  const all = captions(painting, camera, size);
  // Those at the top have a band of their own.
  const atTop = all.find(({ y }) => y === 0);
  if (atTop) pen.rectangles([0, 0, size.width, atTop.height + 1], theme("panel"), null, 0);
  for (const { frame, x, y, width, height, words, size, isBehind } of all) {
    const tint = theme(places.scene.frames[frame].depth % 2 === 0 ? "frame-a" : "frame-b");
    pen.rectangles([x + 2, y + 1, width - 4, height - 2], tint, null, 4);
    if (isBehind) pen.text("\u203a", x - 6, y + height * 0.75, size, theme("quiet"), true, "left");
    pen.text("\u2212", x + 7, y + height * 0.75, size, theme("quiet"), true, "left");
    pen.text(words, x + 20, y + height * 0.75, size, theme("text"), true, "left", width - 22);
  }
}

/** Paints the marks and the captions, in the pixels of a canvas. */
export function paintOver(context: CanvasRenderingContext2D, painting: Painting, camera: Camera, size: Size, ratio: number, selected: Marks, pointed: Marks): void {
  const pen = canvasPen(context);
  lookFrom(context, camera, ratio);
  paintMarks(pen, painting, selected, pointed, camera.k);
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  paintCaptions(pen, painting, camera, size);
}

/** Selected and pointed-at things, in the coordinates of the scene. */
export function paintMarks(pen: Pen, painting: Painting, selected: Marks, pointed: Marks, k: number): void {
  const { theme, looks, places } = painting;
  for (const [{ box, frame, stub }, thin] of [
    [pointed, 1.5],
    [selected, 3],
  ] as const) {
    const width = Math.max(thin, thin / k);
    const stroke = { colour: theme("accent"), width };
    if (box >= 0 && !isHidden(painting, looks.status[box])) paintMarkedBox(pen, painting, box, width, k);
    if (frame >= 0) {
      const { x, y, width: wide, height } = places.scene.frames[frame];
      pen.rectangles([x, y, wide, height], null, stroke, 8);
    }
    if (stub >= 0) {
      const { x, y, above } = places.scene.stubs[stub];
      const pad = 4 / Math.min(1, k);
      pen.rectangles([x - 6 - pad, above ? y - stubLength - pad : y, 12 + 2 * pad, stubLength + pad], null, stroke, 4);
    }
  }
}

function paintMarkedBox(pen: Pen, painting: Painting, at: number, width: number, k: number): void {
  const { places, theme, looks } = painting;
  const { boxes, lines } = places.scene;
  const ways = new Map<string, Float64Array[]>();
  const others: number[] = [];
  const marked = [at];
  for (const each of linesAt(places, at).subarray(0, mostLines)) {
    const line = lines[each];
    const other = line.from === at ? line.to : line.from;
    if (isHidden(painting, line.status) || isHidden(painting, looks.status[other])) continue;
    const colour = line.status > 0 ? theme(rims[line.status]) : theme("accent");
    listOf(ways, colour).push(line.way);
    const { x, y, width: wide, height } = boxes[other];
    others.push(x, y, wide, height);
    marked.push(other);
  }
  for (const [colour, own] of ways) {
    pen.curves(own, { colour, width: width * 0.75 }, places.scene.across);
    pen.polygons(
      own.map((way) => arrow(way, 1.2, places.scene.across)),
      colour,
    );
  }
  pen.rectangles(others, null, { colour: theme("accent"), width: width * 0.6 }, 5);
  const { x, y, width: wide, height } = boxes[at];
  pen.rectangles([x - 1, y - 1, wide + 2, height + 2], null, { colour: theme("accent"), width }, 6);
  paintSigns(pen, painting, marked, k);
}
