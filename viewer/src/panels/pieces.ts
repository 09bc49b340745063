/** What panels are put together from: buttons that lead somewhere, lists of facts. */

import { type Model, roles } from "../data/model.ts";
import { pathOf } from "../draw/sums.ts";
import type { Page } from "./context.ts";
import { button, h } from "./dom.ts";

export function nodeButton(page: Page, node: number, words = page.model.nodes.id(node)): HTMLElement {
  return button(words, () => page.select({ kind: "node", at: node }, true), { class: "link" });
}

export function moduleButton(page: Page, scope: number): HTMLElement {
  return button(pathOf(page.model, scope) || "the whole graph", () => page.select(scope === 0 ? { kind: "none" } : { kind: "module", at: scope }), {
    class: "link",
  });
}

export function badges(words: readonly string[]): HTMLElement {
  return h("p", { class: "badges" }, ...words.filter((each) => each !== "").map((each) => h("span", { class: "badge" }, each)));
}

export function facts(all: readonly (readonly [string, string])[]): HTMLElement | null {
  const told = all.filter(([, value]) => value !== "");
  return told.length === 0 ? null : h("dl", {}, ...told.flatMap(([key, value]) => [h("dt", {}, key), h("dd", {}, value)]));
}

export function copy(page: Page, text: string): void {
  const failed = (): void => {
    // Some hosts of a page forbid the clipboard: what is marked can still be copied by hand.
    const area = h("textarea", { class: "sr" });
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

/** A function is called by what it does, anything else by its name. */
export function titleOf({ nodes, texts }: Model, node: number): string {
  const [op, name] = [texts[nodes.op[node]], texts[nodes.name[node]]];
  return (roles[nodes.role[node]] === "function" ? op : name || op) || roles[nodes.role[node]];
}
