/** Panels of which one is seen, by the pattern of tabs: arrows go between them. Each is made when it is first seen. */

import { h, set } from "./dom.ts";

export interface Tab {
  readonly name: string;
  readonly words: string;
  make(): HTMLElement;
}

export interface Tabs {
  readonly element: HTMLElement;
  readonly current: string;
  show(name: string): void;
  focus(name: string): void;
}

export function tabs(label: string, all: readonly Tab[], onShow: (name: string) => void): Tabs {
  let current = "";
  const made = new Map<string, HTMLElement>();
  const heads = new Map<string, HTMLButtonElement>();
  const bar = h("div", { role: "tablist", "aria-label": label, class: "tabs" });
  const body = h("div", { class: "tabbody" });
  for (const { name, words } of all) {
    const head = h("button", { type: "button", role: "tab", id: `gradir-tab-${name}`, click: () => show(name) }, words);
    heads.set(name, head);
    bar.append(head);
  }
  bar.addEventListener("keydown", (event) => {
    const at = all.findIndex(({ name }) => name === current);
    const to =
      event.key === "ArrowRight"
        ? at + 1
        : event.key === "ArrowLeft"
          ? at - 1
          : event.key === "Home"
            ? 0
            : event.key === "End"
              ? all.length - 1
              : null;
    if (to === null) return;
    const { name } = all[(to + all.length) % all.length];
    show(name);
    heads.get(name)?.focus();
    event.preventDefault();
    event.stopPropagation();
  });
  function show(name: string): void {
    const tab = all.find((each) => each.name === name);
    if (tab === undefined) return;
    current = name;
    for (const each of all) {
      const isCurrent = each.name === name;
      set(heads.get(each.name) as HTMLElement, {
        "aria-selected": isCurrent ? "true" : "false",
        tabindex: isCurrent ? 0 : -1,
        "aria-controls": isCurrent ? `gradir-panel-${name}` : null,
      });
      const panel = made.get(each.name);
      if (panel) panel.hidden = !isCurrent;
    }
    if (!made.has(name)) {
      const panel = h("div", { role: "tabpanel", id: `gradir-panel-${name}`, "aria-labelledby": `gradir-tab-${name}`, class: "tabpanel" });
      made.set(name, panel);
      body.append(panel);
      panel.append(tab.make());
    }
    onShow(name);
  }
  return {
    element: h("div", { class: "tabset" }, bar, body),
    get current() {
      return current;
    },
    show,
    focus(name) {
      show(name);
      (made.get(name)?.querySelector<HTMLElement>('.row[tabindex="0"]') ?? heads.get(name))?.focus();
    },
  };
}
