/** What is seen, as a file. */

import { canvasOf, download, svgOf } from "./draw/exports.ts";
import { type Stage, marksOf } from "./draw/stage.ts";
import type { Selected } from "./state.ts";

/** Hands the view to the reader as a file, and gives its name. */
export async function saved(stage: Stage, selected: Selected, kind: "svg" | "png"): Promise<string> {
  const { painting, camera, size } = stage.drawings[0];
  const { title } = stage.shown.model;
  const name = `${(title || "graph").replace(/[^\w.-]+/g, "-").slice(0, 80)}.${kind}`;
  if (painting === null) return name;
  const marks = marksOf(stage.shown, stage.places, selected);
  const blob =
    kind === "svg"
      ? new Blob([svgOf(painting, camera, size, marks, title)], { type: "image/svg+xml" })
      : await new Promise<Blob | null>((done) => canvasOf(painting, camera, size, marks).toBlob(done));
  if (blob !== null) download(blob, name);
  return name;
}
