/** Elements made by hand: text is text and never markup. */

import { plain } from "../draw/plain.ts";

export type Child = Node | string | null | false;
type Value = string | number | boolean | null | ((event: never) => void);

/** Attributes by name; those that are functions listen ("click", "keydown"); `false` and `null` are left out. */
export function h<Tag extends keyof HTMLElementTagNameMap>(
  tag: Tag,
  attributes: Readonly<Record<string, Value>> = {},
  ...children: readonly Child[]
): HTMLElementTagNameMap[Tag] {
  const element = document.createElement(tag);
  set(element, attributes);
  element.append(...kept(children));
  return element;
}

export function set(element: Element, attributes: Readonly<Record<string, Value>>): void {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value as (event: Event) => void);
    else if (value === null || value === false) element.removeAttribute(name);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
}

export function fill(element: Element, ...children: readonly Child[]): void {
  element.replaceChildren(...kept(children));
}

/** Texts of a file are made plain; nodes are taken as they are. */
function kept(children: readonly Child[]): (Node | string)[] {
  return children
    .filter((child) => child !== null && child !== false)
    .map((child) => (typeof child === "string" ? plain(child, 100_000) : (child as Node)));
}

export function button(words: string, act: () => void, attributes: Readonly<Record<string, Value>> = {}): HTMLButtonElement {
  return h("button", { type: "button", ...attributes, click: act }, words);
}
