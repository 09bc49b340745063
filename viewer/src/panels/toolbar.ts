/** The bar at the top: what is not done on the drawing itself. */

import { type State, switchNames } from "../state.ts";
import type { Page } from "./context.ts";
import { type Child, button, h, set } from "./dom.ts";

export interface Toolbar {
  readonly element: HTMLElement;
  show(state: State): void;
}

export interface ToolbarActions {
  fit(): void;
  zoom(factor: number): void;
  openAll(): void;
  closeAll(): void;
  openTo(depth: number): void;
  openSelected(): void;
  next(by: number): void;
  save(kind: "svg" | "png"): void;
  help(): void;
  toggleSide(side: "left" | "right"): void;
}

export function toolbar(
  page: Page,
  colours: readonly (readonly [name: string, words: string])[],
  finder: HTMLElement,
  actions: ToolbarActions,
): Toolbar {
  const { model } = page;
  const colour = h(
    "select",
    { "aria-label": "Colour by", change: () => page.change({ colour: colour.value }) },
    ...colours.map(([name, words]) => h("option", { value: name }, `Colour: ${words}`)),
  );
  const checks = Object.entries(switchNames).map(([name, [key, words]]) => {
    const box = h("input", {
      type: "checkbox",
      id: `gradir-switch-${name}`,
      change: () => page.change({ switches: { ...page.state.switches, [key]: box.checked } }),
    });
    return [key, box, h("label", {}, box, words)] as const;
  });
  const sides = button("Side by side", () => page.change({ sides: !page.state.sides }), { "aria-pressed": "false" });
  const isDiff = model.changes.length > 0;
  const depths = [1, 2, 3, 4].map((depth) => button(`To depth ${depth}`, () => closing(() => actions.openTo(depth))));
  const opening = menu(
    "Open",
    button("All", () => closing(actions.openAll)),
    button("None", () => closing(actions.closeAll)),
    ...depths,
    button("To the selected", () => closing(actions.openSelected)),
  );
  const showing = menu("Show", ...checks.map(([, , label]) => label));
  const saving = menu(
    "Save",
    button("SVG of what is seen", () => closing(() => actions.save("svg"))),
    button("PNG of what is seen", () => closing(() => actions.save("png"))),
  );
  const menus = [opening, showing, saving];

  function closing(act: () => void): void {
    act();
    for (const each of menus) each.open = false;
  }
  document.addEventListener("pointerdown", (event) => {
    for (const each of menus) if (event.target instanceof Node && !each.contains(event.target)) each.open = false;
  });
  for (const each of menus) {
    each.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || !each.open) return;
      each.open = false;
      each.querySelector("summary")?.focus();
      event.stopPropagation();
      event.preventDefault();
    });
    each.addEventListener("toggle", () => {
      if (each.open) for (const other of menus) if (other !== each) other.open = false;
    });
  }
  const tools = (...children: Child[]): HTMLElement => h("div", { class: "tools" }, ...children);
  const element = h(
    "header",
    {},
    h("h1", { title: model.title }, model.title || "gradir"),
    finder,
    tools(opening, showing, colour),
    tools(
      button("\u2212", () => actions.zoom(1 / 1.4), { "aria-label": "Zoom out", title: "Zoom out (-)" }),
      button("+", () => actions.zoom(1.4), { "aria-label": "Zoom in", title: "Zoom in (+)" }),
      button("Fit", actions.fit, { title: "Fit the drawing (f)" }),
    ),
    isDiff &&
      tools(
        button("\u2039", () => actions.next(-1), { "aria-label": "Previous change", title: "Previous change (p)" }),
        button("\u203a", () => actions.next(1), { "aria-label": "Next change", title: "Next change (n)" }),
        sides,
      ),
    tools(
      saving,
      button("Lists", () => actions.toggleSide("left"), { title: "Lists ([)" }),
      button("Details", () => actions.toggleSide("right"), { title: "Details (])" }),
      button("?", actions.help, { "aria-label": "Help: keys", title: "Keys (?)" }),
    ),
  );
  return {
    element,
    show(state) {
      colour.value = state.colour;
      for (const [key, box] of checks) box.checked = state.switches[key];
      set(sides, { "aria-pressed": state.sides ? "true" : "false" });
    },
  };
}

function menu(words: string, ...children: Child[]): HTMLDetailsElement {
  return h("details", { class: "menu" }, h("summary", {}, words), h("div", {}, ...children));
}
