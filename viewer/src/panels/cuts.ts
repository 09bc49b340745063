/** Where no gradient flows on, and the parameters that it does not reach for that: one click leads to the cut. */

import type { Cut } from "../data/model.ts";
import type { Selected } from "../state.ts";
import type { Page } from "./context.ts";
import { fill, h, set } from "./dom.ts";
import { list } from "./list.ts";

export interface CutsList {
  readonly element: HTMLElement;
  reveal(selected: Selected): void;
}

/** A row is a cut, or one of the names behind it. */
type Row = readonly [cut: number, name: number];

export function cutsList(page: Page): CutsList {
  const { cuts } = page.model;
  const rows: Row[] = cuts.flatMap((cut, at) => [[at, -1] as Row, ...cut.names.map((_, name) => [at, name] as Row)]);
  const isSelected = (cut: number): boolean => page.state.selected.kind === "cut" && page.state.selected.at === cut;
  const all = list({
    role: "listbox",
    label: "Cuts and the parameters behind them",
    draw(row, index) {
      const [at, name] = rows[index];
      set(row, { "aria-selected": isSelected(at) ? "true" : "false" });
      row.classList.toggle("heading", name < 0);
      if (name >= 0) fill(row, h("span", { class: "name indented" }, cuts[at].names[name]), h("span", { class: "note" }, ` ${reason(cuts[at])}`));
      else fill(row, h("span", { class: "sign removed" }, "\u2298"), h("span", { class: "name" }, ` ${reason(cuts[at])}`), h("span", { class: "note" }, ` ${cuts[at].source}${cuts[at].meant === "" ? "" : ` \u2013 meant: ${cuts[at].meant}`}`), h("span", { class: "count" }, `${cuts[at].names.length || ""}`));
    },
    act(index) {
      page.select({ kind: "cut", at: rows[index][0] });
      all.refresh();
    },
  });
  all.show(rows.length);
  return {
    element: h("div", { class: "cuts fills" }, all.element),
    reveal(selected) {
      if (selected.kind === "cut" && rows[all.active]?.[0] !== selected.at) all.goTo(rows.findIndex(([cut]) => cut === selected.at), false);
      all.refresh();
    },
  };
}

export function reason(cut: Cut): string {
  return cut.op === "" || cut.op === cut.kind ? cut.kind : `${cut.kind}: ${cut.op}`;
}
