/** The search field with its list of hits. */

import { roles } from "../data/model.ts";
import { numberText } from "../draw/plain.ts";
import { pathOf } from "../draw/sums.ts";
import { type Hit, search } from "../graph/search.ts";
import type { Page } from "./context.ts";
import { fill, h, set } from "./dom.ts";
import { list } from "./list.ts";

export interface Finder {
  readonly element: HTMLElement;
  readonly hits: readonly Hit[];
  readonly milliseconds: number;
  focus(): void;
  close(): void;
}

/** `leave` is called when a hit is chosen: what follows is about the drawing, keys too. */
export function finder(page: Page, leave: () => void): Finder {
  const { model } = page;
  let hits: readonly Hit[] = [];
  let milliseconds = 0;
  let timer = 0;
  const input = h("input", {
    type: "search",
    placeholder: "Search id, name, op, class, dtype, shape, source",
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
    keydown: (event: KeyboardEvent) => keyed(event),
  });
  const found = list({
    role: "listbox",
    label: "Hits",
    draw(row, index) {
      const hit = hits[index];
      set(row, { "aria-selected": "false" });
      if (hit.node < 0)
        fill(
          row,
          h("span", { class: "badge" }, "module"),
          h("span", { class: "name" }, ` ${pathOf(model, hit.scope)}`),
          h("span", { class: "note" }, ` ${model.texts[model.scopes.className[hit.scope]]}`),
        );
      else {
        const { nodes, texts } = model;
        fill(
          row,
          h("span", { class: "badge" }, texts[nodes.op[hit.node]] || roles[nodes.role[hit.node]]),
          h("span", { class: "name" }, ` ${nodes.id(hit.node)}`),
          h("span", { class: "note" }, ` ${texts[nodes.dtype[hit.node]]}${texts[nodes.shape[hit.node]]}`),
        );
      }
    },
    act: (index) => choose(index),
    key(_, event) {
      if (event.key !== "Escape") return false;
      input.focus();
      open(false);
      return true;
    },
    leave: () => input.focus(),
  });
  found.element.id = "gradir-hits";
  const note = h("p", { class: "note" });
  const sheet = h("div", { class: "hits", hidden: true }, note, found.element);
  const element = h("div", { class: "finder", role: "search" }, input, sheet);
  element.addEventListener("focusout", (event) => {
    if (!(event.relatedTarget instanceof Node && element.contains(event.relatedTarget))) open(false);
  });
  sheet.addEventListener("pointerdown", (event) => event.preventDefault());

  function open(isOpen: boolean): void {
    sheet.hidden = !isOpen;
    set(input, { "aria-expanded": isOpen ? "true" : "false" });
    if (isOpen) found.refresh();
  }
  function find(): void {
    const words = input.value.trim();
    const before = performance.now();
    hits = words === "" ? [] : search(model, page.details, words);
    milliseconds = performance.now() - before;
    found.element.style.height = `${Math.min(14, Math.max(1, hits.length)) * 24}px`;
    found.show(hits.length, 0);
    open(words !== "");
    found.element.hidden = hits.length === 0;
    fill(note, hits.length === 0 ? "Nothing found" : `${numberText(hits.length)} found${hits.length > 1 ? ", the best first" : ""}`);
    if (words !== "") page.say(note.textContent ?? "");
  }
  function choose(index: number): void {
    const hit = hits[index];
    if (hit === undefined) return;
    open(false);
    leave();
    page.select(hit.node >= 0 ? { kind: "node", at: hit.node } : { kind: "module", at: hit.scope }, true);
  }
  function keyed(event: KeyboardEvent): void {
    if (event.key === "ArrowDown" && hits.length > 0) {
      open(true);
      found.goTo(0, true);
    } else if (event.key === "Enter") {
      clearTimeout(timer);
      find();
      choose(0);
    } else if (event.key === "Escape") {
      if (!sheet.hidden) open(false);
      else if (input.value === "") return;
      else {
        input.value = "";
        find();
      }
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }
  return {
    element,
    get hits() {
      return hits;
    },
    get milliseconds() {
      return milliseconds;
    },
    focus() {
      input.focus();
      input.select();
    },
    close: () => open(false),
  };
}
