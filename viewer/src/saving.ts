/** Saves the view as a file. */

import { canvasOf, download, svgOf } from "./draw/exports.ts";
import { type Stage, marksOf } from "./draw/stage.ts";
import type { Selected } from "./state.ts";

/** Hands the view to the reader as a file, or both of a review as two, and gives the names. */
export async function savePicture({ drawings, shown, places }: Stage, selected: Selected, kind: "svg" | "png"): Promise<string> {
  const { title, verdict } = shown.model;
  const names: string[] = [];
  const marks = marksOf(shown, places, selected);
  for (const { painting, camera, size } of drawings) {
    const side = drawings[1] ? (names[0] ? "-after" : "-before") : "";
    const name = `${title.replace(/[^\w.-]+/g, "-").slice(0, 80)}${side}.${kind}`;
    const blob =
      kind === "svg"
        ? new Blob([svgOf(painting!, camera, size, marks, title, verdict?.[1] ?? "")], { type: "image/svg+xml" })
        : await new Promise<Blob | null>((done) => canvasOf(painting!, camera, size, marks).toBlob(done));
    if (blob !== null) download(blob, name);
    names.push(name);
  }
  return names.join(", ");
}
