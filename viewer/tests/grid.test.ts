// What is found in a window is exactly what meets it.
import assert from "node:assert/strict";
import { test } from "node:test";
import { gridOf } from "../src/draw/grid.ts";

function random(seed: number): () => number {
  let state = seed;
  return () => (state = (state * 16_807) % 2_147_483_647) / 2_147_483_647;
}

test("a grid finds what a look at each would find", () => {
  const next = random(7);
  for (const count of [1, 2, 40, 3000]) {
    const bounds = new Float64Array(4 * count);
    for (let item = 0; item < count; item++) {
      const [x, y] = [next() * 5000 - 1000, next() * 90_000];
      // Some are points, and some lead through everything.
      const wide = item % 97 === 0 ? 20_000 : next() * 120;
      bounds.set([x, y, x + (item % 13 === 0 ? 0 : wide), y + (item % 13 === 0 ? 0 : wide)], 4 * item);
    }
    const grid = gridOf(bounds);
    for (let round = 0; round < 60; round++) {
      const window = { x: next() * 6000 - 1500, y: next() * 95_000 - 2000, width: next() * 900, height: next() * 900 };
      const expected = Array.from({ length: count }, (_, item) => item).filter((item) => {
        const [left, top, right, bottom] = bounds.subarray(4 * item, 4 * item + 4);
        return left <= window.x + window.width && right >= window.x && top <= window.y + window.height && bottom >= window.y;
      });
      assert.deepEqual(grid.inside(window), expected);
    }
  }
});

test("nothing, and all at one place", () => {
  const window = { x: 0, y: 0, width: 10, height: 10 };
  assert.deepEqual(gridOf(new Float64Array(0)).inside(window), []);
  assert.deepEqual(gridOf(Float64Array.of(5, 5, 5, 5, 5, 5, 5, 5)).inside(window), [0, 1]);
  assert.deepEqual(gridOf(Float64Array.of(5, 5, 5, 5)).inside({ ...window, x: 6 }), []);
});
