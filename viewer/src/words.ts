/** The texts of the page about itself. */

import { roles } from "./data/model.ts";
import { statusWords } from "./draw/paint.ts";
import { numberText } from "./draw/plain.ts";
import type { Stage } from "./draw/stage.ts";
import type { Page } from "./panels/context.ts";
import { reason } from "./panels/entries.ts";
import { typeOf } from "./panels/pieces.ts";
import type { SceneBox } from "./scene/scene.ts";
import type { Selected, State } from "./state.ts";

/** Return the node or module of a box. */
export function selectBox({ node, scope }: SceneBox): Selected {
  return node >= 0 ? { kind: "node", at: node } : { kind: "module", at: scope };
}

/** Describe a selection in three parts: its kind, its name, and a note. */
export function describeSelection({ model, shown }: Page, { kind, at }: Selected): readonly [what: string, name: string, note: string] {
  const { nodes, scopes, texts, cuts, changes } = model;
  if (kind === "node") return [texts[nodes.op[at]] || roles[nodes.role[at]], nodes.id(at), `${typeOf(model, at)} ${statusWords(nodes.status[at])}`];
  if (kind === "cut") return ["cut", reason(cuts[at]), cuts[at].source];
  if (kind === "change") return [`change ${at + 1} of ${changes.length}`, changes[at].text, ""];
  if (kind === "none") return ["nothing selected", "", ""];
  const { of, key, times } = shown.scopes;
  return ["module", key(at), `${texts[scopes.className[of[at]]]}${times[at] > 1 ? ` \u00d7${times[at]}` : ""}`];
}

export function boxesWords({ scene: { boxes } }: Stage): string {
  return `${numberText(boxes.length)} ${boxes.length === 1 ? "box" : "boxes"}`;
}

/** Say which way is followed, and how much of the drawing it covers. */
export function trailWords({ trail }: State, { lit, scene }: Stage): string {
  if (trail === "") return "Nothing followed";
  if (lit === null) return "Select a box to follow";
  return `${trail[0].toUpperCase()}${trail.slice(1)}: ${numberText(lit.filter((each) => each).length)} of ${numberText(scene.boxes.length)} boxes`;
}
