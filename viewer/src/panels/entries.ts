/** Lists in sections: the changes of a diff in the groups of its text, and where no gradient flows on. */

import { type Cut, statuses } from "../data/model.ts";
import { statusSigns } from "../draw/looks.ts";
import { statusWords } from "../draw/paint.ts";
import { numberText } from "../draw/plain.ts";
import { nothing } from "../state.ts";
import type { Page } from "./context.ts";
import { h } from "./dom.ts";
import { type List, list } from "./list.ts";

/** An entry for a change or a cut, by its index; -1 for a heading, whose note is a number. */
type Row = readonly [at: number, words: string, note: string];

export function changesList(page: Page): List {
  const { changes } = page.model;
  const groups: [words: string, rows: Row[]][] = [];
  changes.forEach(({ group, text }, at) => {
    if (groups.at(-1)?.[0] !== group) groups.push([group, []]);
    groups.at(-1)?.[1].push([at, text === group ? text : within(group, text), ""]);
  });
  return sections(page, "change", "Changes", groups, (at) => {
    const { kind } = changes[at];
    return [kind, statusSigns[(statuses as readonly string[]).indexOf(kind)] || "\u00b7"];
  });
}

/** A change without the path that its heading ends with: "h.0.attn: the same change in each of 2 modules, here in h.0.attn". */
function within(heading: string, text: string): string {
  // "(top level)" ends with no path.
  const here = /[^\s)]+$/.exec(heading)?.[0];
  if (!here) return text;
  const isHere = (word: string): boolean => word.startsWith(here) && "/.".includes(word[here.length] ?? "");
  return text.replace(/\S+/g, (word) => (isHere(word) ? word.slice(here.length + 1) : word));
}

export function cutsList(page: Page): List {
  const { cuts } = page.model;
  const lacking = listUnreached(cuts).map(([name, at]): Row => [at, name, `${reason(cuts[at])} ${cuts[at].source}`]);
  const places = cuts.flatMap((cut, at): Row[] =>
    isPlace(cut) ? [[at, reason(cut), `${cut.source}${cut.meant && ` \u2013 meant: ${cut.meant}`}`]] : [],
  );
  const groups: [string, Row[]][] = [
    ["Parameters without gradient", lacking],
    ["Where gradient stops", places],
  ];
  return sections(page, "cut", "Parameters without gradient, and where it stops", groups, () => ["removed", "\u2298"]);
}

function sections(
  page: Page,
  kind: "change" | "cut",
  label: string,
  groups: readonly (readonly [words: string, rows: readonly Row[]])[],
  signOf: (at: number) => readonly [className: string, sign: string],
): List {
  const rows = groups.flatMap(([words, all]): Row[] => {
    // A module that came or went is a group of its own, and heads it by itself.
    if (all.length === 0 || all[0][1] === words) return [...all];
    return [[-1, words, numberText(all.length)], ...all];
  });
  const all = list(page, {
    role: "listbox",
    label,
    of: (index) => (rows[index][0] < 0 ? nothing : { kind, at: rows[index][0] }),
    act(index) {
      // A heading leads to the first below it.
      if (rows[index][0] >= 0) return false;
      page.select({ kind, at: rows[index + 1][0] });
      return true;
    },
    draw(row, index) {
      const [at, words, note] = rows[index];
      row.classList.toggle("heading", at < 0);
      row.title = `${words} ${note}`.slice(0, 500);
      if (at < 0) return [h("span.count", note), h("span.name", words)];
      const [className, sign] = signOf(at);
      return [h("span", { class: `sign ${className}` }, sign), h("span.name", ` ${words}`), h("span.note", ` ${note}`)];
    },
  });
  all.show(rows.length);
  return all;
}

/** Parameters without gradient, of cuts that are no places, each with the cut that it is behind. */
export function listUnreached(cuts: readonly Cut[]): readonly (readonly [name: string, cut: number])[] {
  const behind = new Map<string, number>();
  cuts.forEach((cut, at) => isPlace(cut) && cut.names.forEach((name) => behind.has(name) || behind.set(name, at)));
  return cuts.flatMap((cut, at) => (isPlace(cut) ? [] : cut.names.map((name) => [name, behind.get(name) ?? at] as const)));
}

function isPlace(cut: Cut): boolean {
  return cut.op !== "" || cut.source !== "";
}

export function reason({ kind, op, status = 0 }: Cut): string {
  return `${kind}${op === "" || op === kind ? "" : `: ${op}`} ${statusWords(status)}`.trim();
}
