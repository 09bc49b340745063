/** Finds the rectangles that meet a window. Checking each of 100,000 takes less time than painting one frame. */

import type { Rectangle } from "../scene/scene.ts";

export interface Grid {
  /** The places of all rectangles that meet the window, ascending. */
  inside(window: Rectangle): number[];
}

/** `bounds` has left, top, right and bottom of each rectangle, one after the other. */
export function gridOf(bounds: Float64Array): Grid {
  return {
    inside({ x, y, width, height }) {
      const [right, bottom] = [x + width, y + height];
      const found: number[] = [];
      for (let at = 0; at < bounds.length; at += 4) {
        if (bounds[at] <= right && bounds[at + 2] >= x && bounds[at + 1] <= bottom && bounds[at + 3] >= y) found.push(at / 4);
      }
      return found;
    },
  };
}
