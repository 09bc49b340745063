/** How many short lines cross between neighbouring ranks. */
import type { Web } from "./order.ts";

export function crossings({ layers, position, down, piece }: Pick<Web, "layers" | "position" | "down" | "piece">): number {
  let found = 0;
  for (let rank = 0; rank + 1 < layers.length; rank++) {
    const width = layers[rank + 1].length;
    // A tree of counts by place in the lower rank (Barth, Mutzel and Jünger, 2004).
    const tree = new Int32Array(width + 1);
    let seen = 0;
    for (const vertex of layers[rank]) {
      const [start, end] = [down.first[vertex], down.first[vertex + 1]];
      for (let row = start; row < end; row++) {
        let beside = 0;
        for (let place = position[piece.lower[down.rows[row]]] + 1; place > 0; place -= place & -place) beside += tree[place];
        found += seen - beside;
      }
      for (let row = start; row < end; row++) {
        for (let place = position[piece.lower[down.rows[row]]] + 1; place <= width; place += place & -place) tree[place]++;
        seen++;
      }
    }
  }
  return found;
}
