/** A table of the modules, sorted by any column, that goes along with the drawing. */

import { bytesText, numberText, plain } from "../draw/plain.ts";
import { resultsOf } from "../draw/sums.ts";
import type { Model } from "../data/model.ts";
import type { Page } from "./context.ts";
import { button, h, roving, set } from "./dom.ts";
import { type List, list } from "./list.ts";

/** A narrow column loses the end: "[8, 32] float32". */
function shapeFirst({ nodes, texts }: Model, node: number): string {
  return `${texts[nodes.shape[node]]} ${texts[nodes.dtype[node]]}`;
}

type Value = string | number;
/** What it is sorted by, and the text of that where it is a number; columns of numbers start with the largest. */
type Column = readonly [words: string, value: (scope: number) => Value, text?: (value: number) => string];

export function modulesTable(page: Page): List {
  const { model, sums } = page;
  const { scopes, texts } = model;
  const results = resultsOf(model);
  const numbers = (words: string, column: ArrayLike<number>, text = numberText): Column => [words, (scope) => column[scope], text];
  const columns: readonly Column[] = [
    ["Module", (scope) => scope, (scope) => model.scopes.path(scope)],
    ["Class", (scope) => texts[scopes.className[scope]]],
    ["Result", (scope) => (results[scope] < 0 ? "" : shapeFirst(model, results[scope]))],
    numbers("Calls", scopes.calls),
    numbers("Nodes", sums.nodes),
    numbers("Parameters", scopes.parameters),
    numbers("Saved", scopes.saved, bytesText),
  ];
  const order = Array.from({ length: scopes.count - 1 }, (_, at) => at + 1);
  let sorted = -1;
  let isDown = false;

  const buttons = columns.map(([words], at) => button(words, () => sort(at), { tabindex: at === 0 ? 0 : -1, title: `Sort by ${words.toLowerCase()}` }));
  const heads = buttons.map((each) => h("div.cell", { role: "columnheader" }, each));
  const head = h("div.head", { role: "row", "aria-rowindex": 1 }, heads);
  roving(head, buttons);
  head.addEventListener("keydown", (event) => {
    if (event.key !== "ArrowDown") return;
    rows.goTo(rows.active, true);
    event.preventDefault();
  });
  const rows = list(page, {
    role: "grid",
    label: "Modules",
    of: (index) => ({ kind: "module", at: order[index] }),
    draw: (_, index) =>
      columns.map(([, valueOf, textOf]) => {
        const value = valueOf(order[index]);
        const text = typeof value === "string" ? value : value > 0 && textOf ? textOf(value) : "";
        return h("div.cell", { role: "gridcell", title: plain(text, 400) }, plain(text, 200));
      }),
    key(index, { key }) {
      if (key !== " " && key !== "o") return false;
      page.toggle(order[index]);
      return true;
    },
    leave: () => buttons[sorted].focus(),
  });
  rows.element.prepend(h("div.heads", { role: "rowgroup" }, head));

  function sort(column: number): void {
    isDown = column === sorted ? !isDown : column > 2;
    sorted = column;
    const keys = new Map(order.map((scope) => [scope, columns[column][1](scope)]));
    order.sort((one, other) => {
      const [a, b] = [keys.get(one) ?? 0, keys.get(other) ?? 0];
      return (a === b ? 0 : a < b === isDown ? 1 : -1) || one - other;
    });
    heads.forEach((each, at) => set(each, { "aria-sort": at !== sorted ? "none" : isDown ? "descending" : "ascending" }));
    rows.show(order.length, 0);
  }

  sort(0);
  return rows;
}
