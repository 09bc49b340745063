/** A list of any length of which only the rows in sight are elements; one row takes part in the tab order. */

import { fill, h, set } from "./dom.ts";

export interface ListOptions {
  readonly role: "tree" | "listbox" | "grid";
  readonly label: string;
  readonly rowHeight?: number;
  /** Fills a row, sets what is special of it (aria-level, class). */
  draw(row: HTMLElement, index: number): void;
  /** A click or Enter. */
  act(index: number, event: Event): void;
  /** Any other key; true where it was for the list. */
  key?(index: number, event: KeyboardEvent): boolean;
  /** Up from the first row. */
  leave?(): void;
}

export interface List {
  readonly element: HTMLElement;
  readonly active: number;
  /** So many rows now, all drawn anew. */
  show(count: number, active?: number): void;
  /** The rows in sight are drawn anew. */
  refresh(): void;
  goTo(index: number, takesFocus: boolean): void;
}

const rowRoles = { tree: "treeitem", listbox: "option", grid: "row" } as const;
const spare = 6;

export function list(options: ListOptions): List {
  const high = options.rowHeight ?? 24;
  const inner = h("div", { class: "rows", role: options.role === "grid" ? "rowgroup" : "none" });
  const element = h("div", { class: `list ${options.role}`, role: options.role, "aria-label": options.label }, inner);
  const rows = new Map<number, HTMLElement>();
  let count = 0;
  let active = 0;

  const place = (index: number): HTMLElement => {
    const row = h("div", { role: rowRoles[options.role], class: "row", tabindex: index === active ? 0 : -1 });
    row.style.top = `${index * high}px`;
    row.style.height = `${high}px`;
    row.dataset["index"] = String(index);
    if (options.role === "grid") set(row, { "aria-rowindex": index + 2 });
    else set(row, { "aria-setsize": count, "aria-posinset": index + 1 });
    options.draw(row, index);
    rows.set(index, row);
    inner.append(row);
    return row;
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
  const clear = (): void => {
    rows.clear();
    fill(inner);
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

  element.addEventListener("scroll", draw, { passive: true });
  element.addEventListener("click", (event) => {
    const index = indexOf(event);
    if (index < 0) return;
    goTo(index, true);
    options.act(index, event);
  });
  element.addEventListener("keydown", (event) => {
    const index = indexOf(event);
    if (index < 0 || event.ctrlKey || event.metaKey || event.altKey) return;
    const page = Math.max(1, Math.floor(element.clientHeight / high) - 1);
    const moves: Readonly<Record<string, number>> = {
      ArrowDown: index + 1,
      ArrowUp: index - 1,
      Home: 0,
      End: count - 1,
      PageDown: index + page,
      PageUp: index - page,
    };
    if (event.key === "ArrowUp" && index === 0 && options.leave) options.leave();
    else if (event.key in moves) goTo(moves[event.key], true);
    else if (event.key === "Enter" || (event.key === " " && options.role !== "tree")) options.act(index, event);
    else if (!options.key?.(index, event)) return;
    event.preventDefault();
    event.stopPropagation();
  });
  new ResizeObserver(draw).observe(element);

  return {
    element,
    get active() {
      return active;
    },
    show(next, at = Math.min(active, Math.max(0, next - 1))) {
      const hadFocus = inner.contains(document.activeElement);
      count = next;
      active = at;
      inner.style.height = `${count * high}px`;
      if (options.role === "grid") set(element, { "aria-rowcount": count + 1 });
      clear();
      draw();
      if (hadFocus) goTo(active, true);
    },
    refresh() {
      const hadFocus = inner.contains(document.activeElement);
      clear();
      draw();
      if (hadFocus) rows.get(active)?.focus({ preventScroll: true });
    },
    goTo,
  };
}
