/** How many short lines cross between neighbouring ranks. */
import { rowsAt } from "../graph/columns.ts";
import type { Web } from "./order.ts";

export function crossings({ layers, position, down, piece }: Pick<Web, "layers" | "position" | "down" | "piece">): number {
  let found = 0;
  for (let rank = 0; rank + 1 < layers.length; rank++) {
    const width = layers[rank + 1].length;
    // A tree of counts by place in the lower rank (Barth, Mutzel and Jünger, 2004).
    const tree = new Int32Array(width + 1);
    let seen = 0;
    for (const vertex of layers[rank]) {
      const ends = rowsAt(down, vertex).map((line) => position[piece.lower[line]] + 1);
      for (const end of ends) {
        found += seen;
        for (let place = end; place > 0; place -= place & -place) found -= tree[place];
      }
      for (const end of ends) for (let place = end; place <= width; place += place & -place) tree[place]++;
      seen += ends.length;
    }
  }
  return found;
}
