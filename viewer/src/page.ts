/** Starts the page: reads what is in it, draws, and lets panels, keys and links change the one state. */

import { readDetails } from "./data/details.ts";
import { type DetailsOfAll, type Model, flag } from "./data/model.ts";
import { readModel } from "./data/read.ts";
import { colourings } from "./draw/looks.ts";
import { caption } from "./scene/labels.ts";
import { numberText } from "./draw/plain.ts";
import { type Stage, stage as stageOf } from "./draw/stage.ts";
import { sumsOf } from "./draw/sums.ts";
import { search } from "./graph/search.ts";
import { type KeyActions, keys } from "./keys.ts";
import { eyeOf, memory } from "./memory.ts";
import { allOpened, around, openedTo, toggled } from "./opening.ts";
import { changesList } from "./panels/changes.ts";
import { commands } from "./panels/commands.ts";
import type { Page } from "./panels/context.ts";
import { cutsList, unreached } from "./panels/cuts.ts";
import { detailsPanel } from "./panels/details.ts";
import { fill, h, set } from "./panels/dom.ts";
import { finder as finderOf } from "./panels/finder.ts";
import { legend as legendOf } from "./panels/legend.ts";
import { modulesTable } from "./panels/modules.ts";
import { outline } from "./panels/outline.ts";
import { copy } from "./panels/pieces.ts";
import { type Tab, tabs as tabsOf } from "./panels/tabs.ts";
import { toolbar } from "./panels/toolbar.ts";
import { pointing } from "./pointing.ts";
import { type Timings, probe } from "./probe.ts";
import { saved } from "./saving.ts";
import { type Selected, type State, carried, had, hashOf, nothing, stateOf, switchesOf } from "./state.ts";
import { boxesWords, marksSeen, selectedWords, trailWords } from "./words.ts";

/** Of a graph with more nodes equal layers and steps are drawn once at first. */
const large = 150;
/** A window of less pixels begins without what stands beside the drawing. */
const narrow = 900;

async function start(): Promise<void> {
  const timings: Timings = { picture: 0, read: 0, scene: 0, opened: 0 };
  const model = await readModel(document);
  timings.read = performance.now();
  build(model, timings);
}

function build(model: Model, timings: Timings): void {
  const sums = sumsOf(model);
  const colours = colourings(model, sums);
  const link = location.hash;
  const switches = { hideRearranging: false, dropAccumulators: true, rollUp: model.nodes.count > large, inlineParameters: true };
  let details: DetailsOfAll | null = null;
  let state: State = { selected: nothing, opened: new Set(), colour: colours[0][0], switches: switchesOf(link, switches), trail: "", sides: false };
  const past = memory((hash) => restore(hash));
  const stage: Stage = stageOf(model, state, sums, () => past.look(stage.camera));
  const live = h("div", { class: "sr", "aria-live": "polite", role: "status" });

  const page: Page = {
    model,
    sums,
    get state() {
      return state;
    },
    get shown() {
      return stage.shown;
    },
    get details() {
      return details;
    },
    select(selected, opens = false, isSeen = false) {
      const inner = opens ? around(stage.shown, selected).filter((scope) => !state.opened.has(scope)) : [];
      if (inner.length > 0) apply({ ...state, selected, opened: new Set([...state.opened, ...inner]) });
      else apply({ ...state, selected });
      if (!isSeen) stage.reveal(selected);
    },
    change(part) {
      const before = stage.shown.scopes;
      const next = { ...state, ...part };
      if (part.switches === undefined) {
        apply(next);
        if (part.trail !== undefined) say(trailWords(state, stage));
        return;
      }
      // What is open is numbered by what is shown, which the switches change: it is carried over by its path.
      stage.follow({ ...next, opened: new Set(), selected: nothing }, -1);
      const now = stage.shown.scopes;
      const selected: Selected = next.selected.kind === "module" ? { kind: "module", at: now.find(before.key(next.selected.at)) } : next.selected;
      apply({
        ...next,
        opened: carried(next.opened, before, now),
        selected: selected.kind === "module" && selected.at < 0 ? nothing : selected,
      });
      stage.fit();
      say(boxesWords(stage));
    },
    toggle(wanted) {
      const began = performance.now();
      const scope = stage.shown.scopes.drawn(wanted);
      apply({ ...state, opened: toggled(state.opened, scope) }, scope);
      say(`${caption(stage.shown, scope)} ${state.opened.has(scope) ? "opened" : "closed"}`);
      requestAnimationFrame(() => setTimeout(() => (timings.opened = performance.now() - began)));
    },
    say,
  };

  const finder = finderOf(page, () => stage.element.focus());
  const panel = detailsPanel(page);
  const legend = legendOf();
  const revealing = new Map<string, (selected: Selected) => void>();
  const tab = (name: string, words: string, make: () => { readonly element: HTMLElement; reveal(selected: Selected): void }): Tab => ({
    name,
    words,
    make() {
      const made = make();
      revealing.set(name, (selected) => made.reveal(selected));
      return made.element;
    },
  });
  const lacking = unreached(model.cuts).length;
  const tabs = tabsOf(
    "Lists",
    [
      ...(model.changes.length > 0 ? [tab("changes", `Changes ${numberText(model.changes.length)}`, () => changesList(page))] : []),
      tab("outline", "Outline", () => outline(page)),
      tab("modules", "Modules", () => modulesTable(page)),
      ...(model.cuts.length > 0
        ? [tab("cuts", lacking > 0 ? `Unreached ${numberText(lacking)}` : `Cuts ${model.cuts.length}`, () => cutsList(page))]
        : []),
    ],
    (name) => {
      root.classList.toggle("wide", name === "modules");
      stage.resize();
      revealing.get(name)?.(state.selected);
    },
  );
  const actions: KeyActions = {
    fit: () => stage.fit(),
    zoom: (factor) => stage.zoom(factor),
    openAll: () => open(allOpened(stage.shown)),
    closeAll: () => open(new Set()),
    openTo: (depth) => open(openedTo(stage.shown, depth)),
    openSelected: () => page.select(state.selected, true),
    next: (by) => nextChange(by),
    save: (kind) => void saved(stage, state.selected, kind).then((name) => say(`Saved ${name}`)),
    help: () => help.open(),
    toggleSide(side) {
      if (root.classList.toggle(`no${side}`)) stage.resize();
      else showSide(side);
    },
    search: () => finder.focus(),
    tab(name) {
      showSide("left");
      tabs.focus(name);
    },
    nextColour() {
      const at = colours.findIndex(([name]) => name === state.colour);
      const [name, words] = colours[(at + 1) % colours.length];
      page.change({ colour: name });
      say(`Coloured by ${words}`);
    },
    copyLink() {
      // The frame of a notebook has no address that others could open.
      const isAddress = location.protocol !== "about:";
      if (isAddress) copy(page, location.href);
      say(isAddress ? "Copied a link to this view" : "Inside a notebook a view has no link");
    },
  };
  const bar = toolbar(page, colours, finder.element, actions);
  set(stage.element, {
    tabindex: 0,
    role: "application",
    "aria-label": "Drawing of the graph. The outline tells the same in text: press t. Press ? for the keys.",
  });
  const root = h(
    "div",
    { class: innerWidth < narrow ? "page noleft noright" : "page" },
    bar.element,
    h("aside", { class: "left", "aria-label": "Lists" }, tabs.element),
    h("main", {}, stage.element, model.nodes.count === 0 && h("p", { class: "nothing" }, "This graph has no nodes"), legend.element, stage.map),
    h("aside", { class: "right", "aria-label": "Details" }, panel.element),
    live,
  );
  document.body.append(root);
  const help = commands(keys(page, stage, actions));
  document.body.append(help.dialog);
  stage.drawings.forEach((each) => pointing(page, stage, each));

  stage.resize();
  state = { ...state, opened: stage.firstOpened() };
  state = linked(link, state);
  // Who opens the graph of a forward that raised wants to see where.
  const failed = link === "" ? model.nodes.flags.findIndex((bits) => (bits & flag.failed) !== 0) : -1;
  if (failed >= 0) state = { ...state, selected: { kind: "node", at: failed } };
  if (failed >= 0) state = { ...state, opened: new Set([...state.opened, ...around(stage.shown, state.selected)]) };
  stage.follow(state, -1);
  if (state.sides) sidesChanged();
  showLegend();
  look(link);
  new ResizeObserver(() => stage.resize()).observe(stage.element);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => stage.recolour());
  Object.defineProperty(window, "gradir", { value: probe(stage, () => state, finder, timings) });
  timings.scene = stage.composed;
  requestAnimationFrame(() =>
    setTimeout(() => {
      timings.picture = performance.now();
      tabs.show(model.changes.length > 0 ? "changes" : "outline");
      refresh(true);
      void readDetails(document, model).then((read) => {
        details = read;
        panel.show();
        // The first search makes an index: better now than under the fingers of who types.
        (window.requestIdleCallback ?? setTimeout)(() => search(model, read, " index"));
      });
    }),
  );

  function linked(hash: string, otherwise: State): State {
    return had(stateOf(hash, model, stage.shown.scopes, otherwise), otherwise, colours, model.changes.length > 0);
  }
  /** Beside the drawing of a narrow window there is room for one. */
  function showSide(side: "left" | "right"): void {
    root.classList.remove(`no${side}`);
    if (innerWidth < narrow) root.classList.add(side === "left" ? "noright" : "noleft");
    stage.resize();
  }
  function look(hash: string): void {
    const eye = eyeOf(hash);
    if (eye !== null) stage.move(eye);
    else {
      stage.begin();
      if (state.selected.kind !== "none") stage.reveal(state.selected);
    }
  }
  function apply(next: State, anchor = -1): void {
    const last = state;
    state = next;
    if (
      next.opened === last.opened &&
      next.colour === last.colour &&
      next.switches === last.switches &&
      next.trail === last.trail &&
      next.sides === last.sides
    )
      stage.select(next.selected);
    else stage.follow(next, anchor);
    if (next.sides !== last.sides) sidesChanged();
    past.step(hashOf(state, model, stage.shown.scopes));
    past.look(stage.camera);
    refresh(next.selected !== last.selected);
    if (next.selected !== last.selected) say(selectedWords(state, stage));
  }
  function showLegend(): void {
    legend.show(colours.find(([name]) => name === state.colour)?.[1] ?? "role", stage.looks, marksSeen(stage));
  }
  function refresh(isSelection: boolean): void {
    bar.show(state);
    panel.show();
    showLegend();
    if (isSelection) revealing.get(tabs.current)?.(state.selected);
  }
  function sidesChanged(): void {
    stage.drawings.forEach((each, at) => {
      each.element.querySelector("p")?.remove();
      if (!state.sides) return;
      each.element.append(h("p", {}, at === 0 ? "before" : "after"));
      if (at > 0) pointing(page, stage, each);
    });
  }
  function open(opened: Set<number>): void {
    apply({ ...state, opened });
    stage.fit();
    say(boxesWords(stage));
  }
  function restore(hash: string): void {
    const next = switchesOf(hash, state.switches);
    if (Object.entries(next).some(([key, on]) => state.switches[key as keyof typeof next] !== on)) {
      stage.follow({ ...state, switches: next, opened: new Set(), selected: nothing }, -1);
    }
    const last = state;
    state = linked(hash, { ...state, switches: next, ...(hash === "" ? { opened: stage.firstOpened() } : {}) });
    stage.follow(state, -1);
    if (state.sides !== last.sides) sidesChanged();
    refresh(true);
    look(hash);
    say(selectedWords(state, stage));
  }
  function nextChange(by: number): void {
    const { length } = model.changes;
    if (length === 0) return;
    const at = state.selected.kind === "change" ? (state.selected.at + by + length) % length : by > 0 ? 0 : length - 1;
    page.select({ kind: "change", at }, true);
  }
  function say(words: string): void {
    fill(live, words.slice(0, 400));
  }
}

start().catch((error: unknown) => {
  document.body.append(
    h(
      "main",
      { class: "trouble", role: "alert" },
      h("h1", {}, "This page cannot be drawn"),
      h("p", {}, error instanceof Error ? error.message : String(error)),
    ),
  );
});
