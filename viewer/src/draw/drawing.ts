/**
 * One view of a scene: a canvas that is painted beyond the edges of the view and moved while the reader pans, and a
 * second one over it for the parts that change with every move.
 */

import { h } from "../panels/dom.ts";
import type { Rectangle } from "../scene/scene.ts";
import { type Camera, type Size, moveBetween, panBy, visibleArea, within } from "./camera.ts";
import { type Hit, hitAt } from "./hits.ts";
import { type Marks, noMarks, paintOver } from "./over.ts";
import { paintScene } from "./paint.ts";
import type { Painting } from "./painting.ts";
import { canvasPen, lookFrom, wipe } from "./pen.ts";

export interface Drawing {
  readonly element: HTMLElement;
  readonly size: Size;
  readonly camera: Camera;
  readonly painting: Painting | null;
  /** Frames painted, and the milliseconds of the last whole painting. */
  readonly painted: { count: number; milliseconds: number };
  show(painting: Painting): void;
  mark(selected: Marks, pointed: Marks): void;
  move(camera: Camera): void;
  /** Moves there in a quarter of a second, at once where motion is unwanted. */
  fly(camera: Camera): void;
  hit(x: number, y: number): Hit;
  /** Whether its size changed; a hidden page has no size and keeps its view. */
  resize(): boolean;
}

/** Pixels beyond each edge that are painted ahead. */
const beyond = 240;
/** A whole painting that is faster than this is made anew with every move. */
const fast = 6;
const flight = 220;

export function drawing(onMove: (camera: Camera) => void): Drawing {
  const base = h("canvas.base");
  const over = h("canvas");
  const element = h("div.drawing", base, over);
  let size: Size = { width: 0, height: 0 };
  let camera: Camera = { x: 0, y: 0, k: 1 };
  let painting: Painting | null = null;
  let marks: readonly [Marks, Marks] = [noMarks, noMarks];
  let paintedAt: Camera | null = null;
  let frame = 0;
  let later = 0;
  let flying = 0;
  const painted = { count: 0, milliseconds: 0 };

  const covered = (at: Camera): Rectangle => visibleArea(panBy(at, beyond, beyond), { width: size.width + 2 * beyond, height: size.height + 2 * beyond });

  const paint = (): void => {
    if (painting === null || size.width === 0) return;
    const before = performance.now();
    const ratio = devicePixelRatio;
    fitCanvas(base, size.width + 2 * beyond, size.height + 2 * beyond, ratio);
    const context = wipe(base);
    if (context === null) return;
    lookFrom(context, camera, ratio, beyond);
    paintedAt = camera;
    paintScene(canvasPen(context), painting, covered(camera), camera.k);
    context.globalAlpha = 1;
    painted.count++;
    painted.milliseconds = performance.now() - before;
    base.style.transform = "";
  };

  const paintAbove = (): void => {
    const ratio = devicePixelRatio;
    fitCanvas(over, size.width, size.height, ratio);
    const context = wipe(over);
    if (context === null || painting === null) return;
    paintOver(context, painting, camera, size, ratio, ...marks);
  };

  /** Moves the painted picture if that covers the view and is sharp enough; paints anew when the move has ended. */
  const tick = (): void => {
    frame = 0;
    const blur = paintedAt === null ? 0 : camera.k / paintedAt.k;
    if (paintedAt === null || painted.milliseconds < fast || blur < 0.6 || blur > 1.8 || !within(visibleArea(camera, size), covered(paintedAt))) {
      if (paintedAt !== camera) paint();
    } else if (paintedAt !== camera) {
      const dx = (paintedAt.x - camera.x) * camera.k - beyond * (blur - 1);
      const dy = (paintedAt.y - camera.y) * camera.k - beyond * (blur - 1);
      base.style.transform = `translate(${dx}px, ${dy}px) scale(${blur})`;
      clearTimeout(later);
      later = window.setTimeout(paint, 140);
    }
    paintAbove();
  };
  const request = (): void => {
    if (frame === 0) frame = requestAnimationFrame(tick);
  };
  const set = (next: Camera): void => {
    camera = next;
    request();
    onMove(camera);
  };

  return {
    element,
    get size() {
      return size;
    },
    get camera() {
      return camera;
    },
    get painting() {
      return painting;
    },
    painted,
    show(next) {
      painting = next;
      paintedAt = null;
      request();
    },
    mark(selected, pointed) {
      marks = [selected, pointed];
      request();
    },
    move(next) {
      cancelAnimationFrame(flying);
      set(next);
    },
    fly(next) {
      cancelAnimationFrame(flying);
      if (matchMedia("(prefers-reduced-motion: reduce)").matches || document.hidden) {
        set(next);
        return;
      }
      const from = camera;
      const start = performance.now();
      const step = (now: number): void => {
        const share = Math.min(1, Math.max(0, now - start) / flight);
        set(share === 1 ? next : moveBetween(from, next, share * (2 - share)));
        if (share < 1) flying = requestAnimationFrame(step);
      };
      flying = requestAnimationFrame(step);
    },
    hit(x, y) {
      return hitAt(painting, camera, size, x, y);
    },
    resize() {
      const { width, height } = size;
      const { clientWidth, clientHeight } = element;
      if (clientWidth * clientHeight === 0 || (clientWidth === width && clientHeight === height)) return false;
      size = { width: clientWidth, height: clientHeight };
      // Keep the middle of the view.
      if (width > 0) camera = panBy(camera, (size.width - width) / 2, (size.height - height) / 2);
      paintedAt = null;
      request();
      return true;
    },
  };
}

function fitCanvas(canvas: HTMLCanvasElement, width: number, height: number, ratio: number): void {
  const wide = Math.round(width * ratio);
  const high = Math.round(height * ratio);
  if (canvas.width === wide && canvas.height === high) return;
  canvas.width = wide;
  canvas.height = high;
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
}
