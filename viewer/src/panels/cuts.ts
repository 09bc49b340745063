/** Where no gradient flows on, and the parameters that it does not reach for that: one click leads to the cut. */

import type { Cut } from "../data/model.ts";
import { numberText } from "../draw/plain.ts";
import type { Selected } from "../state.ts";
import type { Page } from "./context.ts";
import { fill, h, set } from "./dom.ts";
import { list } from "./list.ts";

export interface CutsList {
  readonly element: HTMLElement;
  reveal(selected: Selected): void;
}

/** A row is a heading, a place that cuts, or the name of a parameter with the cut that it is behind. */
type Row = readonly [words: string, cut: number, note: string];

/** Parameters without gradient, of cuts that are no places. */
export function unreached(cuts: readonly Cut[]): readonly (readonly [name: string, cut: number])[] {
  const behind = new Map<string, number>();
  cuts.forEach((cut, at) => isPlace(cut) && cut.names.forEach((name) => behind.has(name) || behind.set(name, at)));
  return cuts.flatMap((cut, at) => (isPlace(cut) ? [] : cut.names.map((name) => [name, behind.get(name) ?? at] as const)));
}

function isPlace(cut: Cut): boolean {
  return cut.op !== "" || cut.source !== "";
}

export function cutsList(page: Page): CutsList {
  const { cuts } = page.model;
  const lacking = unreached(cuts).map(([name, at]): Row => [name, at, isPlace(cuts[at]) ? `${reason(cuts[at])} ${cuts[at].source}` : cuts[at].kind]);
  const places = cuts.flatMap((cut, at): Row[] =>
    isPlace(cut) ? [[reason(cut), at, `${cut.source}${cut.meant === "" ? "" : ` \u2013 meant: ${cut.meant}`}`]] : [],
  );
  const section = (words: string, all: readonly Row[]): Row[] => (all.length > 0 ? [[words, -1, numberText(all.length)], ...all] : []);
  const rows = [...section("Parameters without gradient", lacking), ...section("Where gradient stops", places)];
  const isSelected = (cut: number): boolean => page.state.selected.kind === "cut" && page.state.selected.at === cut;
  const all = list({
    role: "listbox",
    label: "Parameters without gradient, and where it stops",
    draw(row, index) {
      const [words, cut, note] = rows[index];
      set(row, { "aria-selected": isSelected(cut) ? "true" : "false" });
      row.classList.toggle("heading", cut < 0);
      fill(
        row,
        cut < 0 ? null : h("span", { class: "sign removed" }, "\u2298"),
        h("span", { class: "name" }, words),
        h("span", { class: cut < 0 ? "count" : "note" }, ` ${note}`),
      );
    },
    act(index) {
      page.select({ kind: "cut", at: rows[index][1] < 0 ? rows[index + 1][1] : rows[index][1] }, true);
      all.refresh();
    },
  });
  all.show(rows.length);
  return {
    element: h("div", { class: "cuts fills" }, all.element),
    reveal(selected) {
      if (selected.kind === "cut" && rows[all.active]?.[1] !== selected.at)
        all.goTo(
          rows.findIndex(([, cut]) => cut === selected.at),
          false,
        );
      all.refresh();
    },
  };
}

export function reason(cut: Cut): string {
  return cut.op === "" || cut.op === cut.kind ? cut.kind : `${cut.kind}: ${cut.op}`;
}
