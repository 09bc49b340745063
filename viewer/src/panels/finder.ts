/** The search field with its list of hits. */

import { numberText } from "../draw/plain.ts";
import { type Hit, mostHits, search } from "../graph/search.ts";
import { modulesDrawnFor, setOpen } from "../opening.ts";
import { timings } from "../probe.ts";
import { describeSelection } from "../words.ts";
import type { Page } from "./context.ts";
import { button, fill, h, set } from "./dom.ts";
import { list } from "./list.ts";

export interface Finder {
  readonly element: HTMLElement;
  readonly hits: readonly Hit[];
  focus(words?: string): void;
}

/** When a hit is chosen the drawing gets the focus, so that keys act on it. */
export function finder(page: Page): Finder {
  const { model } = page;
  let hits: readonly Hit[] = [];
  let timer = 0;
  const input = h("input", {
    type: "search",
    placeholder: "Search: addmm, op:mm in:h.3, /add|mul/",
    "aria-label": "Search nodes and modules",
    autocomplete: "off",
    spellcheck: "false",
    "aria-controls": "gradir-hits",
    "aria-expanded": "false",
    role: "combobox",
    "aria-autocomplete": "list",
    input: () => {
      clearTimeout(timer);
      timer = window.setTimeout(find, 40);
    },
    focus: () => open(hits.length > 0),
    keydown: keyed,
  });
  const found = list(page, {
    role: "listbox",
    label: "Hits",
    of: (index) => ({ kind: hits[index].node < 0 ? "module" : "node", at: Math.max(hits[index].node, hits[index].scope) }),
    draw: (_, index) => describeSelection(page, found.of(index)).map((each, at) => h("span", { class: ["badge", "name", "note"][at] }, at === 0 ? each : ` ${each}`)),
    act: choose,
    key(_, { key }) {
      if (key !== "Escape") return false;
      input.focus();
      open(false);
      return true;
    },
    leave: () => input.focus(),
  });
  found.element.id = "gradir-hits";
  const note = h("p.note");
  const sheet = h("div.hits", { hidden: true, pointerdown: (event: Event) => event.preventDefault() }, note, found.element);
  const left = ({ relatedTarget }: FocusEvent): void => {
    if (!element.contains(relatedTarget as Node | null)) open(false);
  };
  const element = h("div.finder", { role: "search", focusout: left }, input, sheet);

  function open(isOpen: boolean): void {
    sheet.hidden = !isOpen;
    set(input, { "aria-expanded": `${isOpen}` });
    if (isOpen) found.show(hits.length);
  }
  function find(): void {
    clearTimeout(timer);
    const words = input.value.trim();
    const before = performance.now();
    let trouble = "Nothing found";
    try {
      hits = words === "" ? [] : search(model, page.details, words);
    } catch (error) {
      [hits, trouble] = [[], (error as Error).message];
    }
    timings.searching = performance.now() - before;
    const modules = new Set(hits.flatMap(({ scope }) => (scope < 0 ? [] : [scope])));
    found.element.hidden = hits.length === 0;
    open(words !== "");
    found.show(hits.length, 0);
    fill(note, hits.length === 0 ? trouble : `${numberText(hits.length)}${hits.length === mostHits ? " or more" : ""} found${hits.length > 1 ? ", the best first" : ""}`, " ", modules.size > 0 && ["Open", "Close"].map((word) => button(`${word} ${modules.size}`, () => foldAll(modules, word === "Open"))));
    if (words !== "") page.say(note.textContent ?? "");
  }
  /** Opens or closes every module that was found. */
  function foldAll(modules: ReadonlySet<number>, isOpen: boolean): void {
    const { opened } = page.state;
    const { scopes } = page.shown;
    page.change({ opened: setOpen(opened, scopes.parent, modulesDrawnFor(page.shown, (own) => modules.has(own)), isOpen) });
  }
  function choose(index: number): boolean {
    if (index < hits.length) {
      open(false);
      page.stage.element.focus();
      page.select(found.of(index));
    }
    return true;
  }
  function keyed(event: KeyboardEvent): void {
    const { key } = event;
    if (key === "ArrowDown" && hits.length > 0) {
      open(true);
      found.goTo(0, true);
    } else if (key === "Enter") {
      find();
      choose(0);
    } else if (key !== "Escape") return;
    else if (!sheet.hidden) open(false);
    else if (input.value === "") page.stage.element.focus();
    else {
      input.value = "";
      find();
    }
    event.preventDefault();
  }
  return {
    element,
    get hits() {
      return hits;
    },
    focus(words = input.value) {
      const isNew = words !== input.value;
      input.value = words;
      input.focus();
      input.select();
      if (isNew) find();
    },
  };
}
