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
/** The sort key of a column, and its text if it is a number; columns of numbers start with the largest. */
type Column = readonly [words: string, value: (scope: number) => Value, text?: (value: number) => string];

export function modulesTable(page: Page): List {
  const { model, sums } = page;
  const { scopes, texts } = model;
  const { alike } = scopes;
  const results = resultsOf(model);
  /** Whether one of equal layers represents all, as in the drawing, with their sum. */
  let isRolled = false;
  const together = (column: ArrayLike<number>): Float64Array => {
    const sums = new Float64Array(scopes.count);
    alike.forEach((first, scope) => (sums[first] += column[scope]));
    return sums;
  };
  const times = together(new Uint8Array(scopes.count).fill(1));
  const numbers = (words: string, column: ArrayLike<number>, text = numberText): Column => {
    const sums = together(column);
    return [words, (scope) => (isRolled ? sums : column)[scope], text];
  };
  const columns: readonly Column[] = [
    ["Module", (scope) => scope, (scope) => scopes.path(scope)],
    ["Class", (scope) => `${texts[scopes.className[scope]]}${isRolled && times[scope] > 1 ? ` \u00d7${times[scope]}` : ""}`],
    ["Result", (scope) => (results[scope] < 0 ? "" : shapeFirst(model, results[scope]))],
    numbers("Calls", scopes.calls),
    numbers("Nodes", sums.nodes),
    numbers("Parameters", scopes.parameters),
    numbers("Saved", scopes.saved, bytesText),
  ];
  let order: number[] = [];
  let sorted = 0;
  let isDown = false;

  const buttons = columns.map(([words], at) => button(words, () => sort(at), { tabindex: at === 0 ? 0 : -1, title: `Sort by ${words.toLowerCase()}` }));
  const heads = buttons.map((each) => h("div.cell", { role: "columnheader" }, each));
  const toRows = (event: KeyboardEvent): void => {
    if (event.key !== "ArrowDown") return;
    rows.goTo(rows.active, true);
    event.preventDefault();
  };
  const head = h("div.head", { role: "row", "aria-rowindex": 1, keydown: toRows }, heads);
  roving(head, buttons);
  const rows = list(page, {
    role: "grid",
    label: "Modules",
    of: (index) => ({ kind: "module", at: order[index] }),
    draw: (_, index) =>
      columns.map(([, valueOf, textOf]) => {
        const value = valueOf(order[index]);
        const text = typeof value === "string" ? value : value > 0 && textOf ? textOf(value) : "";
        return h("div.cell", { role: "gridcell", title: plain(text, 400) }, h("bdi", text));
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
    arrange();
  }
  function arrange(): void {
    order = Array.from({ length: scopes.count }, (_, at) => at).filter((scope) => scope > 0 && (!isRolled || alike[scope] === scope));
    const keys = new Map(order.map((scope) => [scope, columns[sorted][1](scope)]));
    order.sort((one, other) => {
      const [a, b] = [keys.get(one) ?? 0, keys.get(other) ?? 0];
      return (a === b ? 0 : a < b === isDown ? 1 : -1) || one - other;
    });
    heads.forEach((each, at) => set(each, { "aria-sort": at !== sorted ? "none" : isDown ? "descending" : "ascending" }));
    rows.show(order.length, 0);
  }

  const { reveal } = rows;
  return Object.assign(rows, {
    reveal() {
      if (order.length === 0 || isRolled !== page.state.switches.rollUp) {
        isRolled = page.state.switches.rollUp;
        arrange();
      }
      reveal();
    },
  });
}
