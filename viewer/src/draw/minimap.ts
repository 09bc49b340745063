/** The whole drawing small, with the part that is seen: a press or a drag in it moves the view there. */

import { h } from "../panels/dom.ts";
import type { Rectangle } from "../scene/scene.ts";
import type { Painting } from "./painting.ts";
import { wipe } from "./pen.ts";

export interface Minimap {
  readonly element: HTMLCanvasElement;
  show(painting: Painting): void;
  look(window: Rectangle): void;
}

const most = { width: 190, height: 130 };

export function minimap(onMove: (x: number, y: number) => void): Minimap {
  const picture = h("canvas");
  let scale = 1;
  let window_: Rectangle = { x: 0, y: 0, width: 0, height: 0 };
  let painting: Painting | null = null;
  let frame = 0;

  const paint = (): void => {
    frame = 0;
    const context = wipe(element);
    if (context === null || painting === null) return;
    context.drawImage(picture, 0, 0);
    const ratio = devicePixelRatio;
    context.strokeStyle = painting.theme("accent");
    context.lineWidth = 2 * ratio;
    const side = scale * ratio;
    context.strokeRect(window_.x * side, window_.y * side, Math.max(4, window_.width * side), Math.max(4, window_.height * side));
  };
  const request = (): void => {
    if (frame === 0) frame = requestAnimationFrame(paint);
  };
  const goTo = (event: PointerEvent): void => {
    const { left, top } = element.getBoundingClientRect();
    onMove((event.clientX - left) / scale, (event.clientY - top) / scale);
  };
  const element = h("canvas.minimap", {
    role: "img",
    "aria-label": "Map of the whole drawing",
    pointerdown: (event: PointerEvent) => {
      element.setPointerCapture(event.pointerId);
      goTo(event);
    },
    pointermove: (event: PointerEvent) => {
      if (event.buttons === 1) goTo(event);
    },
  });

  return {
    element,
    show(next) {
      painting = next;
      const { scene } = next.places;
      scale = Math.min(most.width / Math.max(1, scene.width), most.height / Math.max(1, scene.height));
      const ratio = devicePixelRatio;
      const width = Math.max(24, Math.ceil(scene.width * scale));
      const height = Math.max(24, Math.ceil(scene.height * scale));
      for (const canvas of [element, picture]) {
        canvas.width = width * ratio;
        canvas.height = height * ratio;
      }
      element.style.width = `${width}px`;
      element.style.height = `${height}px`;
      const context = picture.getContext("2d")!;
      context.setTransform(scale * ratio, 0, 0, scale * ratio, 0, 0);
      for (const part of scene.frames) {
        context.fillStyle = next.theme(part.depth % 2 === 0 ? "frame-a" : "frame-b");
        context.fillRect(part.x, part.y, part.width, part.height);
      }
      // A box of less than a pixel would fade to nothing.
      const least = 1.2 / scale;
      scene.boxes.forEach((box, at) => {
        context.fillStyle = next.looks.status[at] > 0 ? next.theme("accent") : next.theme("quiet");
        context.fillRect(box.x, box.y, Math.max(least, box.width), Math.max(least, box.height));
      });
      context.fillStyle = next.theme("cut");
      for (const { x, y } of scene.stubs) context.fillRect(x - 2 / scale, y - 2 / scale, 4 / scale, 4 / scale);
      request();
    },
    look(next) {
      window_ = next;
      request();
    },
  };
}
