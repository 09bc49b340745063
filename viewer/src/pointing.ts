/** What a pointer does on the drawing: select, open, point at, with words for what is pointed at. */

import { roles } from "./data/model.ts";
import type { Drawing } from "./draw/drawing.ts";
import { gestures } from "./draw/gestures.ts";
import type { Hit } from "./draw/hits.ts";
import { noMarks } from "./draw/over.ts";
import { statusWords } from "./draw/paint.ts";
import { numberText, shortened } from "./draw/plain.ts";
import type { Stage } from "./draw/stage.ts";
import type { Page } from "./panels/context.ts";
import { reason } from "./panels/cuts.ts";
import { fill, h } from "./panels/dom.ts";
import { type Selected, nothing } from "./state.ts";

export function pointing(page: Page, stage: Stage, view: Drawing): void {
  const tip = h("div", { class: "tip", hidden: true });
  view.element.append(tip);
  const selectedBy = (hit: Hit): Selected => {
    if (hit.kind === "box") {
      const { node, scope } = stage.scene.boxes[hit.at];
      return node >= 0 ? { kind: "node", at: node } : { kind: "module", at: scope };
    }
    if (hit.kind === "stub") return { kind: "cut", at: stage.scene.stubs[hit.at].cut };
    return hit.kind === "frame" && hit.isCaption ? { kind: "module", at: stage.scene.frames[hit.at].scope } : nothing;
  };
  /** The module that a click opens or closes, -1 where there is none. */
  const moduleAt = (hit: Hit): number => {
    if (hit.kind === "box") return stage.scene.boxes[hit.at].node >= 0 ? -1 : stage.scene.boxes[hit.at].scope;
    return hit.kind === "frame" ? stage.scene.frames[hit.at].scope : -1;
  };
  gestures(view.element, {
    pan: (dx, dy) => stage.pan(dx, dy),
    zoom: (factor, x, y) => stage.zoom(factor, x, y),
    point(x, y) {
      const hit = view.hit(x, y);
      stage.point(
        hit.kind === "box"
          ? { ...noMarks, box: hit.at }
          : hit.kind === "stub"
            ? { ...noMarks, stub: hit.at }
            : hit.kind === "frame" && hit.isCaption
              ? { ...noMarks, frame: hit.at }
              : noMarks,
      );
      view.element.style.cursor = hit.kind === "none" || (hit.kind === "frame" && !hit.isCaption) ? "" : "pointer";
      const words = hit.kind === "box" || hit.kind === "stub" ? wordsOf(page, stage, hit) : "";
      tip.hidden = words === "";
      if (tip.hidden) return;
      fill(tip, ...words.split("\n").flatMap((line) => [line, h("br")]));
      const isLeft = x > view.size.width - 300;
      tip.style.left = isLeft ? "" : `${x + 14}px`;
      tip.style.right = isLeft ? `${view.size.width - x + 14}px` : "";
      tip.style.top = y > view.size.height - 90 ? "" : `${y + 16}px`;
      tip.style.bottom = y > view.size.height - 90 ? `${view.size.height - y + 12}px` : "";
    },
    leave() {
      tip.hidden = true;
      stage.point(noMarks);
    },
    click(x, y) {
      const hit = view.hit(x, y);
      tip.hidden = true;
      stage.element.focus({ preventScroll: true });
      if ((hit.kind === "box" || hit.kind === "frame") && hit.isSign) page.toggle(moduleAt(hit));
      // What is clicked on stays below the pointer, for a second click opens or closes it.
      else page.select(selectedBy(hit), false, true);
    },
    double(x, y) {
      const hit = view.hit(x, y);
      const scope = moduleAt(hit);
      tip.hidden = true;
      if (scope > 0) page.toggle(scope);
    },
  });
}

function wordsOf(page: Page, stage: Stage, hit: Hit): string {
  const { model, sums, shown } = page;
  const { texts, nodes, scopes } = model;
  if (hit.kind === "stub") {
    const cut = model.cuts[stage.scene.stubs[hit.at].cut];
    return [reason(cut), cut.text, cut.source]
      .filter((part) => part !== "")
      .map((part) => shortened(part, 240))
      .join("\n");
  }
  if (hit.kind !== "box") return "";
  const { node, scope } = stage.scene.boxes[hit.at];
  if (node < 0) {
    const of = shown.scopes.of[scope];
    const times = shown.scopes.times[scope];
    return [
      `${shortened(shown.scopes.key(scope), 120)}  ${shortened(texts[scopes.className[of]], 60)}${times > 1 ? ` \u00d7${times}` : ""}`,
      `${numberText(sums.nodes[of])} nodes${scopes.parameters[of] > 0 ? `, ${numberText(scopes.parameters[of])} parameters` : ""}`,
    ].join("\n");
  }
  const said = model.channels.flatMap((channel) => (channel.said[node] > 0 ? [`${channel.name}: ${texts[channel.said[node]]}`] : []));
  return [
    shortened(nodes.id(node), 160),
    `${texts[nodes.op[node]] || roles[nodes.role[node]]} ${texts[nodes.dtype[node]]}${texts[nodes.shape[node]]} ${statusWords(nodes.status[node])}`.trim(),
    ...said.map((words) => shortened(words, 120)),
  ].join("\n");
}
