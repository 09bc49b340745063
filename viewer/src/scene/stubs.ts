/** Cuts, as dashed ends at the boxes where the flow stops. */
import type { Shown } from "../graph/shown.ts";
import type { SceneBox, Stub } from "./scene.ts";

export function stubsOf(shown: Shown, boxes: readonly SceneBox[], boxOf: (node: number) => number, boxOfScope: (scope: number) => number): Stub[] {
  const found: { cut: number; box: number; above: boolean }[] = [];
  shown.model.cuts.forEach(({ at, into, scope }, cut) => {
    const stops = at >= 0 ? boxOf(at) : -1;
    const lacks = into >= 0 ? boxOf(into) : -1;
    if (stops >= 0) found.push({ cut, box: stops, above: false });
    if (lacks >= 0 && lacks !== stops) found.push({ cut, box: lacks, above: true });
    if (stops >= 0 || lacks >= 0 || scope < 0) return;
    const holder = boxOfScope(scope);
    if (holder >= 0) found.push({ cut, box: holder, above: false });
  });
  // Several at one side of a box stand beside each other, off its middle: lines end there, and none of those is cut.
  const counts = new Map<number, number>();
  const side = ({ box, above }: { box: number; above: boolean }): number => box * 2 + (above ? 1 : 0);
  for (const stub of found) counts.set(side(stub), (counts.get(side(stub)) ?? 0) + 1);
  const next = new Map<number, number>();
  return found.map((stub) => {
    const { x, y, width, height } = boxes[stub.box];
    const place = (next.get(side(stub)) ?? 0) + 1;
    next.set(side(stub), place);
    return { ...stub, x: x + width * (0.6 + (0.4 * place) / (counts.get(side(stub))! + 1)), y: stub.above ? y : y + height };
  });
}
