import assert from "node:assert/strict";
import { test } from "node:test";
import { layOut } from "../src/layout/layered.ts";
import type { Box, Line } from "../src/layout/layered.ts";
import graphs from "./examples.json" with { type: "json" };
import { crossed, hasDot, overlaps, waysOfDot } from "./measure.ts";
import { seeded } from "./samples.ts";

interface Drawing {
  readonly boxes: Box[];
  readonly lines: Line[];
}

/** Boxes of any size with lines from earlier to later ones; some with lines back, and with points at the border. */
function random(seed: number): Drawing {
  const next = seeded(seed);
  const count = 1 + Math.floor(next() * 40);
  const boxes: Box[] = Array.from({ length: count }, () => ({ width: 20 + 180 * next(), height: 20 + 60 * next() }));
  const lines: Line[] = [];
  const many = next() * 3;
  for (let to = 1; to < count; to++) {
    for (let times = Math.floor(next() * many + 0.5); times > 0; times--) {
      const from = next() < 0.6 ? Math.max(0, to - 1 - Math.floor(3 * next())) : Math.floor(to * next());
      lines.push({ from, to, weight: 1 + Math.floor(4 * next()) });
    }
  }
  // Some have a box that feeds all, and one that all feed.
  if (seed % 5 === 0 && count > 2) for (let box = 1; box + 1 < count; box++) lines.push({ from: 0, to: box, weight: 1 }, { from: box, to: count - 1, weight: 1 });
  if (seed % 3 === 0) {
    for (const border of ["in", "out", "in", "out"] as const) {
      const inner = Math.floor(next() * count);
      boxes.push({ width: 2, height: 0, border });
      const port = boxes.length - 1;
      lines.push(border === "in" ? { from: port, to: inner, weight: 1 } : { from: inner, to: port, weight: 1 });
    }
  }
  return { boxes, lines };
}

const seeds = Array.from({ length: 300 }, (_, seed) => seed);

test("no boxes overlap, and none lies outside the drawing", () => {
  for (const seed of seeds) {
    const { boxes, lines } = random(seed);
    const layout = layOut(boxes, lines);
    assert.equal(overlaps(boxes, layout), 0, `seed ${seed}`);
    boxes.forEach((box, place) => {
      assert.ok(layout.x[place] > -0.01 && layout.x[place] + box.width < layout.width + 0.01, `seed ${seed}`);
      assert.ok(layout.y[place] > -0.01 && layout.y[place] + box.height < layout.height + 0.01, `seed ${seed}`);
    });
  }
});

test("lines lead down, from the bottom of one box to the top of the other, and through no box", () => {
  for (const seed of seeds) {
    const { boxes, lines } = random(seed);
    const { x, y, rank, ways, marks } = layOut(boxes, lines);
    lines.forEach(({ from, to }, line) => {
      const way = ways[line];
      assert.ok(rank[from] < rank[to], `seed ${seed}`);
      assert.ok(y[from] + boxes[from].height <= y[to] + 0.01, `seed ${seed}`);
      assert.ok(Math.abs(way[1] - y[from] - boxes[from].height) < 0.01 && Math.abs(way[way.length - 1] - y[to]) < 0.01, `seed ${seed}`);
      for (let place = 3; place < way.length; place += 2) assert.ok(way[place] >= way[place - 2] - 0.01, `seed ${seed}`);
      if (marks[line]) return;
      boxes.forEach((box, other) => {
        if (other === from || other === to || box.border) return;
        for (let place = 2; place < way.length; place += 2) {
          const inside = way[place] > x[other] && way[place] < x[other] + box.width && way[place + 1] > y[other] && way[place + 1] < y[other] + box.height;
          assert.ok(!inside, `seed ${seed}`);
        }
      });
    });
  }
});

test("of a cycle one line leads up", () => {
  const boxes = Array.from({ length: 4 }, () => ({ width: 60, height: 30 }));
  const lines = [[0, 1], [1, 2], [2, 3], [3, 1], [2, 2]].map(([from, to]) => ({ from, to, weight: 1 }));
  const { y, ways, marks } = layOut(boxes, lines);
  assert.ok(y[0] < y[1] && y[1] < y[2] && y[2] < y[3]);
  assert.ok(ways[3][1] > ways[3][ways[3].length - 1]);
  assert.equal(marks[4], 1);
});

test("a chain is straight, and stays straight where other lines come in", () => {
  const boxes = Array.from({ length: 60 }, (_, box) => ({ width: 40 + ((box * 37) % 90), height: 30 }));
  const lines: Line[] = [];
  for (let box = 1; box < 30; box++) lines.push({ from: box - 1, to: box, weight: 1 });
  for (const own of [lines.slice(), [...lines, ...Array.from({ length: 29 }, (_, side) => ({ from: 30 + side, to: 1 + side, weight: 1 }))]]) {
    const { x, ways } = layOut(boxes, own);
    const middle = (box: number): number => x[box] + boxes[box].width / 2;
    for (let box = 1; box < 30; box++) assert.ok(Math.abs(middle(box) - middle(0)) < 0.01);
    for (let line = 0; line < 29; line++) assert.equal(ways[line].length, 4);
  }
});

test("the same boxes and lines give the same layout", () => {
  for (const seed of seeds.slice(0, 40)) assert.deepEqual(layOut(random(seed).boxes, random(seed).lines), layOut(random(seed).boxes, random(seed).lines));
});

test("what no line joins stands in a compact block", () => {
  for (const count of [30, 2000]) {
    const { width, height } = layOut(Array.from({ length: count }, () => ({ width: 100, height: 40 })), []);
    assert.ok(width / height > 0.8 && width / height < 3.2, `${width} × ${height}`);
  }
});

test("a box that feeds thousands has marks, and stands above them all", () => {
  const boxes = Array.from({ length: 2001 }, () => ({ width: 100, height: 40 }));
  const lines = Array.from({ length: 2000 }, (_, box) => ({ from: 0, to: box + 1, weight: 1 }));
  const { y, marks, width } = layOut(boxes, lines);
  assert.ok(marks.every((mark) => mark === 1));
  assert.ok(y.subarray(1).every((own) => own > y[0] + 40));
  assert.ok(width < 10_000);
});

test("many boxes side by side between two are in rows, also where another line passes them", () => {
  const boxes = Array.from({ length: 102 }, () => ({ width: 100, height: 40 }));
  const lines: Line[] = [{ from: 0, to: 101, weight: 1 }];
  for (let box = 1; box <= 100; box++) lines.push({ from: 0, to: box, weight: 1 }, { from: box, to: 101, weight: 1 });
  const layout = layOut(boxes, lines);
  assert.ok(layout.width < 2_500 && layout.height < 2_500);
  assert.equal(overlaps(boxes, layout), 0);
  for (const { from, to } of lines) assert.ok(layout.y[from] + 40 <= layout.y[to]);
});

test("points of the border stand in the order given", () => {
  const port = { width: 2, height: 0, border: "out" } as const;
  const boxes = [{ width: 80, height: 30 }, { width: 80, height: 30 }, port, port];
  const ends = [[0, 1], [0, 2], [1, 3]];
  for (const order of [[2, 3], [3, 2]]) {
    const lines = ends.map(([from, to]) => ({ from, to: to < 2 ? to : order[to - 2], weight: 1 }));
    const { x, ways } = layOut(boxes, lines);
    assert.ok(x[2] < x[3]);
    assert.equal(crossed(ways.map((way) => [...way]), lines), 0);
  }
});

test("a source stands next to what takes from it", () => {
  const boxes = Array.from({ length: 8 }, () => ({ width: 50, height: 30 }));
  const lines = [[0, 1], [1, 2], [2, 3], [3, 4], [5, 6], [6, 4], [7, 6]].map(([from, to]) => ({ from, to, weight: 1 }));
  const { rank } = layOut(boxes, lines);
  assert.deepEqual([...rank], [0, 1, 2, 3, 4, 2, 3, 2]);
});

/** Boxes and lines that are more than marks, so that both draw the same. */
function drawn(nodes: number, edges: readonly (readonly [number, number])[]): Drawing {
  const boxes = Array.from({ length: nodes }, () => ({ width: 90, height: 36 }));
  const lines = edges.map(([from, to]) => ({ from, to, weight: 1 }));
  const { marks } = layOut(boxes, lines);
  return { boxes, lines: lines.filter((_, line) => !marks[line]) };
}

function compared({ boxes, lines }: Drawing): [own: number, dots: number] {
  return [crossed(layOut(boxes, lines).ways.map((way) => [...way]), lines), crossed(waysOfDot(boxes, lines), lines)];
}

test("lines cross no more than a fifth above what dot draws of random graphs", { skip: !hasDot() && "dot is not installed" }, () => {
  const sums = [0, 0];
  for (let seed = 0; seed < 30; seed++) {
    const next = seeded(seed);
    const edges: [number, number][] = [];
    for (let to = 1; to < 40; to++) {
      for (let times = next() < 0.4 ? 2 : 1; times > 0; times--) edges.push([Math.max(0, to - 1 - Math.floor(next() * 8)), to]);
    }
    compared(drawn(40, edges)).forEach((crossings, side) => (sums[side] += crossings));
  }
  console.log(`# 30 random graphs: ${sums[0]} crossings, ${sums[1]} of dot`);
  assert.ok(sums[1] > 50 && sums[0] <= 1.2 * sums[1]);
});

test("lines cross no more than a fifth above what dot draws of the examples", { skip: !hasDot() && "dot is not installed" }, () => {
  for (const [name, { nodes, edges }] of Object.entries(graphs)) {
    const drawing = drawn(nodes, edges as [number, number][]);
    const [own, dots] = compared(drawing);
    console.log(`# ${name}: ${own} crossings, ${dots} of dot; ${edges.length - drawing.lines.length} of ${edges.length} lines are marks`);
    assert.ok(own <= 1.2 * dots + 1, `${name}: ${own} crossings, ${dots} of dot`);
  }
});
