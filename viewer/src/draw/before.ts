/** The texts of boxes and frames on one side of a review. */
import { fill } from "../data/block.ts";
import type { Shown } from "../graph/shown.ts";
import { treeOf } from "../scene/buckets.ts";
import { caption } from "../scene/labels.ts";
import { labelOf } from "../scene/plans.ts";
import type { Rectangle, Scene } from "../scene/scene.ts";
import { cutToWidth } from "../scene/widths.ts";

export function wordsOf(shown: Shown, { boxes, frames }: Scene, isBefore: boolean): ReadonlyMap<Rectangle, readonly string[]> {
  const tree = treeOf(isBefore ? showFirstGraph(shown) : { ...shown, model: { ...shown.model, was: undefined } });
  return new Map<Rectangle, readonly string[]>([
    ...boxes.map((box) => {
      // A box is as large as its words in the drawing of both.
      const { lines } = labelOf(tree, box.node < 0 ? tree.scopesFrom + box.scope : box.node);
      return [box, lines.slice(0, box.label.length).map((line, at) => cutToWidth(line, box.width - 8, at === 0))] as const;
    }),
    ...frames.map((frame) => [frame, [caption(tree.shown, frame.scope)]] as const),
  ]);
}

/** The same nodes and modules with the texts and numbers of the first graph. */
function showFirstGraph(shown: Shown): Shown {
  const { model, scopes, wires } = shown;
  const { nodes, had, changes } = model;
  const texts = [...model.texts];
  const [op, name, dtype, shape, className] = [nodes.op, nodes.name, nodes.dtype, nodes.shape, model.scopes.className].map((column) => column.slice());
  const columns: Readonly<Record<string, Int32Array | undefined>> = { op, name, "out[0].dtype": dtype, "out[0].shape": shape, class: className };
  const names = new Map<number, string>();
  for (const change of changes)
    for (const [path, before, after] of change.fields) {
      const column = columns[path];
      // Of a name the last part is seen: the others are those of the modules around it.
      const [old, now] = path === "name" ? [last(before), last(after)] : [before, after];
      if (path === "name") for (const scope of change.scopes) names.set(scopes.drawn(scope), old);
      for (const at of path === "class" ? change.scopes : change.nodes)
        if (column && texts[column[at]].endsWith(now)) column[at] = texts.push(old[0] === "(" ? "" : old) - 1;
    }
  const [parameters, saved] = (had ?? []).map((packed) => fill(new Float64Array(model.scopes.count), packed));
  return {
    ...shown,
    model: { ...model, texts, was: undefined, nodes: { ...nodes, op, name, dtype, shape }, scopes: { ...model.scopes, className, ...(had && { parameters, saved }) } },
    scopes: { ...scopes, name: (scope) => names.get(scope) ?? scopes.name(scope) },
    // An added module is absent here, as a removed one is on the other side.
    wires: { ...wires, status: wires.status.map((status) => [0, 2, 1][status]) },
  };
}

function last(name: string): string {
  return name.replace(/.*[./]/, "");
}
