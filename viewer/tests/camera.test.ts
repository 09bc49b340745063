// A point that is zoomed at stays where it is; what is fitted is in the view.
import assert from "node:assert/strict";
import { test } from "node:test";
import { type Camera, moveBetween, fitAll, panBy, visibleArea, within, zoomAt } from "../src/draw/camera.ts";

const size = { width: 800, height: 600 };
const screen = (camera: Camera, x: number, y: number): [number, number] => [(x - camera.x) * camera.k, (y - camera.y) * camera.k];
const near = (one: number, other: number): void => assert.ok(Math.abs(one - other) < 1e-6, `${one} and ${other}`);

test("zooming keeps the point under the pointer", () => {
  let camera: Camera = { x: 13, y: -40, k: 0.7 };
  const [x, y] = [camera.x + 120 / camera.k, camera.y + 90 / camera.k];
  for (const factor of [1.3, 0.4, 7, 1000, 1e-9]) {
    camera = zoomAt(camera, factor, 120, 90);
    const at = screen(camera, x, y);
    near(at[0], 120);
    near(at[1], 90);
  }
  assert.ok(camera.k > 0);
});

test("panning is by pixels", () => {
  const camera = panBy({ x: 0, y: 0, k: 2 }, 30, -10);
  assert.deepEqual(screen(camera, 0, 0), [30, -10]);
});

test("what is fitted is seen whole, and not blown up", () => {
  for (const [width, height] of [
    [5000, 10],
    [10, 5000],
    [3, 3],
    [0, 0],
  ]) {
    const what = { x: -100, y: 55, width, height };
    const camera = fitAll(what, size);
    assert.ok(within(what, visibleArea(camera, size)));
    assert.ok(camera.k <= 1.25);
  }
});

test("a flight begins and ends where it should", () => {
  const [from, to] = [
    { x: 0, y: 0, k: 0.01 },
    { x: 9, y: 8, k: 2 },
  ];
  assert.deepEqual(moveBetween(from, to, 0), from);
  near(moveBetween(from, to, 1).k, 2);
  assert.ok(moveBetween(from, to, 0.5).k < 1);
});
