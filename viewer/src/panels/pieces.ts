/** Parts of panels: buttons that lead somewhere, lists of facts, tables. */

import { type Model, roles } from "../data/model.ts";
import { numberText } from "../draw/plain.ts";
import { type Selected, nothing } from "../state.ts";
import type { Page } from "./context.ts";
import { type Child, h } from "./dom.ts";

/** A button that selects; a path that is too long for its line breaks behind a dot. */
export function link(page: Page, selected: Selected, words: string): HTMLElement {
  const parts = words.split(/(?<=\.)/).flatMap((part) => [part, h("wbr")]);
  return h("button.link", { type: "button", click: () => page.select(selected) }, parts);
}

export function nodeButton(page: Page, at: number, words = page.model.nodes.id(at)): HTMLElement {
  return link(page, { kind: "node", at }, words);
}

export function moduleButton(page: Page, at: number): HTMLElement {
  return link(page, at === 0 ? nothing : { kind: "module", at }, page.model.scopes.path(at) || "the whole graph");
}

export function badges(...words: readonly string[]): Child {
  return h(
    "p.badges",
    words.map((each) => each !== "" && h("span.badge", each)),
  );
}

/** A list of facts by key, without those that are empty or zero. */
export function facts(all: readonly (readonly [key: string, value: string])[] | Readonly<Record<string, string | number>>): Child {
  const told = (all instanceof Array ? all : Object.entries(all)).filter(([, value]) => value);
  return (
    told.length > 0 &&
    h(
      "dl",
      told.map(([key, value]) => [h("dt", key), h("dd", typeof value === "number" ? numberText(value) : value)]),
    )
  );
}

/** A heading with its content, or nothing if that is empty. */
export function section(title: string, ...children: readonly Child[]): Child {
  return children.some((child) => child) && [h("h3", title), children];
}

/** Rows whose first cell is their head. */
export function table(heads: readonly string[], rows: readonly (readonly Child[])[]): Child {
  return (
    rows.length > 0 &&
    h(
      "table",
      h(
        "thead",
        h(
          "tr",
          heads.map((words) => h("th", { "scope": "col" }, words)),
        ),
      ),
      h(
        "tbody",
        rows.map(([first, ...rest]) =>
          h(
            "tr",
            h("th", { "scope": "row" }, first),
            rest.map((cell) => h("td", cell)),
          ),
        ),
      ),
    )
  );
}

/** As many as one reads, and how many more there are. */
export function several<Item>(all: readonly Item[], most: number, draw: (item: Item) => Child): Child {
  return (
    all.length > 0 && [
      h(
        "ul",
        all.slice(0, most).map((each) => h("li", draw(each))),
      ),
      all.length > most && h("p.note", `and ${numberText(all.length - most)} more`),
    ]
  );
}

export function copy(page: Page, text: string): void {
  const failed = (): void => {
    // Some hosts of a page forbid the clipboard: selected text can still be copied by hand.
    const area = h("textarea.sr");
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  };
  if (navigator.clipboard) navigator.clipboard.writeText(text).catch(failed);
  else failed();
  page.say(`Copied ${text.slice(0, 200)}`);
}

/** The title of a function is its operation, of anything else its name. */
export function titleOf({ nodes, texts }: Model, node: number): string {
  const [op, name] = [texts[nodes.op[node]], texts[nodes.name[node]]];
  return (roles[nodes.role[node]] === "function" ? op : name || op) || roles[nodes.role[node]];
}

/** "float32[4, 8]" */
export function typeOf({ nodes, texts }: Model, node: number): string {
  return `${texts[nodes.dtype[node]]}${texts[nodes.shape[node]]}`;
}
