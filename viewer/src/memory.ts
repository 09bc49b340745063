/** The link of the page: written as the reader goes on, read when they come back. */

import type { Camera } from "./draw/camera.ts";

export interface Memory {
  /** A step that "back" undoes. */
  step(hash: string): void;
  /** Where the eye is; no step of its own. */
  look(camera: Camera): void;
  /** The link to the current view, to share; the page's own address becomes the same at once. */
  link(hash: string, camera: Camera): string;
}

const pause = 250;

/** `onBack` gets a link that is not the one on screen. */
export function memory(onBack: (hash: string) => void): Memory {
  let hash = location.hash;
  let timer = 0;
  const write = (method: "pushState" | "replaceState"): void => {
    try {
      history[method](null, "", hash);
    } catch {
      // A page in a frame without an address of its own has no history: the drawing works without.
    }
  };
  const seen = (next: string, { x, y, k }: Camera): void => {
    hash = `${withoutEye(next)}&eye=${Math.round(x)},${Math.round(y)},${Number(k.toPrecision(4))}`;
    write("replaceState");
  };
  const back = (): void => {
    if (location.hash === hash) return;
    clearTimeout(timer);
    hash = location.hash;
    onBack(hash);
  };
  addEventListener("popstate", back);
  addEventListener("hashchange", back);
  return {
    step(next) {
      if (withoutEye(next) === withoutEye(hash)) return;
      clearTimeout(timer);
      hash = next;
      write("pushState");
    },
    look(camera) {
      clearTimeout(timer);
      timer = window.setTimeout(() => {
        if (hash !== "") seen(hash, camera);
      }, pause);
    },
    link(next, camera) {
      clearTimeout(timer);
      seen(next, camera);
      return location.href.split("#", 1)[0] + hash;
    },
  };
}

export function withoutEye(hash: string): string {
  return hash.replace(/&eye=[^&]*/, "");
}

export function eyeOf(hash: string): Camera | null {
  const found = /[#&]eye=(-?\d+),(-?\d+),(\d+(?:\.\d+)?(?:e-?\d+)?)(?:&|$)/.exec(hash);
  const k = Number(found?.[3]);
  return found === null || !(k > 0) ? null : { x: Number(found[1]), y: Number(found[2]), k };
}
