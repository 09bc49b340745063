/** What lies over the painted scene and changes with every move: captions of frames, what is pointed at, what is selected. */

import { listOf } from "../graph/columns.ts";
import { room } from "../scene/compose.ts";
import { fitted, font, textWidth } from "../scene/widths.ts";
import { type Camera, type Size, overlap, seen } from "./camera.ts";
import { arrow, isHidden, paintSigns, rims, stubLength } from "./paint.ts";
import { type Painting, linesAt } from "./painting.ts";
import type { Pen } from "./pen.ts";

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
  /** Whether the top of its frame is out of sight. */
  readonly isStuck: boolean;
}

const mostLines = 3000;

/** The captions in pixels of the view: at the top of each frame, or of the view where that is out of sight. */
export function captions(painting: Painting, camera: Camera, size: Size): Caption[] {
  const window = seen(camera, size);
  const high = Math.min(18, Math.max(13, 26 * camera.k));
  // By scope; captions that stick to the top stand each behind that of the frame around it.
  const known = new Map<number, { readonly y: number; readonly right: number; readonly isStuck: boolean }>();
  const { parent } = painting.shown.scopes;
  const made: Caption[] = [];
  painting.places.scene.frames.forEach((frame, at) => {
    if (frame.scope === 0 || !overlap(frame, window) || isHidden(painting, painting.looks.frames[at])) return;
    const left = (frame.x - camera.x) * camera.k;
    // Where there is too little room in the frame it stands above it, not over what is in it.
    const top = (frame.y - camera.y) * camera.k + Math.min(0, room.top * camera.k - high);
    const width = frame.width * camera.k;
    const height = frame.height * camera.k;
    const isSmall = camera.k * 12 < 8;
    if (width < 36 || height < (isSmall ? 70 : 18)) return;
    const scale = Math.min(13, Math.max(8.5, font.size * camera.k));
    const outer = known.get(parent[frame.scope]);
    const isBelow = outer === undefined || top >= outer.y + high;
    const isStuck = outer === undefined ? top < 0 : outer.isStuck && !isBelow;
    // Far out there is no room for the captions of all depths.
    if (!isBelow && !isStuck) return;
    const y = Math.min(isStuck ? (outer?.y ?? 0) : top, top + height - high);
    const x = isStuck && outer !== undefined && y === outer.y ? outer.right : Math.min(Math.max(left, 0), Math.max(left, left + width - 60));
    const most = (((isStuck ? size.width : Math.min(left + width, size.width)) - x - 26) * font.size) / scale;
    if (most < 40) return;
    const words = fitted(painting.words.get(frame)?.[0] ?? frame.caption, most, true);
    const wide = Math.min(isStuck ? size.width : width, (textWidth(words, true) * scale) / font.size + 28);
    made.push({ frame: at, x, y, width: wide, height: high, words, size: scale, isStuck });
    known.set(frame.scope, { y, right: x + wide + 2, isStuck });
  });
  return made;
}

/** The signs are painted with each caption: click on it to close the frame. */
export function paintCaptions(pen: Pen, painting: Painting, all: readonly Caption[], size: Size): void {
  const { theme, places } = painting;
  // Those that stick to the top have a band of their own.
  const stuck = all.filter(({ isStuck, y }) => isStuck && y > -1);
  if (stuck.length > 0) pen.rectangles([0, 0, size.width, stuck[0].height + 1], theme("panel"), null, 0);
  for (const { frame, x, y, width, height, words, size } of all) {
    const tint = theme(places.scene.frames[frame].depth % 2 === 0 ? "frame-a" : "frame-b");
    pen.rectangles([x + 2, y + 1, width - 4, height - 2], tint, null, 4);
    pen.text("\u2212", x + 7, y + height * 0.75, size, theme("quiet"), true, "left");
    pen.text(words, x + 20, y + height * 0.75, size, theme("text"), true, "left", width - 22);
  }
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
    pen.curves(own, { colour, width: width * 0.75 });
    pen.polygons(
      own.map((way) => arrow(way, 1.2)),
      colour,
    );
  }
  pen.rectangles(others, null, { colour: theme("accent"), width: width * 0.6 }, 5);
  const { x, y, width: wide, height } = boxes[at];
  pen.rectangles([x - 1, y - 1, wide + 2, height + 2], null, { colour: theme("accent"), width }, 6);
  paintSigns(pen, painting, marked, k);
}
