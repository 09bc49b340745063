/** What tests ask of a layout: crossings, overlaps. */
import { execFileSync } from "node:child_process";
import type { Box, Layout, Line } from "../src/layout/layered.ts";

type Polyline = readonly number[];

/** How often drawn lines cross that do not meet at a box. */
export function crossed(ways: readonly (Polyline | undefined)[], lines: readonly Pick<Line, "from" | "to">[]): number {
  interface Segment {
    readonly line: number;
    readonly at: readonly [number, number, number, number];
  }
  const segments: Segment[] = [];
  ways.forEach((way, line) => {
    for (let place = 2; way && place < way.length; place += 2) {
      const [x1, y1, x2, y2] = [way[place - 2], way[place - 1], way[place], way[place + 1]];
      segments.push({ line, at: y1 <= y2 ? [x1, y1, x2, y2] : [x2, y2, x1, y1] });
    }
  });
  segments.sort((one, other) => one.at[1] - other.at[1]);
  let found = 0;
  segments.forEach(({ line, at }, place) => {
    for (let next = place + 1; next < segments.length && segments[next].at[1] < at[3]; next++) {
      const other = segments[next];
      const [one, two] = [lines[line], lines[other.line]];
      if (one.from === two.from || one.to === two.to || one.from === two.to || one.to === two.from || line === other.line) continue;
      if (meet(at, other.at)) found++;
    }
  });
  return found;
}

function meet([ax, ay, bx, by]: readonly [number, number, number, number], [cx, cy, dx, dy]: readonly [number, number, number, number]): boolean {
  const side = (x: number, y: number, x1: number, y1: number, x2: number, y2: number): number => (x1 - x) * (y2 - y) - (x2 - x) * (y1 - y);
  return (
    side(ax, ay, bx, by, cx, cy) * side(ax, ay, bx, by, dx, dy) < 0 && side(cx, cy, dx, dy, ax, ay) * side(cx, cy, dx, dy, bx, by) < 0
  );
}

export function hasDot(): boolean {
  try {
    execFileSync("dot", ["-V"], { stdio: "ignore" });
    return true;
  } catch {
    return false;
  }
}

/** The ways that `dot` draws lines in, with its curves as short straight pieces. */
export function waysOfDot(boxes: readonly Box[], lines: readonly Pick<Line, "from" | "to">[]): Polyline[] {
  const text = ["digraph {", "node [shape=box fixedsize=true label=\"\"]", "edge [arrowhead=none]"];
  boxes.forEach(({ width, height }, box) => text.push(`b${box} [width=${width / 72} height=${height / 72}]`));
  lines.forEach(({ from, to }, line) => text.push(`b${from} -> b${to} [label="" comment=${line}]`));
  const plain = execFileSync("dot", ["-Tplain"], { input: `${text.join("\n")}\n}`, maxBuffer: 2 ** 28 }).toString();
  const byEnds = new Map<string, Polyline[]>();
  for (const row of plain.replaceAll("\\\n", "").split("\n")) {
    const [word, from, to, count, ...rest] = row.split(" ");
    if (word !== "edge") continue;
    const points = rest.slice(0, 2 * Number(count)).map(Number);
    const key = `${from} ${to}`;
    byEnds.set(key, [...(byEnds.get(key) ?? []), curve(points)]);
  }
  return lines.map(({ from, to }) => byEnds.get(`b${from} b${to}`)!.pop()!);
}

/** Points on a curve of cubic pieces. */
function curve(points: readonly number[]): number[] {
  const way = [points[0], points[1]];
  for (let start = 0; start + 7 < points.length; start += 6) {
    for (let step = 1; step <= 8; step++) {
      const t = step / 8;
      for (const axis of [0, 1]) {
        const [a, b, c, d] = [0, 2, 4, 6].map((place) => points[start + place + axis]);
        way.push(a * (1 - t) ** 3 + 3 * b * t * (1 - t) ** 2 + 3 * c * t * t * (1 - t) + d * t ** 3);
      }
    }
  }
  return way;
}

/** Pairs of boxes that lie over each other. */
export function overlaps(boxes: readonly Box[], { x, y }: Pick<Layout, "x" | "y">): number {
  const order = boxes.map((_, box) => box).sort((one, other) => y[one] - y[other]);
  let found = 0;
  order.forEach((one, place) => {
    for (let next = place + 1; next < order.length && y[order[next]] < y[one] + boxes[one].height - 0.01; next++) {
      const other = order[next];
      if (x[one] < x[other] + boxes[other].width - 0.01 && x[other] < x[one] + boxes[one].width - 0.01) found++;
    }
  });
  return found;
}
