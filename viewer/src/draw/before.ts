/** What changed boxes and frames said before, for the side of a review that shows it. */
import type { Shown } from "../graph/shown.ts";
import type { Places } from "./painting.ts";
import type { Rectangle } from "../scene/scene.ts";

/** Fields that stand in a label: what is told of other outputs, or of attributes, does not. */
const seen = /^(op|class|name|out\[0\].*)$/;

export function wordsBefore({ model, instead, scopes }: Shown, { scene, frameOf }: Places): ReadonlyMap<Rectangle, readonly string[]> {
  const words = new Map<Rectangle, readonly string[]>();
  for (const { nodes, scopes: modules, fields } of model.changes) {
    const told = fields.filter(({ path }) => seen.test(path));
    const put = (place: Rectangle | undefined, label: readonly string[] = []): void => {
      if (!place) return;
      const before = told.reduce((lines, { path, before, after }) => lines.map((line) => replaced(line, path, before, after)), words.get(place) ?? label);
      words.set(place, before);
    };
    for (const node of nodes) {
      const box = scene.boxes[scene.boxOf(node)];
      if (box?.node === instead[node]) put(box, box.label);
    }
    for (const module of modules) {
      const drawn = scopes.drawn(module);
      const box = scene.boxes[scene.boxOfScope(drawn)];
      const frame = scene.frames[frameOf.get(drawn) ?? -1];
      if (frame) put(frame, [frame.caption]);
      else if (box?.scope === drawn) put(box, box.label);
    }
  }
  return words;
}

function replaced(line: string, path: string, before: string, after: string): string {
  // Of a name the label has the last part: the others are those of the modules around it.
  const [old, now] = path === "name" ? [before, after].map((name) => name.replace(/.*[./]/, "")) : [before, after];
  return now && !old.startsWith("(") ? line.replace(now, () => old) : line;
}
