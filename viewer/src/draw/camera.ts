/** Where the eye is: the world point at the top left of the view, and screen pixels by world unit. */

import type { Rectangle } from "../scene/scene.ts";
import { font } from "../scene/widths.ts";

export interface Camera {
  readonly x: number;
  readonly y: number;
  readonly k: number;
}

export interface Size {
  readonly width: number;
  readonly height: number;
}

export const nearest = 4;
const farthest = 0.0002;
/** At this scale a word has 11 pixels: nothing is brought into sight at a smaller one. */
export const readable = 11 / font.size + 0.005;
/** A text stays readable from this scale on, so that fitting a small drawing does not blow it up. */
const natural = 1.25;
/** The margin around a fitted drawing, in pixels. */
export const margin = 24;

export function limitScale(k: number): number {
  return Math.min(nearest, Math.max(farthest, k));
}

export function zoomAt(camera: Camera, factor: number, screenX: number, screenY: number): Camera {
  const k = limitScale(camera.k * factor);
  return { x: camera.x + screenX / camera.k - screenX / k, y: camera.y + screenY / camera.k - screenY / k, k };
}

export function panBy(camera: Camera, screenX: number, screenY: number): Camera {
  return { x: camera.x - screenX / camera.k, y: camera.y - screenY / camera.k, k: camera.k };
}

export function fitAll(what: Rectangle, size: Size, around = margin, most = natural): Camera {
  const wide = Math.max(1, size.width - 2 * around) / Math.max(1, what.width);
  const high = Math.max(1, size.height - 2 * around) / Math.max(1, what.height);
  const k = limitScale(Math.min(wide, high, most));
  return centreOn(what, size, k);
}

export function centreOn(what: Rectangle, size: Size, k: number): Camera {
  return { x: what.x + what.width / 2 - size.width / 2 / k, y: what.y + what.height / 2 - size.height / 2 / k, k };
}

/** As much of something as can be read, from its beginning on where it is larger than the view. */
export function fitToRead(what: Rectangle, size: Size, most = natural, least = readable): Camera {
  const k = Math.max(least, fitAll(what, size, margin, most).k);
  const { x, y } = centreOn(what, size, k);
  return { x: what.width * k > size.width ? what.x - margin : x, y: what.height * k > size.height ? what.y - margin : y, k };
}

export function visibleArea(camera: Camera, size: Size): Rectangle {
  return { x: camera.x, y: camera.y, width: size.width / camera.k, height: size.height / camera.k };
}

export function moveBetween(from: Camera, to: Camera, share: number): Camera {
  // Scales are mixed as powers, so that a flight far out does not end in a jump.
  const k = from.k * (to.k / from.k) ** share;
  return { x: from.x + (to.x - from.x) * share, y: from.y + (to.y - from.y) * share, k };
}

export function overlap(one: Rectangle, other: Rectangle): boolean {
  return one.x <= other.x + other.width && other.x <= one.x + one.width && one.y <= other.y + other.height && other.y <= one.y + one.height;
}

export function within(inner: Rectangle, outer: Rectangle): boolean {
  return (
    inner.x >= outer.x && inner.y >= outer.y && inner.x + inner.width <= outer.x + outer.width && inner.y + inner.height <= outer.y + outer.height
  );
}
