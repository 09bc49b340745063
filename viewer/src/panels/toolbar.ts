/** The bar at the top, with the actions that are not done on the drawing itself. */

import { lookSign, lookToken } from "../draw/theme.ts";
import { switches } from "../state.ts";
import type { Page } from "./context.ts";
import { type Child, fill, h, set } from "./dom.ts";
import { link } from "./pieces.ts";

export interface Toolbar {
  readonly element: HTMLElement;
  show(): void;
}

export function toolbar(page: Page, finder: HTMLElement): Toolbar {
  const { model, tool } = page;
  const colour = h(
    "select",
    { "aria-label": "Colour by", change: () => page.change({ colour: colour.value }) },
  );
  const boxes = switches.map(([, , key]) => h("input", { type: "checkbox", change: () => tool(key).click() }));
  const sides = tool("b", "Side by side");
  const operations = tool("y", "Operations");
  const menus = [
    menu("Open", tool("e"), tool("0"), [..."1234"].map((depth) => tool(depth, `to depth ${depth}`)), tool("o")),
    menu(
      "Show",
      boxes.map((box, at) => h("label", box, h("span", switches[at][3]))),
    ),
    menu("Save", tool("s"), tool("S"), tool("k")),
  ];
  // A press elsewhere, or on an entry of a menu, closes it.
  for (const type of ["pointerdown", "click"])
    document.addEventListener(type, ({ target }) => {
      for (const each of menus) if (!each.contains(target as Node) || (type === "click" && target instanceof HTMLButtonElement)) each.open = false;
    });
  const tools = (...children: Child[]): HTMLElement => h("div.tools", children);
  return {
    element: h(
      "header",
      h("h1", { title: model.title }, model.title),
      finder,
      tools(menus[0], menus[1], colour),
      tools(operations),
      tools(tool("-", "\u2212"), tool("+", "+"), tool("f", "Fit")),
      model.changes.length > 0 && tools(tool("p", "\u2039"), tool("n", "\u203a"), sides),
      tools(menus[2], tool("[", "Lists"), tool("]", "Details"), tool("?", "?")),
      verdictLine(page),
    ),
    show() {
      const { state } = page;
      // A file that is dropped on the page adds colours.
      if (colour.length !== page.colours.length) fill(colour, page.colours.map(([value, words]) => h("option", { value }, `Colour: ${words}`)));
      colour.value = state.colour;
      switches.forEach(([, name], at) => (boxes[at].checked = state.switches[name]));
      set(operations, { "aria-pressed": `${!state.switches.layers}` });
      set(sides, { "aria-pressed": `${state.sides}` });
    },
  };
}

/** The keys reach the line, to scroll a long one; a click leads to the place that it tells of. */
export function verdictLine(page: Page): Child {
  const { changes, verdict } = page.model;
  if (!verdict) return null;
  // A review without a cut leads to its first change.
  const [look, words, kind = changes.length > 0 && "change", at = 0] = verdict;
  const said = `${lookSign(look)} ${words}`;
  const place = kind ? link(page, { kind, at }, said) : said;
  // Beside the drawing of a narrow window the details are closed.
  const line = h("p.verdict", { tabindex: kind ? null : 0, click: () => kind && line.closest(".noright") && page.tool("]").click() }, place);
  line.style.background = `var(--${lookToken(look)})`;
  return line;
}

function menu(words: string, ...children: Child[]): HTMLDetailsElement {
  const head = h("summary", words);
  const left = (event: KeyboardEvent): void => {
    if (event.key !== "Escape" || !element.open) return;
    element.open = false;
    head.focus();
    event.preventDefault();
  };
  const element = h("details.menu", { name: "gradir-menu", keydown: left }, head, h("div", children));
  return element;
}
