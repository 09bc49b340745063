/** Finds the box, line or frame under a point of the view. */

import { type Camera, type Size, overlap } from "./camera.ts";
import { captions } from "./over.ts";
import { isHidden, stubLength } from "./paint.ts";
import type { Painting } from "./painting.ts";

export type Hit =
  | { readonly kind: "box"; readonly at: number; /** On the sign that opens it. */ readonly isSign: boolean }
  | { readonly kind: "frame"; readonly at: number; readonly isSign: boolean; readonly isCaption: boolean }
  | { readonly kind: "stub"; readonly at: number }
  | { readonly kind: "none" };

const sign = 18;

export function hitAt(painting: Painting | null, camera: Camera, size: Size, screenX: number, screenY: number): Hit {
  if (painting === null) return { kind: "none" };
  const { scene, boxes } = painting.places;
  for (const caption of captions(painting, camera, size).reverse()) {
    if (overlap({ x: screenX, y: screenY, width: 0, height: 0 }, caption)) {
      return { kind: "frame", at: caption.frame, isSign: screenX <= caption.x + sign, isCaption: true };
    }
  }
  const x = camera.x + screenX / camera.k;
  const y = camera.y + screenY / camera.k;
  for (let at = 0; at < scene.stubs.length; at++) {
    const stub = scene.stubs[at];
    const top = stub.above ? stub.y - stubLength - 5 : stub.y;
    if (Math.abs(x - stub.x) <= 12 && y >= top && y <= top + stubLength + 5) return { kind: "stub", at };
  }
  // A little around, for the signs stand on the corners.
  for (const at of boxes.inside({ x: x - 6, y, width: 6, height: 6 }).reverse()) {
    if (isHidden(painting, painting.looks.status[at])) continue;
    const box = scene.boxes[at];
    return { kind: "box", at, isSign: box.node < 0 && x >= box.x + box.width - sign / 2 && y <= box.y + sign / 2 };
  }
  for (let at = scene.frames.length - 1; at >= 0; at--) {
    if (overlap({ x, y, width: 0, height: 0 }, scene.frames[at])) return { kind: "frame", at, isSign: false, isCaption: false };
  }
  return { kind: "none" };
}
