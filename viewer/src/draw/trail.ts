/** What is followed from the selected thing, as the boxes that light up. */

import { type Model, flag } from "../data/model.ts";
import type { Shown } from "../graph/shown.ts";
import { ancestors, descendants, path } from "../graph/walks.ts";
import type { Selected, Trail } from "../state.ts";
import type { Scene } from "../scene/scene.ts";
import { scopeOf } from "./sums.ts";

const mostEnds = 16;

/** The nodes of a trail, none where nothing is followed. */
export function trailNodes(shown: Shown, selected: Selected, trail: Trail): Iterable<number> | null {
  const { model } = shown;
  if (trail === "") return null;
  const from = nodesOf(shown, selected);
  if (from.length === 0) return null;
  if (trail === "ancestors") return [...ancestors(model, from), ...from];
  if (trail === "descendants") return [...descendants(model, from), ...from];
  const start = from[from.length - 1];
  for (const end of endsOf(model)) {
    const way = path(model, start, end);
    if (way.length > 0) return way;
  }
  return [start];
}

/** The nodes that stand for what is selected. */
export function nodesOf(shown: Shown, selected: Selected): number[] {
  const { model } = shown;
  if (selected.kind === "node") return [selected.at];
  if (selected.kind === "change") return [...model.changes[selected.at].nodes];
  if (selected.kind === "cut") {
    const { at, into } = model.cuts[selected.at];
    return [at, into].filter((node) => node >= 0);
  }
  if (selected.kind === "none") return [];
  const { parent, drawn } = shown.scopes;
  const wanted = drawn(selected.at);
  return Array.from(model.nodes.op.keys()).filter((node) => {
    let scope = scopeOf(model, shown, node);
    while (scope > 0 && scope !== wanted) scope = parent[scope];
    return scope === wanted;
  });
}

/** Outputs of the graph; where none is said, the last node. */
function endsOf(model: Model): number[] {
  const { nodes } = model;
  const ends: number[] = [];
  for (let node = nodes.count - 1; node >= 0 && ends.length < mostEnds; node--) if (nodes.flags[node] & flag.output) ends.push(node);
  return ends.length || !nodes.count ? ends : [nodes.count - 1];
}

export function litBoxes(scene: Scene, nodes: Iterable<number>): Uint8Array {
  const lit = new Uint8Array(scene.boxes.length);
  for (const node of nodes) {
    const box = scene.boxOf(node);
    if (box >= 0) lit[box] = 1;
  }
  return lit;
}
