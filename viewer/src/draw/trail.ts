/** The boxes that light up on the way that is followed from the selection. */

import { type Model, flag } from "../data/model.ts";
import type { Shown } from "../graph/shown.ts";
import { ancestors, descendants, ways } from "../graph/walks.ts";
import type { Selected, Trail } from "../state.ts";
import type { Scene } from "../scene/scene.ts";
import { scopeOf } from "./sums.ts";

const mostEnds = 16;

/** By box 1 where it is on a trail, 2 where every way of it leads through it, else 0; nothing where nothing is followed. */
export function litBoxes(shown: Shown, scene: Scene, selected: Selected, trail: Trail): Uint8Array | null {
  const { model } = shown;
  const from = trail === "" ? [] : nodesOf(shown, selected);
  if (from.length === 0) return null;
  const nodes = trail === "path" ? ways(model, from, endsOf(model)) : (trail === "ancestors" ? ancestors : descendants)(model, from);
  for (const node of from) nodes[node] ||= 1;
  const lit = new Uint8Array(scene.boxes.length);
  nodes.forEach((how, node) => {
    const box = how ? scene.boxOf(node) : -1;
    if (box >= 0) lit[box] = Math.max(lit[box], how);
  });
  return lit;
}

/** The nodes of the selection. */
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

/** Outputs of the graph, or where its forward failed; where none is said, the last node. */
function endsOf(model: Model): number[] {
  const { nodes } = model;
  const ends: number[] = [];
  for (let node = nodes.count - 1; node >= 0 && ends.length < mostEnds; node--) if (nodes.flags[node] & (flag.output | flag.failed)) ends.push(node);
  return ends.length || !nodes.count ? ends : [nodes.count - 1];
}
