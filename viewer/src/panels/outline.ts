/** The modules and nodes as a tree of text: for keyboards, screen readers and for looking something up. */

import { roles, statuses } from "../data/model.ts";
import { roleSigns, statusSigns } from "../draw/looks.ts";
import { numberText, plain } from "../draw/plain.ts";
import { depths, groupByKey } from "../graph/columns.ts";
import { nameWithin } from "../scene/labels.ts";
import { nothing } from "../state.ts";
import type { Page } from "./context.ts";
import { type Child, h, set } from "./dom.ts";
import { type List, list } from "./list.ts";
import { titleOf, typeOf } from "./pieces.ts";

/** A row is scope s as s, and node n as -1 - n. */
type Row = number;

export function outline(page: Page): List {
  const { model, sums } = page;
  const { scopes, nodes, texts } = model;
  const depth = depths(scopes.parent);
  const scopesIn = groupByKey(scopes.parent, scopes.count);
  const nodesIn = groupByKey(nodes.scope, scopes.count);
  const expanded = new Set<number>([0]);
  let rows: Row[] = [];

  const parentOf = (row: Row): number => (row < 0 ? nodes.scope[-1 - row] : scopes.parent[row]);
  const isBranch = (row: Row): boolean => row >= 0 && (sums.nodes[row] > 0 || scopesIn.first[row + 1] > scopesIn.first[row]);
  /** Collects the rows and goes to one of them. */
  const show = (wanted: Row): void => {
    rows = [];
    const stack: Row[] = [0];
    for (let row = stack.pop(); row !== undefined; row = stack.pop()) {
      rows.push(row);
      if (!expanded.has(row)) continue;
      for (let at = nodesIn.first[row + 1] - 1; at >= nodesIn.first[row]; at--) stack.push(-1 - nodesIn.rows[at]);
      for (let at = scopesIn.first[row + 1] - 1; at >= scopesIn.first[row]; at--) stack.push(scopesIn.rows[at]);
    }
    tree.show(rows.length, Math.max(0, rows.indexOf(wanted)));
  };
  const flip = (row: Row): void => {
    if (!expanded.delete(row)) expanded.add(row);
    show(row);
  };

  const tree = list(page, {
    role: "tree",
    label: "Outline of the graph",
    of(index) {
      const row = rows[index];
      return row < 0 ? { kind: "node", at: -1 - row } : row === 0 ? nothing : { kind: "module", at: row };
    },
    draw(element, index) {
      const row = rows[index];
      const level = (row < 0 ? depth[parentOf(row)] + 1 : depth[row]) + 1;
      element.style.paddingLeft = `${4 + (level - 1) * 14}px`;
      const twist = !isBranch(row) ? "" : expanded.has(row) ? "\u25be" : "\u25b8";
      set(element, { "aria-level": level, "aria-expanded": twist && `${expanded.has(row)}` || null });
      return [h("span.twist", { "aria-hidden": "true" }, twist), row < 0 ? ofNode(-1 - row) : ofScope(row)];
    },
    act(index, event) {
      const isTwist = event.target instanceof Element && event.target.closest(".twist") !== null && isBranch(rows[index]);
      if (isTwist) flip(rows[index]);
      return isTwist;
    },
    key(index, { key }) {
      const row = rows[index];
      const isOpen = expanded.has(row);
      if (key === "ArrowRight") {
        if (isBranch(row)) isOpen ? tree.goTo(index + 1, true) : flip(row);
      } else if (key === "ArrowLeft") {
        if (isOpen) flip(row);
        else if (row !== 0) tree.goTo(rows.indexOf(parentOf(row)), true);
      } else if (key === " " && row > 0) page.toggle(row);
      else if (key === "*") {
        for (let scope = 1; scope < scopes.count; scope++) if (scopes.parent[scope] === parentOf(row)) expanded.add(scope);
        show(row);
      } else return false;
      return true;
    },
  });

  function ofNode(node: number): Child {
    const [role, status] = [roles[nodes.role[node]], nodes.status[node]];
    const sign = statusSigns[status] || roleSigns[role];
    return [
      sign !== "" && h("span", { class: `sign ${statuses[status]}`, title: status > 0 ? statuses[status] : role }, sign),
      h("span.name", nameWithin(model, node, titleOf(model, node))),
      h("span.note", ` ${role === "function" ? plain(texts[nodes.name[node]], 200) : ""} ${typeOf(model, node)}`),
    ];
  }
  function ofScope(scope: number): Child {
    const changed = sums.nodes[scope] - sums.byStatus[scope * statuses.length];
    return [
      h("span.name", scope === 0 ? model.title : texts[scopes.name[scope]]),
      h("span.note", ` ${scope === 0 ? "" : plain(texts[scopes.className[scope]], 200)} `),
      h("span.count", `${numberText(sums.nodes[scope])}${changed > 0 ? ` (${changed} changed)` : ""}`),
    ];
  }

  show(0);
  const { reveal } = tree;
  return Object.assign(tree, {
    /** Opens the tree down to the selection and goes there. */
    reveal() {
      const { selected } = page.state;
      if (selected.kind === "node" || selected.kind === "module") {
        const row = selected.kind === "node" ? -1 - selected.at : page.shown.scopes.of[selected.at];
        for (let scope = parentOf(row); scope >= 0; scope = scopes.parent[scope]) expanded.add(scope);
        show(row);
      }
      reveal();
    },
  });
}
