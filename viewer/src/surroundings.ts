/** The panels around the drawing (bar, lists, details and legend), and how they follow the state. */

import { commands } from "./commands.ts";
import { dropping } from "./dropped.ts";
import { type Model, flag } from "./data/model.ts";
import { numberText } from "./draw/plain.ts";
import type { Page } from "./panels/context.ts";
import { detailsPanel } from "./panels/details.ts";
import { button, fill, h, set } from "./panels/dom.ts";
import { changesList, cutsList, listUnreached } from "./panels/entries.ts";
import { type Finder, finder as finderOf } from "./panels/finder.ts";
import { type Help, help as helpOf } from "./panels/help.ts";
import { legend as legendOf } from "./panels/legend.ts";
import { modulesTable } from "./panels/modules.ts";
import { outline } from "./panels/outline.ts";
import { tabs as tabsOf } from "./panels/tabs.ts";
import { toolbar } from "./panels/toolbar.ts";
import { pointing } from "./pointing.ts";
import { type Reader, reader as readerOf } from "./reader.ts";
import type { State } from "./state.ts";
import { describeSelection } from "./words.ts";

export interface Surroundings {
  readonly page: Page & Reader;
  readonly finder: Finder;
  /** Loads the parts that come after the first picture. */
  showLists(): void;
  showDetails(): void;
}

/** A narrower window begins without the panels beside the drawing. */
const narrow = 900;

export function surroundings(model: Model): Surroundings {
  const { cuts, changes } = model;
  const isDiff = changes.length > 0;
  const live = h("div.sr", { "aria-live": "polite", role: "status" });
  const reader = readerOf(model, follow, (words) => fill(live, words.slice(0, 400)));
  const { stage } = reader;
  const page = Object.assign(reader, {
    find: (words: string) => finder.focus(words),
    tool(key: string, words?: string) {
      const [, said, run] = help.byKey.get(key) ?? ["", "", () => undefined];
      // A sign alone says nothing to who does not see it.
      return button(words ?? said, () => run(key, false), { title: `${said} (${key})`, "aria-label": /\w/.test(words ?? said) ? null : said });
    },
  });
  const finder = finderOf(page);
  const lacking = listUnreached(cuts).length;
  const tabs = tabsOf(
    "Lists",
    [
      ["changes", `Changes ${numberText(changes.length)}`, () => changesList(page), isDiff],
      ["outline", "Outline", () => outline(page)],
      ["modules", "Modules", () => modulesTable(page)],
      ["cuts", lacking > 0 ? `No gradient ${numberText(lacking)}` : `Cuts ${cuts.length}`, () => cutsList(page), cuts.length > 0],
    ],
    (name) => {
      root.classList.toggle("wide", name === "modules");
      tabs.reveal();
    },
  );
  const help: Help = helpOf(
    commands(page, {
      find: () => finder.focus(),
      help: () => help.open(),
      tab(name) {
        showSide("left");
        tabs.focus(name);
      },
      toggleSide(side) {
        if (!root.classList.toggle(`no${side}`)) showSide(side);
      },
    }),
  );
  const bar = toolbar(page, finder.element);
  const panel = detailsPanel(page);
  const legend = legendOf();
  set(stage.element, {
    tabindex: 0,
    role: "application",
    "aria-label": "Drawing of the graph. Press t for the outline in text, ? for the keys.",
  });
  const note = h("p.dropped", { hidden: true });
  const root = h(
    "div.page",
    bar.element,
    h("aside.left", { "aria-label": "Lists" }, tabs.element),
    h("main", stage.element, model.nodes.count === 0 && h("p.nothing", "This graph has no nodes"), legend.element, stage.map, note),
    h("aside.right", { "aria-label": "Details" }, panel.element),
    live,
  );
  // The details show the failed operation.
  if (innerWidth < narrow) root.classList.add("noleft", model.nodes.flags.some((bits) => bits & flag.failed) ? "page" : "noright");
  document.body.append(root, help.dialog);
  dropping(page, (words) => {
    fill(note, words);
    note.hidden = false;
    page.say(words);
    setTimeout(() => (note.hidden = true), 8000);
  });
  for (const each of stage.drawings) pointing(page, each);
  return { page, finder, showLists: () => tabs.show(isDiff ? "changes" : "outline"), showDetails: panel.show };

  /** Beside the drawing of a narrow window there is room for one. */
  function showSide(side: "left" | "right"): void {
    root.classList.remove(`no${side}`);
    if (innerWidth < narrow) root.classList.add(side === "left" ? "noright" : "noleft");
    stage.resize();
    stage.reveal(page.state.selected);
  }
  function follow(last: State): void {
    const { state } = page;
    bar.show();
    panel.show();
    legend.show(page.colours.find(([name]) => name === state.colour)?.[1] ?? "role", stage);
    if (state.sides !== last.sides) {
      // The legend would cover the side before.
      legend.element.open = !state.sides && innerWidth > 1100;
      nameSides();
      const { camera, scene, drawings } = stage;
      if (state.selected.kind !== "none") stage.reveal(state.selected);
      // Where all of it is seen at this size, it is put into the middle of the side.
      else if (scene.width * camera.k < drawings[0].size.width && scene.height * camera.k < drawings[0].size.height) stage.fit();
    }
    if (state.selected !== last.selected || state.switches !== last.switches) tabs.reveal();
    if (state.selected === last.selected) return;
    const { kind, at } = state.selected;
    page.say(`${describeSelection(page, state.selected).join(" ")}${kind !== "module" ? "" : state.opened.has(at) ? ", open" : ", closed"}`);
  }
  function nameSides(): void {
    if (!page.state.sides) return;
    stage.element.append(...model.sides.map((name) => h("p", { title: name }, name)));
    pointing(page, stage.drawings[1]);
  }
}
