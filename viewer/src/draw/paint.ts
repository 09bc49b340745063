/** Paints the part of a scene in a window: frames, lines, boxes and stubs, in batches of one look. */

import { statuses } from "../data/model.ts";
import { listOf } from "../graph/columns.ts";
import type { Rectangle, SceneLine } from "../scene/scene.ts";
import { cutToWidth, font, textWidth } from "../scene/widths.ts";
import { overlap } from "./camera.ts";
import { statusSigns } from "./looks.ts";
import type { Painting } from "./painting.ts";
import type { Pen } from "./pen.ts";
import type { Token } from "./theme.ts";

/** The least height in pixels of a text that is worth drawing. */
export const legible = 5;
const radius = 5;
const faded = 0.18;

export const rims: readonly Token[] = ["rim", "added-rim", "removed-rim", "changed-rim", "renamed-rim", "moved-rim"];

export function paintScene(pen: Pen, painting: Painting, window: Rectangle, k: number): void {
  const { boxes, lines } = painting.places;
  pen.opacity(1);
  paintFrames(pen, painting, window, k);
  const visible = boxes.inside(grown(window, 8)).filter((box) => !isHidden(painting, painting.looks.status[box]));
  paintLines(pen, painting, lines.inside(window), k);
  const { lit } = painting;
  for (const wanted of lit ? [0, 1] : [1]) {
    pen.opacity(wanted ? 1 : faded);
    paintBoxes(pen, painting, lit ? visible.filter((box) => !lit[box] === !wanted) : visible, k);
  }
  paintStubs(pen, painting, window, k, visible);
}

function grown(window: Rectangle, by: number): Rectangle {
  return { x: window.x - by, y: window.y - by, width: window.width + 2 * by, height: window.height + 2 * by };
}

export function isHidden(painting: Painting, status: number): boolean {
  return ((painting.hidden >> status) & 1) === 1;
}

function paintFrames(pen: Pen, painting: Painting, window: Rectangle, k: number): void {
  const { theme } = painting;
  // Outer before inner, so each must be painted by itself: neighbours of one depth go in one batch.
  let depth = -1;
  let batch: number[] = [];
  const flush = (): void => {
    pen.rectangles(
      batch,
      theme(depth % 2 === 0 ? "frame-a" : "frame-b"),
      { colour: theme("frame-rim"), width: Math.max(1, 0.75 / k) },
      k > 0.1 ? 8 : 0,
    );
    batch = [];
  };
  painting.places.scene.frames.forEach((frame, at) => {
    if (!overlap(frame, window) || isHidden(painting, painting.looks.frames[at])) return;
    if (frame.depth !== depth) {
      flush();
      depth = frame.depth;
    }
    batch.push(frame.x, frame.y, frame.width, frame.height);
  });
  flush();
}

const widths = [1, 1.6, 2.4, 3.4];

function paintLines(pen: Pen, painting: Painting, visible: readonly number[], k: number): void {
  const { scene } = painting.places;
  const { theme, lit, looks } = painting;
  const batches = new Map<number, Float64Array[]>();
  const ports: number[][] = [];
  const { across } = scene;
  /** By box how many lines on a trail leave it: all ways lead along a lone one. */
  const leaving = new Int32Array(scene.boxes.length);
  if (lit) for (const { from, to } of scene.lines) if (lit[from] && lit[to]) leaving[from]++;
  const words: (readonly [SceneLine, number])[] = [];
  for (const at of visible) {
    const line = scene.lines[at];
    if (isHidden(painting, line.status) || isHidden(painting, looks.status[line.from]) || isHidden(painting, looks.status[line.to])) continue;
    const isLit = lit === null || (lit[line.from] > 0 && lit[line.to] > 0);
    const lighting = lit === null ? 1 : !isLit ? 0 : lit[line.from] === 2 && leaving[line.from] === 1 ? 3 : 2;
    if (line.marked && !(lit !== null && isLit)) {
      if (k > 0.25) ports.push(port(line.way, 0, 1, across), port(line.way, line.way.length - 2, -1, across));
      continue;
    }
    const weight = line.weight >= 64 ? 3 : line.weight >= 12 ? 2 : line.weight >= 2 ? 1 : 0;
    const key = ((lighting * statuses.length + line.status) * 4 + weight) * 16 + (line.kind < 0 ? 15 : Math.min(14, line.kind));
    if (line.words && font.size * k >= legible) words.push([line, isLit ? 1 : faded]);
    listOf(batches, key).push(line.way);
  }
  for (const [key, ways] of [...batches].sort((one, other) => one[0] - other[0])) {
    const kind = key % 16;
    const weight = Math.floor(key / 16) % 4;
    const status = Math.floor(key / 64) % statuses.length;
    const lighting = Math.floor(key / 64 / statuses.length);
    const colour = kind === 15 ? theme("cut") : lighting > 1 ? theme("accent") : status > 0 ? theme(rims[status]) : theme("line");
    pen.opacity(lighting === 0 ? faded : 1);
    const width = Math.max(widths[lighting > 2 ? 3 : weight], 0.6 / k);
    const dash = status === 2 || kind === 15 ? [6, 4] : kind > 0 ? [2, 3] : undefined;
    pen.curves(ways, dash ? { colour, width, dash } : { colour, width }, across);
    if (k > 0.3)
      pen.polygons(
        ways.map((way) => arrow(way, 1, across)),
        colour,
      );
  }
  for (const [{ way, words: own, at, isLeft }, opacity] of words) {
    pen.opacity(opacity);
    // Along a line that runs across there is room above it, or below.
    const [x, y] = across ? [at ? -9 : 6, isLeft ? 14 : -5] : [isLeft ? -6 : 6, at ? -9 : 14];
    pen.text(own, way[at] + x, way[at + 1] + y, font.size, theme("quiet"), false, (across ? at : isLeft) ? "right" : "left");
  }
  pen.opacity(1);
  pen.polygons(ports, theme("quiet"));
}

/** The head of a line, at its end, as it comes in from above, or from the left. */
export function arrow(way: Float64Array, scale: number, across: boolean): number[] {
  const [x, y, before] = across ? [way.at(-1)!, way.at(-2)!, way.at(-4)!] : [way.at(-2)!, way.at(-1)!, way.at(-3)!];
  const back = y >= before ? -7 * scale : 7 * scale;
  return swapAxes([x, y, x - 3.2 * scale, y + back, x + 3.2 * scale, y + back], across);
}

/** The same corners with x for y. */
function swapAxes(corners: readonly number[], across: boolean): number[] {
  return corners.map((_, at) => corners[across ? at ^ 1 : at]);
}

/** A mark for a line that is not drawn: a small wedge that leaves (1) or enters (-1) its box. */
function port(way: Float64Array, at: number, leaves: number, across: boolean): number[] {
  const [x, y] = swapAxes([way[at], way[at + 1]], across);
  return swapAxes(leaves > 0 ? [x - 3.5, y, x + 3.5, y, x, y + 5] : [x - 3.5, y - 5, x + 3.5, y - 5, x, y], across);
}

/** Beside the statuses. */
const failed = statuses.length;

function paintBoxes(pen: Pen, painting: Painting, visible: readonly number[], k: number): void {
  const { places, looks, theme } = painting;
  const { boxes } = places.scene;
  const fills = new Map<Token, number[]>();
  const outlines = new Map<number, number[]>();
  const cards: number[] = [];
  const round = k > 0.35 ? radius : 0;
  for (const at of visible) {
    const box = boxes[at];
    const { x, y, width, height } = box;
    listOf(fills, looks.fill[at]).push(x, y, width, height);
    listOf(outlines, (looks.failed[at] ? failed - 1 + looks.failed[at] : looks.status[at]) * 2 + (box.node < 0 ? 1 : 0)).push(x, y, width, height);
    if (box.times > 1) cards.push(x + 4, y + 4, width, height);
  }
  pen.rectangles(cards, theme("module"), { colour: theme("rim"), width: 1 }, round);
  for (const [token, places] of fills) pen.rectangles(places, theme(token), null, round);
  if (k > 0.08) {
    for (const [key, places] of outlines) {
      const status = key >> 1;
      const colour = theme(rims[status] ?? "cut");
      const width = status === failed ? 3 : status > 0 ? 2 : key > 0 ? 1.5 : 1;
      pen.rectangles(places, null, status === 2 || status > failed ? { colour, width, dash: [5, 3] } : { colour, width }, round);
    }
  }
  // All ways lead through these.
  pen.rectangles(visible.filter((at) => painting.lit?.[at] === 2).flatMap((at) => [boxes[at].x, boxes[at].y, boxes[at].width, boxes[at].height]), null, { colour: theme("accent"), width: 3 }, round);
  paintStripes(pen, painting, visible, k);
  if (font.size * k < legible) return;
  for (const at of visible) paintLabel(pen, painting, at, true);
  for (const at of visible) paintLabel(pen, painting, at, false);
  paintSigns(pen, painting, visible, k);
}

/** First lines are bold and the rest is not: two rounds, so that the font changes twice and not with every box. */
function paintLabel(pen: Pen, { places, theme, words }: Painting, at: number, isFirst: boolean): void {
  const box = places.scene.boxes[at];
  const label = words.get(box) ?? box.label;
  const top = box.y + box.height / 2 - (label.length * font.line) / 2 + font.line * 0.77;
  const middle = box.x + box.width / 2;
  if (isFirst) {
    if (label.length > 0) pen.text(label[0], middle, top, font.size, theme("text"), true, "center", box.width - 6);
    return;
  }
  for (let line = 1; line < label.length; line++)
    pen.text(label[line], middle, top + line * font.line, font.size, theme("text"), false, "center", box.width - 6);
}

const badge = 13;

/** Signs stand on the upper corners of a box, where no text is: its status or role at the left, and at the right that it can be opened. */
export function paintSigns(pen: Pen, { places, looks, theme }: Painting, visible: readonly number[], k: number): void {
  if (font.size * k < legible) return;
  const plates = new Map<string, number[]>();
  const signs: (readonly [string, number, number, string])[] = [];
  const put = (sign: string, x: number, y: number, colour: string): void => {
    listOf(plates, colour).push(x - badge / 2, y - badge / 2, badge, badge);
    signs.push([sign, x, y + 4, colour]);
  };
  for (const at of visible) {
    const box = places.scene.boxes[at];
    const sign = ["", "\u2715", "\u2298"][looks.failed[at]] || looks.sign[at];
    const colour = looks.failed[at] ? theme("cut") : looks.status[at] > 0 ? theme(rims[looks.status[at]]) : theme("quiet");
    if (sign !== "") put(sign, box.x + 3, box.y, colour);
    if (box.node < 0) put("+", box.x + box.width - 3, box.y, theme("quiet"));
  }
  for (const [colour, squares] of plates) pen.rectangles(squares, theme("ground"), { colour, width: 1 }, badge / 2);
  // A tilde is small for its size.
  for (const [sign, x, y, colour] of signs) pen.text(sign, x, sign === "~" ? y + 1 : y, sign === "~" ? 15 : 10, colour, true, "center");
}

/** A band of slanted stripes at the left of a closed module that contains changes, in the colours of these. */
function paintStripes(pen: Pen, { places, looks, theme }: Painting, visible: readonly number[], k: number): void {
  const batches = new Map<number, number[][]>();
  const wide = 7;
  const high = 6;
  for (const at of visible) {
    const held: number[] = [];
    for (let status = 1; status < statuses.length; status++) if ((looks.holds[at] >> status) & 1) held.push(status);
    if (held.length === 0) continue;
    const box = places.scene.boxes[at];
    const many = k < 0.15 ? 1 : Math.max(1, Math.floor((box.height - 2) / (2 * high)));
    for (let stripe = 0; stripe < Math.max(many, held.length); stripe++) {
      const status = held[stripe % held.length];
      const part = (box.height - 2) / Math.max(many, held.length);
      const top = box.y + 1 + stripe * part;
      const slant = Math.min(3, part / 4);
      listOf(batches, status).push([box.x, top + slant, box.x + wide, top, box.x + wide, top + part * 0.6, box.x, top + part * 0.6 + slant]);
    }
  }
  for (const [status, polygons] of batches) pen.polygons(polygons, theme(rims[status]));
}

export const stubLength = 12;

/** A cut: a dashed end with a bar, and the name of the cutting operation beside it. */
function paintStubs(pen: Pen, painting: Painting, window: Rectangle, k: number, visible: readonly number[]): void {
  const { shown, places, theme, looks } = painting;
  // With its box or frame; nothing becomes of the whole.
  const isGone = (box: number): boolean => isHidden(painting, looks.status[box] ?? looks.frames[box - looks.status.length] ?? 0);
  const near = grown(window, 160);
  const inside = places.scene.stubs
    .filter((stub) => overlap({ x: stub.x, y: stub.y, width: 0, height: 0 }, near) && !isGone(stub.box) && !isHidden(painting, shown.model.cuts[stub.cut].status ?? 0))
    .map((stub) => ({ ...stub, end: stub.y + (stub.above ? -stubLength : stubLength) }));
  pen.curves(
    inside.map(({ x, y, end }) => Float64Array.of(x, y, x, end)),
    { colour: theme("cut"), width: Math.max(1.6, 0.8 / k), dash: [3, 2] },
    false,
  );
  pen.polygons(
    inside.map(({ x, end }) => [x - 6, end - 1.5, x + 6, end - 1.5, x + 6, end + 1.5, x - 6, end + 1.5]),
    theme("cut"),
  );
  if (font.size * k < legible) return;
  // Stubs stand close together: those of one box that say the same say it once, behind the last of them.
  const said = new Map<string, { readonly words: string; readonly line: string; readonly x: number; readonly y: number; readonly times: number }>();
  for (const { box, x, end, above, cut } of inside) {
    const { op, kind, status, source } = shown.model.cuts[cut];
    // The details have the folder.
    const line = source.split(" in ")[0].replace(/^.*\//, "");
    const words = (status === 2 ? `${statusSigns[2]} ` : "") + (op || kind);
    const key = `${box} ${above} ${words}`;
    const before = said.get(key);
    said.set(key, { words, line: before && before.line !== line ? "" : line, x: Math.max(x, before?.x ?? x), y: end + (above ? 6 : 4), times: (before?.times ?? 0) + 1 });
  }
  const { boxes, frames } = places.scene;
  for (const { words, line, x, y, times } of said.values()) {
    const more = times > 1 ? ` \u00d7${times}` : "";
    const text = cutToWidth(words + (line && ` ${line}`), mostWords, true) + more;
    const place = { x: x + 9, y: y - 9, width: textWidth(text, true), height: 9 };
    // The line gives way to a box, and to a frame that the cut is not in: the details have it.
    const isFree = !visible.some((at) => overlap(boxes[at], place)) && frames.every((frame) => !overlap(frame, place) || overlap(frame, { ...place, width: 0 }));
    pen.text(isFree ? text : cutToWidth(words, mostWords, true) + more, place.x, y, font.size, theme("cut"), true, "left");
  }
}

/** How wide the words at a cut may be. */
export const mostWords = 160;

/** The words of a status for those who do not see its colour. */
export function statusWords(status: number): string {
  return status === 0 ? "" : `${statusSigns[status]} ${statuses[status]}`;
}
