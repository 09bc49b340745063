/** Which lines are drawn as marks at both ends: whole they would hide the drawing. */
import { groupByKey, rowsAt } from "../graph/columns.ts";
import type { Line } from "./layered.ts";

/** A line to the next rank or the one after it is near. */
const near = 2;
/** From so many ranks on a line is far. */
const far = 7;
/** A box with more far lines than this on one side has them marked: a mask that every layer takes. */
export const mostFar = 3;
/** A box with more lines than this on one side has all of them marked. */
const mostLines = 24;
const farthest = 100;
/** So many long lines may run side by side. */
const mostBeside = 20;

export function markLines(rank: Int32Array, turned: Uint8Array, lines: readonly Line[]): Uint8Array {
  const count = rank.length;
  const marks = new Uint8Array(lines.length);
  const spans = Int32Array.from(lines, ({ from, to }) => Math.abs(rank[to] - rank[from]));
  for (const side of ["from", "to"] as const) {
    const at = groupByKey(Int32Array.from(lines, (line, place) => (turned[place] === 2 ? -1 : line[side])), count);
    for (let box = 0; box < count; box++) {
      const own = rowsAt(at, box);
      if (own.length <= mostFar) continue;
      const distant = own.filter((line) => spans[line] >= far).length;
      for (const line of own) if (own.length > mostLines || (distant > mostFar && spans[line] > near)) marks[line] = 1;
    }
  }
  const long: number[] = [];
  for (let line = 0; line < lines.length; line++) {
    if (turned[line] === 2 || spans[line] > farthest) marks[line] = 1;
    else if (!marks[line] && spans[line] > near) long.push(line);
  }
  thin(long, lines, rank, spans, marks);
  return marks;
}

/** Marks the longest lines where too many run side by side. */
function thin(long: number[], lines: readonly Line[], rank: Int32Array, spans: Int32Array, marks: Uint8Array): void {
  if (long.length <= mostBeside) return;
  const beside = new Int32Array(rank.reduce((most, own) => Math.max(most, own), 0) + 1);
  long.sort((one, other) => spans[one] - spans[other] || one - other);
  for (const line of long) {
    const top = Math.min(rank[lines[line].from], rank[lines[line].to]) + 1;
    const bottom = top + spans[line] - 1;
    let most = 0;
    for (let own = top; own < bottom; own++) most = Math.max(most, beside[own]);
    if (most >= mostBeside) marks[line] = 1;
    else for (let own = top; own < bottom; own++) beside[own]++;
  }
}
