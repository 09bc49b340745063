/** Parts of a drawing that no line joins are laid out by themselves. */
import { groupByKey, rowsAt } from "../graph/columns.ts";
import { components } from "../graph/parts.ts";
import type { Piece } from "./arranged.ts";
import type { Line } from "./layered.ts";
import type { Border } from "./ranks.ts";

/** A piece whose layers are not in order yet: each as its vertices come. */
export function partsOf(
  borders: readonly Border[],
  lines: readonly Line[],
  rank: Int32Array,
  turned: Uint8Array,
  marks: Uint8Array,
): Piece[] {
  const count = borders.length;
  const joined = joinBoxes(count, lines, marks);
  const pieceOf = new Int32Array(count);
  const pieces = withoutCycles(joined, lines, turned, marks, pieceOf);
  const members = groupByKey(pieceOf, pieces);
  const whole = Int32Array.from(lines, ({ from }, line) => (marks[line] ? -1 : pieceOf[from]));
  const drawn = groupByKey(whole, pieces);
  const above = linesAbove(pieces, lines, turned, marks, pieceOf);
  const local = new Int32Array(count);
  const made: Piece[] = [];
  for (let piece = 0; piece < pieces; piece++) {
    const boxes = Array.from(rowsAt(members, piece));
    if (boxes.length === 1) {
      made.push(single(boxes, borders, above[piece] ?? none));
      continue;
    }
    boxes.forEach((box, place) => (local[box] = place));
    made.push(split(boxes, rowsAt(drawn, piece), { borders, lines, rank, turned, local }, above[piece] ?? none));
  }
  return made;
}

const none: readonly number[] = [];
/** So many boxes that no drawn line joins stand beside each other. */
const mostLoose = 12;
const noLines = new Int32Array(0);
const free = { first: false, last: false };
const oneLayer = [new Int32Array(1)];

/** There may be thousands of these: they share equal parts. */
function single(boxes: readonly number[], borders: readonly Border[], above: readonly number[]): Piece {
  const bordered = borders[boxes[0]] !== undefined;
  return { boxes, vertices: 1, layers: oneLayer, upper: noLines, lower: noLines, line: noLines, bordered, fixed: free, above };
}

interface Around {
  readonly borders: readonly Border[];
  readonly lines: readonly Line[];
  readonly rank: Int32Array;
  readonly turned: Uint8Array;
  readonly local: Int32Array;
}

/** Long lines get a point in every rank that they pass. */
function split(boxes: readonly number[], own: Int32Array, { borders, lines, rank, turned, local }: Around, above: readonly number[]): Piece {
  const { layerOf, layers } = rowsOf(boxes, own, { borders, lines, rank, turned, local });
  const bordered = boxes.some((box) => borders[box] !== undefined);
  const upper: number[] = [];
  const lower: number[] = [];
  const line: number[] = [];
  let vertices = boxes.length;
  for (const number of own) {
    const { from, to } = lines[number];
    const [top, bottom] = turned[number] ? [local[to], local[from]] : [local[from], local[to]];
    let before = top;
    for (let between = layerOf[top] + 1; between < layerOf[bottom]; between++) {
      upper.push(before);
      lower.push(vertices);
      line.push(number);
      layers[between].push(vertices);
      before = vertices++;
    }
    upper.push(before);
    lower.push(bottom);
    line.push(number);
  }
  const isBorder = (layer: readonly number[], side: Border): boolean =>
    layer.length > 0 && layer.every((vertex) => vertex < boxes.length && borders[boxes[vertex]] === side);
  return {
    boxes,
    vertices,
    layers: layers.map((layer) => Int32Array.from(layer)),
    upper: Int32Array.from(upper),
    lower: Int32Array.from(lower),
    line: Int32Array.from(line),
    bordered,
    fixed: { first: isBorder(layers[0], "in"), last: isBorder(layers[layers.length - 1], "out") },
    above,
  };
}

/** A layer for each rank of a piece; boxes that no drawn line joins, and of which a rank may have hundreds, go on in layers of their own. */
function rowsOf(boxes: readonly number[], own: Int32Array, { borders, lines, rank, local }: Around): { layerOf: Int32Array; layers: number[][] } {
  let [firstRank, lastRank] = [0x7fffffff, 0];
  for (const box of boxes) {
    firstRank = Math.min(firstRank, rank[box]);
    lastRank = Math.max(lastRank, rank[box]);
  }
  const joined = new Uint8Array(boxes.length);
  for (const line of own) joined[local[lines[line].from]] = joined[local[lines[line].to]] = 1;
  const loose = new Int32Array(lastRank - firstRank + 1);
  const layerOf = new Int32Array(boxes.length);
  boxes.forEach((box, place) => {
    if (!joined[place] && borders[box] === undefined) layerOf[place] = Math.floor(loose[rank[box] - firstRank]++ / mostLoose);
  });
  const start = new Int32Array(loose.length + 1);
  for (let step = 0; step < loose.length; step++) start[step + 1] = start[step] + Math.max(1, Math.ceil(loose[step] / mostLoose));
  const layers: number[][] = Array.from({ length: start[loose.length] }, () => []);
  boxes.forEach((box, place) => {
    layerOf[place] += start[rank[box] - firstRank];
    layers[layerOf[place]].push(place);
  });
  return { layerOf, layers };
}

/** By box the smallest box that drawn lines join it with. */
function joinBoxes(count: number, lines: readonly Line[], marks: Uint8Array): Int32Array {
  const root = Int32Array.from({ length: count }, (_, box) => box);
  const find = (box: number): number => {
    while (root[box] !== box) {
      root[box] = root[root[box]];
      box = root[box];
    }
    return box;
  };
  lines.forEach(({ from, to }, line) => {
    if (marks[line]) return;
    const [one, other] = [find(from), find(to)];
    if (one !== other) root[Math.max(one, other)] = Math.min(one, other);
  });
  for (let box = 0; box < count; box++) root[box] = find(box);
  return root;
}

/** Joins parts between which marked lines lead both ways, and numbers the rest in the order of the first boxes. */
function withoutCycles(joined: Int32Array, lines: readonly Line[], turned: Uint8Array, marks: Uint8Array, pieceOf: Int32Array): number {
  const tails: number[] = [];
  const heads: number[] = [];
  lines.forEach(({ from, to }, line) => {
    if (!marks[line] || turned[line] === 2 || joined[from] === joined[to]) return;
    tails.push(joined[turned[line] ? to : from]);
    heads.push(joined[turned[line] ? from : to]);
  });
  const count = joined.length;
  const out = groupByKey(tails, count);
  const component = tails.length ? components(out, heads) : undefined;
  const numbers = new Int32Array(count).fill(-1);
  const ofComponent = new Map<number, number>();
  let pieces = 0;
  for (let box = 0; box < count; box++) {
    const root = joined[box];
    if (numbers[root] < 0) {
      const known = component && component[root] >= 0 ? ofComponent.get(component[root]) : undefined;
      numbers[root] = known ?? pieces++;
      if (component && component[root] >= 0) ofComponent.set(component[root], numbers[root]);
    }
    pieceOf[box] = numbers[root];
  }
  return pieces;
}

/** By piece those from which marked lines lead to it. */
function linesAbove(pieces: number, lines: readonly Line[], turned: Uint8Array, marks: Uint8Array, pieceOf: Int32Array): number[][] {
  const above: number[][] = [];
  const known = new Set<number>();
  lines.forEach(({ from, to }, line) => {
    if (!marks[line] || turned[line] === 2) return;
    const [tail, head] = turned[line] ? [pieceOf[to], pieceOf[from]] : [pieceOf[from], pieceOf[to]];
    if (tail === head || known.has(tail * pieces + head)) return;
    known.add(tail * pieces + head);
    (above[head] ??= []).push(tail);
  });
  return above;
}
