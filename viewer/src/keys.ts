/** The keys of the page, and where the arrows lead on the drawing. */

import type { Stage } from "./draw/stage.ts";
import { linesAt } from "./draw/painting.ts";
import { marksOf } from "./draw/stage.ts";
import type { Command } from "./panels/commands.ts";
import type { Page } from "./panels/context.ts";
import type { ToolbarActions } from "./panels/toolbar.ts";
import { type Selected, type Trail, nothing, switchNames } from "./state.ts";

export interface KeyActions extends ToolbarActions {
  search(): void;
  tab(name: "outline" | "modules" | "cuts" | "changes"): void;
  nextColour(): void;
  copyLink(): void;
}

const step = 80;

export function keys(page: Page, stage: Stage, actions: KeyActions): Command[] {
  const { model } = page;
  const isDiff = model.changes.length > 0;
  const follow = (trail: Trail) => () => page.change({ trail: page.state.trail === trail ? "" : trail });
  const flip = (key: (typeof switchNames)[keyof typeof switchNames][0]) => () =>
    page.change({ switches: { ...page.state.switches, [key]: !page.state.switches[key] } });
  const arrow = (dx: number, dy: number) => (event: KeyboardEvent) => {
    const next = event.shiftKey ? null : neighbour(page, stage, dx, dy);
    if (event.shiftKey) stage.pan(-dx * step, -dy * step);
    else if (next !== null) page.select(next);
  };
  const toggleSelected = (): void => {
    const { selected } = page.state;
    if (selected.kind === "module") page.toggle(selected.at);
    else if (selected.kind !== "none") page.select(selected, true);
  };
  const one = (key: string, group: string, words: string, run: (event: KeyboardEvent) => void, isOn = true): Command => ({
    keys: [key],
    shown: key,
    group,
    words,
    run,
    isOn,
  });
  return [
    one("/", "Find", "search", actions.search),
    one("t", "Find", "outline tree", () => actions.tab("outline")),
    one("m", "Find", "table of modules", () => actions.tab("modules")),
    one("u", "Find", "cuts and parameters that are not reached", () => actions.tab("cuts"), model.cuts.length > 0),
    one("v", "Changes", "list of changes", () => actions.tab("changes"), isDiff),
    one("n", "Changes", "next change", () => actions.next(1), isDiff),
    one("p", "Changes", "previous change", () => actions.next(-1), isDiff),
    one("b", "Changes", "before and after side by side", () => page.change({ sides: !page.state.sides }), isDiff),
    { keys: ["ArrowUp"], shown: "\u2191", group: "Move", words: "to an input", run: arrow(0, -1) },
    { keys: ["ArrowDown"], shown: "\u2193", group: "Move", words: "to a consumer", run: arrow(0, 1) },
    { keys: ["ArrowLeft"], shown: "\u2190", group: "Move", words: "to the box at the left", run: arrow(-1, 0) },
    { keys: ["ArrowRight"], shown: "\u2192", group: "Move", words: "to the box at the right", run: arrow(1, 0) },
    { keys: [], shown: "Shift + arrows", group: "Move", words: "pan", run: () => undefined },
    { keys: ["+", "="], shown: "+", group: "Move", words: "zoom in", run: () => stage.zoom(1.25) },
    { keys: ["-"], shown: "-", group: "Move", words: "zoom out", run: () => stage.zoom(0.8) },
    one("f", "Move", "fit the whole drawing", () => stage.fit()),
    one("z", "Move", "zoom to the selected", () => stage.fit(page.state.selected)),
    { keys: ["Enter", " "], shown: "Enter", group: "Open and close", words: "open or close the selected module", run: toggleSelected },
    one("o", "Open and close", "open all around the selected", actions.openSelected),
    one("x", "Open and close", "close the module around the selected", () => closeAround(page)),
    one("e", "Open and close", "open all", actions.openAll),
    { keys: ["0", "c"], shown: "0", group: "Open and close", words: "close all", run: actions.closeAll },
    {
      keys: ["1", "2", "3", "4", "5", "6", "7", "8", "9"],
      shown: "1 \u2013 9",
      group: "Open and close",
      words: "open to that depth",
      run: (event) => actions.openTo(Number(event.key)),
    },
    one("a", "Follow", "ancestors of the selected", follow("ancestors")),
    one("d", "Follow", "descendants of the selected", follow("descendants")),
    one("l", "Follow", model.kind === "forward" ? "path to the output" : "path to the loss", follow("path")),
    one("w", "Show", "colour by the next", actions.nextColour),
    one("h", "Show", "shape operations", flip("hideRearranging")),
    one("g", "Show", "accumulators", flip("dropAccumulators")),
    one("r", "Show", "equal layers rolled up", flip("rollUp")),
    one("i", "Show", "parameters in their operation", flip("inlineParameters")),
    one("s", "Save", "SVG of what is seen", () => actions.save("svg")),
    one("S", "Save", "PNG of what is seen", () => actions.save("png")),
    one("k", "Save", "copy a link to this view", actions.copyLink),
    one("[", "Page", "lists", () => actions.toggleSide("left")),
    one("]", "Page", "details", () => actions.toggleSide("right")),
    {
      keys: ["Escape"],
      shown: "Esc",
      group: "Page",
      words: "follow nothing, then select nothing",
      run: () => (page.state.trail === "" ? page.select(nothing) : page.change({ trail: "" })),
    },
    one("?", "Page", "this help", actions.help),
  ];
}

function closeAround(page: Page): void {
  const { selected, opened } = page.state;
  const { scopes } = page.shown;
  let scope = selected.kind === "module" ? (opened.has(selected.at) ? selected.at : scopes.parent[selected.at]) : -1;
  if (selected.kind === "node") scope = page.shown.scope[page.shown.instead[selected.at]] ?? -1;
  if (scope <= 0) return;
  if (selected.kind !== "module" || selected.at !== scope) page.select({ kind: "module", at: scope });
  if (page.state.opened.has(scope)) page.toggle(scope);
}

/** Up and down along the lines, to the side by place. */
function neighbour(page: Page, stage: Stage, dx: number, dy: number): Selected | null {
  const { boxes, lines } = stage.scene;
  const marks = marksOf(stage.shown, stage.places, page.state.selected);
  const of = (at: number): Selected => (boxes[at].node >= 0 ? { kind: "node", at: boxes[at].node } : { kind: "module", at: boxes[at].scope });
  if (boxes.length === 0) return null;
  const here = marks.box;
  if (here < 0) return of(nearestTo(stage, marks.frame));
  if (dy !== 0) {
    const next = [...linesAt(stage.places, here)]
      .map((at) => lines[at])
      .filter((line) => (dy > 0 ? line.from : line.to) === here)
      .map((line) => (dy > 0 ? line.to : line.from));
    if (next.length === 0) return null;
    const middle = boxes[here].x + boxes[here].width / 2;
    const off = (at: number): number => Math.abs(boxes[at].x + boxes[at].width / 2 - middle);
    return of(next.reduce((best, at) => (off(at) < off(best) ? at : best)));
  }
  const { x, y, width, height } = boxes[here];
  const band = { x: dx > 0 ? x + width : 0, y, width: dx > 0 ? stage.scene.width - x - width : Math.max(0, x), height };
  const beside = stage.places.boxes.inside(band).filter((at) => at !== here && (boxes[at].x - x) * dx > 0);
  if (beside.length === 0) return null;
  return of(beside.reduce((best, at) => ((boxes[at].x - boxes[best].x) * dx < 0 ? at : best)));
}

/** The box nearest to the middle of the view, in a frame if one is selected. */
function nearestTo(stage: Stage, frame: number): number {
  const { boxes, frames } = stage.scene;
  const { width, height } = stage.drawings[0].size;
  const { x, y, k } = stage.camera;
  const at = frame >= 0 ? { x: frames[frame].x + frames[frame].width / 2, y: frames[frame].y } : { x: x + width / 2 / k, y: y + height / 2 / k };
  const far = (box: number): number => Math.hypot(boxes[box].x + boxes[box].width / 2 - at.x, boxes[box].y - at.y);
  let best = 0;
  for (let box = 1; box < boxes.length; box++) if (far(box) < far(best)) best = box;
  return best;
}
