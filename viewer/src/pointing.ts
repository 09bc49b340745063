/** Handles a pointer on the drawing: select, open, point at, with a text for the box under it. */

import type { Drawing } from "./draw/drawing.ts";
import { gestures } from "./draw/gestures.ts";
import type { Hit } from "./draw/hits.ts";
import { noMarks } from "./draw/over.ts";
import { numberText, shorten } from "./draw/plain.ts";
import type { Page } from "./panels/context.ts";
import { fill, h } from "./panels/dom.ts";
import { type Selected, nothing } from "./state.ts";
import { selectBox, describeSelection } from "./words.ts";

export function pointing(page: Page, view: Drawing): void {
  const { stage } = page;
  const tip = h("div.tip", { hidden: true });
  view.element.append(tip);
  /** The selection of a hit: the inside of a frame is nothing to select, but can be closed. */
  const meant = (hit: Hit): Selected => {
    const { boxes, frames, stubs } = stage.scene;
    if (hit.kind === "box") return selectBox(boxes[hit.at]);
    if (hit.kind === "stub") return { kind: "cut", at: stubs[hit.at].cut };
    return hit.kind === "frame" ? { kind: "module", at: frames[hit.at].scope } : nothing;
  };
  const isSeen = (hit: Hit): boolean => hit.kind !== "none" && (hit.kind !== "frame" || hit.isCaption);
  const toggle = (hit: Hit): void => {
    const { kind, at } = meant(hit);
    if (kind === "module" && at > 0) page.toggle(at);
  };
  gestures(view.element, {
    pan: stage.pan,
    zoom: stage.zoom,
    point(x, y) {
      const hit = view.hit(x, y);
      stage.point(isSeen(hit) && hit.kind !== "none" ? { ...noMarks, [hit.kind]: hit.at } : noMarks);
      view.element.style.cursor = isSeen(hit) ? "pointer" : "";
      const words = hit.kind === "frame" ? [] : wordsOf(page, meant(hit));
      tip.hidden = words.length === 0;
      fill(
        tip,
        words.map((line) => h("div", line)),
      );
      // Beside the pointer, towards the middle where it would leave the drawing.
      const { width, height } = view.size;
      const [isLeft, isAbove] = [x > width - 300, y > height - 90];
      tip.style.inset = [isAbove ? "auto" : `${y + 16}px`, isLeft ? `${width - x + 14}px` : "auto", isAbove ? `${height - y + 12}px` : "auto", isLeft ? "auto" : `${x + 14}px`].join(" ");
    },
    left() {
      tip.hidden = false;
      setTimeout(() => (tip.hidden = true), 2000);
      fill(tip, "Ctrl and wheel or two fingers zoom");
      tip.style.inset = "8px auto auto 8px";
    },
    leave() {
      tip.hidden = true;
      stage.point(noMarks);
    },
    click(x, y) {
      const hit = view.hit(x, y);
      tip.hidden = true;
      stage.element.focus({ preventScroll: true });
      if ("isSign" in hit && hit.isSign) toggle(hit);
      // The clicked box stays below the pointer, since a second click opens or closes it.
      else page.select(isSeen(hit) ? meant(hit) : nothing, true);
    },
    double(x, y) {
      tip.hidden = true;
      toggle(view.hit(x, y));
    },
  });
}

/** A line each. */
function wordsOf(page: Page, selected: Selected): string[] {
  const { model, sums, shown } = page;
  const { kind, at } = selected;
  if (kind === "none") return [];
  const [what, name, note] = describeSelection(page, selected);
  const lines = [name, `${what} ${note}`];
  if (kind === "cut") lines[1] = model.cuts[at].text;
  if (kind === "cut") lines.push(note);
  else if (kind === "node") for (const { name, said } of model.channels) lines.push(said[at] > 0 ? `${name}: ${model.texts[said[at]]}` : "");
  else {
    const of = shown.scopes.of[at];
    const parameters = model.scopes.parameters[of];
    lines.push(`${numberText(sums.nodes[of])} nodes${parameters > 0 ? `, ${numberText(parameters)} parameters` : ""}`);
  }
  return lines.filter((line) => line !== "").map((line) => shorten(line, 200));
}
