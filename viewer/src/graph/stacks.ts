/** Equal layers and steps, one of them for all. The exporter has found them. */
import type { Model } from "../data/model.ts";
import { keep } from "./wiring.ts";
import type { Wires } from "./wiring.ts";

/**
 * Lets the first layer and the first step represent all: `instead` then leads to its nodes, and consumers of another one take from it.
 * An edge from one to the next would be a cycle and is left out.
 */
export function roll({ nodes: { stands } }: Model, instead: Int32Array, wires: Wires): void {
  keep(wires, (wire) => stands[wires.to[wire]] === wires.to[wire]);
  for (let wire = 0; wire < wires.count; wire++) wires.from[wire] = stands[wires.from[wire]];
  for (let node = 0; node < instead.length; node++) if (instead[node] >= 0) instead[node] = stands[instead[node]];
}

/** How many equal layers each scope stands for. */
export function layersOf({ scopes: { alike, parent, count } }: Model): Int32Array {
  const times = new Int32Array(count).fill(1);
  for (let scope = 0; scope < count; scope++) if (alike[scope] !== scope && parent[alike[scope]] === parent[scope]) times[alike[scope]]++;
  return times;
}
