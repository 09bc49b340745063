/** The changes of a diff in the groups of its text, beside the drawing. */

import { statuses } from "../data/model.ts";
import { statusSigns } from "../draw/looks.ts";
import { numberText } from "../draw/plain.ts";
import type { Selected } from "../state.ts";
import type { Page } from "./context.ts";
import { fill, h, set } from "./dom.ts";
import { list } from "./list.ts";

export interface ChangesList {
  readonly element: HTMLElement;
  reveal(selected: Selected): void;
}

/** A row is a heading as -1 - place in `groups`, or a change. */
export function changesList(page: Page): ChangesList {
  const { changes } = page.model;
  const groups: { readonly words: string; count: number }[] = [];
  const rows: number[] = [];
  changes.forEach((change, at) => {
    const last = groups[groups.length - 1];
    if (last === undefined || last.words !== change.group) {
      groups.push({ words: change.group, count: 0 });
      rows.push(-groups.length);
    }
    groups[groups.length - 1].count++;
    rows.push(at);
  });
  const all = list({
    role: "listbox",
    label: "Changes",
    draw(row, index) {
      const at = rows[index];
      row.classList.toggle("heading", at < 0);
      if (at < 0) {
        const { words, count } = groups[-1 - at];
        set(row, { "aria-selected": "false" });
        fill(row, h("span", { class: "name" }, words), h("span", { class: "count" }, numberText(count)));
        return;
      }
      const change = changes[at];
      const { selected } = page.state;
      set(row, { "aria-selected": selected.kind === "change" && selected.at === at ? "true" : "false", title: change.text.slice(0, 500) });
      const status = (statuses as readonly string[]).indexOf(change.kind);
      fill(row, h("span", { class: `sign ${change.kind}` }, statusSigns[status] || "\u00b7"), h("span", { class: "name" }, ` ${change.text}`));
    },
    act(index) {
      // A heading leads to the first change below it.
      const at = rows[index] < 0 ? rows[index + 1] : rows[index];
      page.select({ kind: "change", at });
      all.refresh();
    },
  });
  all.show(rows.length);
  return {
    element: h("div", { class: "changes fills" }, all.element),
    reveal(selected) {
      if (selected.kind === "change") all.goTo(rows.indexOf(selected.at), false);
      all.refresh();
    },
  };
}
