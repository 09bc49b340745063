/** What the page says of itself in words. */

import type { Stage } from "./draw/stage.ts";
import { statusWords } from "./draw/paint.ts";
import { numberText } from "./draw/plain.ts";
import { reason } from "./panels/cuts.ts";
import { caption } from "./scene/labels.ts";
import type { State } from "./state.ts";

/** What is selected, for the live region. */
export function selectedWords({ selected, opened }: State, stage: Stage): string {
  const { model } = stage.shown;
  if (selected.kind === "none") return "Nothing selected";
  if (selected.kind === "module") return `Module ${caption(stage.shown, selected.at)}, ${opened.has(selected.at) ? "open" : "closed"}`;
  if (selected.kind === "cut") return `Cut ${reason(model.cuts[selected.at])}`;
  if (selected.kind === "change") return `Change ${selected.at + 1} of ${model.changes.length}: ${model.changes[selected.at].text}`;
  const { nodes, texts } = model;
  return `${texts[nodes.op[selected.at]]} ${nodes.id(selected.at)} ${texts[nodes.dtype[selected.at]]}${texts[nodes.shape[selected.at]]} ${statusWords(nodes.status[selected.at])}`;
}

export function boxesWords({ scene }: Stage): string {
  return `${numberText(scene.boxes.length)} ${scene.boxes.length === 1 ? "box" : "boxes"}`;
}

/** What is followed, and how much of the drawing that is. */
export function trailWords({ trail }: State, { lit, scene }: Stage): string {
  if (trail === "") return "Nothing followed";
  if (lit === null) return "Select what to follow";
  return `${trail[0].toUpperCase()}${trail.slice(1)}: ${numberText(lit.reduce((sum, each) => sum + each, 0))} of ${numberText(scene.boxes.length)} boxes`;
}

/** The signs in the drawing that a legend has to explain, with the class of each. */
export function marksSeen({ scene, looks }: Stage): (readonly [className: string, words: string])[] {
  const { boxes, stubs, lines } = scene;
  const seen: (readonly [string, string])[] = [];
  if (looks.failed.includes(1)) seen.push(["failing", "the operation that failed"]);
  if (stubs.length > 0) seen.push(["cutting", "no gradient flows on: a cut"]);
  if (boxes.some((box) => box.times > 1)) seen.push(["times", "equal modules drawn once"]);
  if (looks.holds.some((held) => held > 0)) seen.push(["striped", "changes inside"]);
  if (lines.some((line) => line.marked)) seen.push(["wedge", "a far line: select its box"]);
  return seen;
}
