/** Elements made by hand: text is text and never markup. */

import { plain } from "../draw/plain.ts";

type Value = string | number | boolean | null | ((event: never) => void);
type Attributes = Readonly<Record<string, Value>>;
export type Child = Node | string | null | false | readonly Child[];

/**
 * `h("p.note", { title: "…" }, "words")`: classes stand after the tag. Attributes that are functions listen ("click", "keydown");
 * `false` and `null` are left out, attributes or children.
 */
export function h<Tag extends keyof HTMLElementTagNameMap>(
  tag: Tag | `${Tag}.${string}`,
  ...parts: readonly (Child | Attributes)[]
): HTMLElementTagNameMap[Tag] {
  const [name, ...classes] = tag.split(".");
  const element = document.createElement(name as Tag);
  element.classList.add(...classes);
  for (const part of parts) put(element, part);
  return element;
}

export function set(element: Element, attributes: Attributes): void {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value as (event: Event) => void);
    else if (value === null || value === false) element.removeAttribute(name);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
}

export function fill(element: Element, ...children: readonly Child[]): void {
  element.replaceChildren();
  put(element, children);
}

/** Texts of a file are made plain; nodes are taken as they are. */
function put(element: Element, part: Child | Attributes): void {
  if (typeof part === "string") element.append(plain(part, 100_000));
  else if (part instanceof Node) element.append(part);
  else if (part instanceof Array) for (const each of part) put(element, each);
  else if (part) set(element, part as Attributes);
}

export function button(words: string, act: (event: Event) => void, attributes: Attributes = {}): HTMLButtonElement {
  return h("button", { type: "button", ...attributes, click: act }, words);
}

/** Of several buttons in a bar one takes part in the tab order, the arrows lead to the others. */
export function roving(bar: HTMLElement, buttons: readonly HTMLElement[], onArrival?: (at: number) => void): void {
  bar.addEventListener("keydown", (event) => {
    const at = buttons.indexOf(document.activeElement as HTMLElement);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: -1 }[event.key];
    if (to === undefined) return;
    const place = (to + buttons.length) % buttons.length;
    buttons.forEach((each, other) => (each.tabIndex = other === place ? 0 : -1));
    buttons[place].focus();
    onArrival?.(place);
    event.preventDefault();
  });
}
