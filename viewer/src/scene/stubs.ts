/** Cuts, as dashed ends at the boxes where the flow stops, or at the frame of the module whose parameter it does not reach. */
import type { Shown } from "../graph/shown.ts";
import type { Frame, SceneBox, Stub } from "./scene.ts";

export function stubsOf(
  shown: Shown,
  boxes: readonly SceneBox[],
  frames: readonly Frame[],
  boxOf: (node: number) => number,
  boxOfScope: (scope: number) => number,
): Stub[] {
  const places = [...boxes, ...frames];
  const placeOf = new Map(frames.map(({ scope }, at) => [scope, boxes.length + at]));
  const found: { cut: number; box: number; above: boolean; side: string; order: number }[] = [];
  // Several at one side of a box stand beside each other, off its middle: lines end there, and none of those is cut.
  const counts = new Map<string, number>();
  const add = (cut: number, box: number, above: boolean, isShared = false): void => {
    const side = `${box} ${above} ${isShared}`;
    const order = isShared ? 1 : (counts.get(side) ?? 0) + 1;
    counts.set(side, order);
    found.push({ cut, box, above, side, order });
  };
  shown.model.cuts.forEach(({ at, into, scope }, cut) => {
    const stops = at >= 0 ? boxOf(at) : -1;
    const lacks = into >= 0 ? boxOf(into) : -1;
    if (stops >= 0) add(cut, stops, false);
    if (lacks >= 0 && lacks !== stops) add(cut, lacks, true);
    if (stops >= 0 || lacks >= 0 || scope < 0) return;
    // An item without a box is marked at the scope around it, in the end at the whole graph.
    let holder = -1;
    for (let own = shown.scopes.drawn(scope); holder < 0; own = shown.scopes.parent[own]) holder = placeOf.get(own) ?? boxOfScope(own);
    // A module that is drawn for its cuts alone says so itself; of another one they stand at one place, with their number.
    if (!shown.lost.has(places[holder].scope)) add(cut, holder, false, true);
  });
  return found.map(({ cut, box, above, side, order }) => {
    const { x, y, width, height } = places[box];
    return { cut, box, above, x: x + width * (0.6 + (0.4 * order) / (counts.get(side)! + 1)), y: above ? y : y + height };
  });
}
