/** A table of the modules, sorted by any column, that goes along with the drawing. */

import { bytesText, numberText, plain } from "../draw/plain.ts";
import { pathOf, resultsOf } from "../draw/sums.ts";
import type { Selected } from "../state.ts";
import type { Page } from "./context.ts";
import { button, fill, h, set } from "./dom.ts";
import { list } from "./list.ts";

export interface ModulesTable {
  readonly element: HTMLElement;
  reveal(selected: Selected): void;
}

interface Column {
  readonly words: string;
  readonly isNumber: boolean;
  value(scope: number): string | number;
  text(scope: number): string;
}

export function modulesTable(page: Page): ModulesTable {
  const { model, sums } = page;
  const { scopes, nodes, texts } = model;
  const paths = Array.from({ length: scopes.count }, (_, scope) => pathOf(model, scope));
  const results = resultsOf(model);
  const shape = (scope: number): string => {
    const node = results[scope];
    return node < 0 ? "" : `${texts[nodes.dtype[node]]}${texts[nodes.shape[node]]}`;
  };
  const numbers = (words: string, column: ArrayLike<number>, text: (value: number) => string = numberText): Column => ({
    words,
    isNumber: true,
    value: (scope) => column[scope],
    text: (scope) => (column[scope] === 0 ? "" : text(column[scope])),
  });
  const columns: readonly Column[] = [
    { words: "Module", isNumber: false, value: (scope) => scope, text: (scope) => paths[scope] },
    { words: "Class", isNumber: false, value: (scope) => texts[scopes.className[scope]], text: (scope) => texts[scopes.className[scope]] },
    { words: "Result", isNumber: false, value: shape, text: shape },
    numbers("Calls", scopes.calls),
    numbers("Nodes", sums.nodes),
    numbers("Parameters", scopes.parameters),
    numbers("Saved", scopes.saved, bytesText),
    numbers("Own", scopes.own),
    numbers("Trainable", scopes.trainable),
  ];
  const order = Array.from({ length: scopes.count - 1 }, (_, at) => at + 1);
  let sorted = -1;
  let isDown = false;

  const heads = columns.map((column, at) =>
    h(
      "div",
      { role: "columnheader", class: column.isNumber ? "cell number" : "cell", "aria-sort": "none" },
      button(column.words, () => sort(at), { tabindex: at === 0 ? 0 : -1, title: `Sort by ${column.words.toLowerCase()}` }),
    ),
  );
  const head = h("div", { role: "row", class: "head", "aria-rowindex": 1, keydown: (event: KeyboardEvent) => walkHeads(event) }, ...heads);
  const rows = list({
    role: "grid",
    label: "Modules",
    draw(row, index) {
      const scope = order[index];
      set(row, { "aria-selected": isSelected(scope) ? "true" : "false" });
      fill(
        row,
        ...columns.map((column) =>
          h(
            "div",
            { role: "gridcell", class: column.isNumber ? "cell number" : "cell", title: plain(column.text(scope), 400) },
            plain(column.text(scope), 200),
          ),
        ),
      );
    },
    act(index) {
      page.select({ kind: "module", at: order[index] });
      rows.refresh();
    },
    key(index, event) {
      if (event.key !== " " && event.key !== "o") return false;
      page.toggle(order[index]);
      return true;
    },
    leave: () => heads[sorted].querySelector("button")?.focus(),
  });
  rows.element.prepend(h("div", { role: "rowgroup", class: "heads" }, head));
  const isSelected = (scope: number): boolean => page.state.selected.kind === "module" && page.shown.scopes.of[page.state.selected.at] === scope;

  function sort(column: number): void {
    // Numbers are asked for the largest first.
    isDown = column === sorted ? !isDown : columns[column].isNumber;
    sorted = column;
    const { value } = columns[column];
    const keys = new Map(order.map((scope) => [scope, value(scope)]));
    order.sort((one, other) => {
      const a = keys.get(one) ?? 0;
      const b = keys.get(other) ?? 0;
      const by = typeof a === "number" && typeof b === "number" ? a - b : a < b ? -1 : a > b ? 1 : 0;
      return (isDown ? -by : by) || one - other;
    });
    heads.forEach((each, at) => set(each, { "aria-sort": at === sorted ? (isDown ? "descending" : "ascending") : "none" }));
    rows.show(order.length, 0);
  }
  function walkHeads(event: KeyboardEvent): void {
    const buttons = heads.map((each) => each.querySelector("button"));
    const at = buttons.findIndex((each) => each === document.activeElement);
    const to = event.key === "ArrowRight" ? at + 1 : event.key === "ArrowLeft" ? at - 1 : -1;
    if (event.key === "ArrowDown") rows.goTo(rows.active, true);
    else if (to < 0 || to >= buttons.length) return;
    else {
      buttons.forEach((each, place) => set(each as HTMLElement, { tabindex: place === to ? 0 : -1 }));
      buttons[to]?.focus();
    }
    event.preventDefault();
    event.stopPropagation();
  }

  sort(0);
  return {
    element: h("div", { class: "modules fills" }, rows.element),
    reveal(selected) {
      const at = selected.kind === "module" ? order.indexOf(page.shown.scopes.of[selected.at]) : -1;
      if (at >= 0) rows.goTo(at, false);
      rows.refresh();
    },
  };
}
