/** A list of any length of which only the rows in sight are elements; one row takes part in the tab order. */

import type { Selected } from "../state.ts";
import type { Page } from "./context.ts";
import { type Child, fill, h, set } from "./dom.ts";

export interface ListOptions {
  readonly role: "tree" | "listbox" | "grid";
  readonly label: string;
  /** The node or module of a row, a module by its number in the model. */
  of(index: number): Selected;
  /** The content of a row; sets its attributes (aria-level, class). */
  draw(row: HTMLElement, index: number): Child;
  /** Handles a click or Enter; returns true if that is all, else the row's node or module is selected. */
  act?(index: number, event: Event): boolean;
  /** Any other key; true where it was for the list. */
  key?(index: number, event: KeyboardEvent): boolean;
  /** Up from the first row. */
  leave?(): void;
}

export interface List extends Pick<ListOptions, "of"> {
  readonly element: HTMLElement;
  readonly active: number;
  /** So many rows now, all drawn anew. */
  show(count: number, active?: number): void;
  /** Goes to the row of the selection, if there is one; the rows in sight are drawn anew. */
  reveal(): void;
  goTo(index: number, takesFocus: boolean): void;
}

const rowRoles = { tree: "treeitem", listbox: "option", grid: "row" } as const;
const high = 24;
const spare = 6;

export function list(page: Page, options: ListOptions): List {
  const { role } = options;
  const inner = h("div.rows", { role: role === "grid" ? "rowgroup" : "none" });
  const element = h("div", { class: `list ${role}`, role, "aria-label": options.label }, inner);
  const rows = new Map<number, HTMLElement>();
  let count = 0;
  let active = 0;

  const isSelected = (index: number): boolean => {
    const { selected } = page.state;
    const row = options.of(index);
    if (selected.kind === "none" || row.kind !== selected.kind) return false;
    return row.at === (selected.kind === "module" ? page.shown.scopes.of[selected.at] : selected.at);
  };
  const place = (index: number): void => {
    const row = h("div.row", { role: rowRoles[role], tabindex: index === active ? 0 : -1, "aria-selected": `${isSelected(index)}` });
    row.style.top = `${index * high}px`;
    row.dataset["index"] = String(index);
    set(row, role === "grid" ? { "aria-rowindex": index + 2 } : { "aria-setsize": count, "aria-posinset": index + 1 });
    fill(row, options.draw(row, index));
    rows.set(index, row);
    inner.append(row);
  };
  const draw = (): void => {
    const first = Math.max(0, Math.floor(element.scrollTop / high) - spare);
    const last = Math.min(count - 1, Math.ceil((element.scrollTop + element.clientHeight) / high) + spare);
    for (const [index, row] of rows) {
      // The active row stays, for with it would go the focus.
      if ((index < first || index > last) && index !== active) {
        row.remove();
        rows.delete(index);
      }
    }
    for (let index = first; index <= last; index++) if (!rows.has(index)) place(index);
    if (active < count && !rows.has(active)) place(active);
  };
  const redraw = (): void => {
    const hadFocus = inner.contains(document.activeElement);
    rows.clear();
    fill(inner);
    draw();
    if (hadFocus) goTo(active, true);
  };
  const goTo = (index: number, takesFocus: boolean): void => {
    if (count === 0) return;
    const before = rows.get(active);
    if (before) before.tabIndex = -1;
    active = Math.min(count - 1, Math.max(0, index));
    const top = active * high;
    if (top < element.scrollTop) element.scrollTop = top;
    else if (top + high > element.scrollTop + element.clientHeight) element.scrollTop = top + high - element.clientHeight;
    draw();
    const row = rows.get(active);
    if (row === undefined) return;
    row.tabIndex = 0;
    if (takesFocus) row.focus({ preventScroll: true });
  };
  const indexOf = (event: Event): number => {
    const row = event.target instanceof Element ? event.target.closest<HTMLElement>(".row") : null;
    return row === null ? -1 : Number(row.dataset["index"]);
  };
  const act = (index: number, event: Event): void => {
    if (!options.act?.(index, event)) page.select(options.of(index));
    redraw();
  };

  set(element, {
    scroll: draw,
    click: (event: Event) => {
      const index = indexOf(event);
      if (index < 0) return;
      goTo(index, true);
      act(index, event);
    },
    keydown: (event: KeyboardEvent) => {
      const index = indexOf(event);
      const { key } = event;
      if (index < 0 || event.ctrlKey || event.metaKey || event.altKey) return;
      const far = Math.max(1, Math.floor(element.clientHeight / high) - 1);
      const to = { ArrowDown: index + 1, ArrowUp: index - 1, Home: 0, End: count - 1, PageDown: index + far, PageUp: index - far }[key];
      if (to === -1 && options.leave) options.leave();
      else if (to !== undefined) goTo(to, true);
      else if (key === "Enter" || (key === " " && role === "listbox")) act(index, event);
      else if (!options.key?.(index, event)) return;
      event.preventDefault();
    },
  });
  new ResizeObserver(draw).observe(element);

  return {
    element,
    of: options.of,
    get active() {
      return active;
    },
    show(next, at = Math.min(active, Math.max(0, next - 1))) {
      count = next;
      active = at;
      inner.style.height = `${count * high}px`;
      if (role === "grid") set(element, { "aria-rowcount": count + 1 });
      redraw();
    },
    reveal() {
      // Of several rows of one cut the one that was gone to stays.
      for (let index = 0; index < count && !isSelected(active); index++) if (isSelected(index)) goTo(index, false);
      redraw();
    },
    goTo,
  };
}
