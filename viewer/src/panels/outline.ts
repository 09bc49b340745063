/** The modules and nodes as a tree of text: for keyboards, screen readers and for looking something up. */

import { type Model, roles, statuses } from "../data/model.ts";
import { roleSigns, statusSigns } from "../draw/looks.ts";
import { plain } from "../draw/plain.ts";
import { } from "../draw/sums.ts";
import { depths } from "../graph/columns.ts";
import { type Groups, grouped } from "../graph/columns.ts";
import type { Selected } from "../state.ts";
import type { Page } from "./context.ts";
import { fill, h, set } from "./dom.ts";
import { list } from "./list.ts";
import { titleOf } from "./pieces.ts";

export interface Outline {
  readonly element: HTMLElement;
  /** Opens the tree down to what is selected and goes there. */
  reveal(selected: Selected): void;
  focus(): void;
}

/** A row is scope s as s, and node n as -1 - n. */
type Row = number;

export function outline(page: Page): Outline {
  const { model, sums } = page;
  const { scopes, nodes } = model;
  const depth = depths(model.scopes.parent);
  const expanded = new Set<number>([0]);
  let held: { readonly scopes: Groups; readonly nodes: Groups } | null = null;
  let rows: Row[] = [];

  const inside = (): { readonly scopes: Groups; readonly nodes: Groups } =>
    (held ??= { scopes: grouped(scopes.parent, scopes.count), nodes: grouped(nodes.scope, scopes.count) });
  const collect = (): void => {
    const { scopes: scopesIn, nodes: nodesIn } = inside();
    rows = [];
    const stack: Row[] = [0];
    while (stack.length > 0) {
      const row = stack.pop() ?? 0;
      rows.push(row);
      if (row < 0 || !expanded.has(row)) continue;
      for (let at = nodesIn.first[row + 1] - 1; at >= nodesIn.first[row]; at--) stack.push(-1 - nodesIn.rows[at]);
      for (let at = scopesIn.first[row + 1] - 1; at >= scopesIn.first[row]; at--) stack.push(scopesIn.rows[at]);
    }
  };
  const isBranch = (row: Row): boolean => row >= 0 && (sums.nodes[row] > 0 || inside().scopes.first[row + 1] > inside().scopes.first[row]);
  const expand = (row: Row, isOpen: boolean): void => {
    if (isOpen) expanded.add(row);
    else expanded.delete(row);
    collect();
    tree.show(rows.length, Math.max(0, rows.indexOf(row)));
  };

  const tree = list({
    role: "tree",
    label: "Outline of the graph",
    draw(element, index) {
      const row = rows[index];
      const level = (row < 0 ? depth[nodes.scope[-1 - row]] + 1 : depth[row]) + 1;
      set(element, { "aria-level": level, "aria-selected": isSelected(page.state.selected, page, row) ? "true" : "false" });
      element.style.paddingLeft = `${4 + (level - 1) * 14}px`;
      if (isBranch(row)) set(element, { "aria-expanded": expanded.has(row) ? "true" : "false" });
      fill(
        element,
        h("span", { class: "twist", "aria-hidden": "true" }, isBranch(row) ? (expanded.has(row) ? "\u25be" : "\u25b8") : ""),
        ...words(model, row, sums.nodes, sums.byStatus),
      );
    },
    act(index, event) {
      const row = rows[index];
      const isTwist = event.target instanceof Element && event.target.closest(".twist") !== null;
      if (isTwist && isBranch(row)) expand(row, !expanded.has(row));
      else page.select(row < 0 ? { kind: "node", at: -1 - row } : row === 0 ? { kind: "none" } : { kind: "module", at: row });
      tree.refresh();
    },
    key(index, event) {
      const row = rows[index];
      if (event.key === "ArrowRight") {
        if (isBranch(row) && !expanded.has(row)) expand(row, true);
        else if (isBranch(row)) tree.goTo(index + 1, true);
      } else if (event.key === "ArrowLeft") {
        if (row >= 0 && expanded.has(row)) expand(row, false);
        else if (row !== 0) tree.goTo(rows.indexOf(row < 0 ? nodes.scope[-1 - row] : scopes.parent[row]), true);
      } else if (event.key === " " && row > 0) page.toggle(row);
      else if (event.key === "*") {
        const parent = row < 0 ? nodes.scope[-1 - row] : scopes.parent[row];
        for (let scope = 1; scope < scopes.count; scope++) if (scopes.parent[scope] === parent) expanded.add(scope);
        expand(row, row >= 0 && isBranch(row));
      } else return false;
      return true;
    },
  });
  collect();
  tree.show(rows.length);
  return {
    element: h("div", { class: "outline fills" }, tree.element),
    reveal(selected) {
      if (selected.kind !== "node" && selected.kind !== "module") {
        tree.refresh();
        return;
      }
      const row = selected.kind === "node" ? -1 - selected.at : page.shown.scopes.of[selected.at];
      for (let scope = row < 0 ? nodes.scope[selected.at] : scopes.parent[row]; scope >= 0; scope = scopes.parent[scope]) expanded.add(scope);
      collect();
      tree.show(rows.length, Math.max(0, rows.indexOf(row)));
      tree.goTo(rows.indexOf(row), false);
    },
    focus() {
      tree.goTo(tree.active, true);
    },
  };
}

function isSelected(selected: Selected, page: Page, row: Row): boolean {
  if (selected.kind === "node") return row === -1 - selected.at;
  return selected.kind === "module" && row === page.shown.scopes.of[selected.at];
}

function words(model: Model, row: Row, counts: Int32Array, byStatus: Int32Array): (HTMLElement | null)[] {
  const { texts, scopes, nodes } = model;
  if (row < 0) {
    const node = -1 - row;
    const status = nodes.status[node];
    const role = roles[nodes.role[node]];
    const sign = statusSigns[status] || roleSigns[role];
    return [
      sign === "" ? null : h("span", { class: `sign ${statuses[status]}`, title: status > 0 ? statuses[status] : role }, sign),
      h("span", { class: "name" }, titleOf(model, node)),
      h(
        "span",
        { class: "note" },
        ` ${role === "function" ? plain(texts[nodes.name[node]], 200) : ""} ${texts[nodes.dtype[node]]}${texts[nodes.shape[node]]}`,
      ),
    ];
  }
  const changed = counts[row] - byStatus[row * statuses.length];
  return [
    h("span", { class: "name" }, row === 0 ? model.title || "the whole graph" : texts[scopes.name[row]]),
    h("span", { class: "note" }, ` ${plain(texts[scopes.className[row]], 200)} `),
    h("span", { class: "count" }, `${counts[row].toLocaleString("en")}${changed > 0 ? ` (${changed} changed)` : ""}`),
  ];
}
