/** Panels of which one is seen, by the pattern of tabs: arrows go between them. Each is made when it is first seen. */

import { button, h, roving, set } from "./dom.ts";
import type { List } from "./list.ts";

/** Left out where it has nothing to show. */
export type Tab = readonly [name: string, words: string, make: () => List, isOn?: boolean];

export interface Tabs {
  readonly element: HTMLElement;
  show(name: string): void;
  focus(name: string): void;
  /** The visible panel goes to the selection. */
  reveal(): void;
}

export function tabs(label: string, all: readonly Tab[], onShow: (name: string) => void): Tabs {
  const on = all.filter(([, , , isOn]) => isOn !== false);
  const made = new Map<string, List>();
  let current = "";
  const heads = on.map(([name, words]) =>
    button(words, () => show(name), { role: "tab", id: `gradir-tab-${name}`, "aria-controls": `gradir-panel-${name}` }),
  );
  const panels = on.map(([name]) => h("div.tabpanel", { role: "tabpanel", id: `gradir-panel-${name}`, "aria-labelledby": `gradir-tab-${name}` }));
  const bar = h("div.tabs", { role: "tablist", "aria-label": label }, heads);
  roving(bar, heads, (at) => show(on[at][0]));
  function show(wanted: string): void {
    on.forEach(([name, , make], at) => {
      const isShown = name === wanted;
      set(heads[at], { "aria-selected": `${isShown}`, tabindex: isShown ? 0 : -1 });
      panels[at].hidden = !isShown;
      if (!isShown) return;
      current = name;
      if (!made.has(name)) {
        const list = make();
        made.set(name, list);
        panels[at].append(list.element);
      }
      onShow(name);
    });
  }
  return {
    element: h("div.tabset", bar, h("div.tabbody", panels)),
    show,
    focus(name) {
      show(name);
      const list = made.get(name);
      list?.goTo(list.active, true);
    },
    reveal: () => made.get(current)?.reveal(),
  };
}
