/** What the page says of itself in words. */

import { statusWords } from "./draw/paint.ts";
import { numberText } from "./draw/plain.ts";
import type { Stage } from "./draw/stage.ts";
import { reason } from "./panels/entries.ts";
import { typeOf } from "./panels/pieces.ts";
import { caption } from "./scene/labels.ts";
import type { SceneBox } from "./scene/scene.ts";
import type { Selected, State } from "./state.ts";

/** What a box stands for. */
export function boxed({ node, scope }: SceneBox): Selected {
  return node >= 0 ? { kind: "node", at: node } : { kind: "module", at: scope };
}

/** What is selected, for the live region. */
export function selectedWords({ selected: { kind, at }, opened }: State, { shown }: Stage): string {
  const { nodes, texts, cuts, changes } = shown.model;
  if (kind === "module") return `Module ${caption(shown, at)}, ${opened.has(at) ? "open" : "closed"}`;
  if (kind === "cut") return `Cut ${reason(cuts[at])}`;
  if (kind === "change") return `Change ${at + 1} of ${changes.length}: ${changes[at].text}`;
  if (kind === "node") return `${texts[nodes.op[at]]} ${nodes.id(at)} ${typeOf(shown.model, at)} ${statusWords(nodes.status[at])}`;
  return "Nothing selected";
}

export function boxesWords({ scene: { boxes } }: Stage): string {
  return `${numberText(boxes.length)} ${boxes.length === 1 ? "box" : "boxes"}`;
}

/** What is followed, and how much of the drawing that is. */
export function trailWords({ trail }: State, { lit, scene }: Stage): string {
  if (trail === "") return "Nothing followed";
  if (lit === null) return "Select what to follow";
  return `${trail[0].toUpperCase()}${trail.slice(1)}: ${numberText(lit.reduce((sum, each) => sum + each, 0))} of ${numberText(scene.boxes.length)} boxes`;
}
