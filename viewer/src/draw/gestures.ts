/** Turns events of pointers and the wheel into gestures: move, zoom, point, click, open. */

import { set } from "../panels/dom.ts";

export interface Meanings {
  pan(dx: number, dy: number): void;
  zoom(factor: number, x: number, y: number): void;
  point(x: number, y: number): void;
  leave(): void;
  click(x: number, y: number, event: PointerEvent): void;
  double(x: number, y: number): void;
  /** The wheel, or one finger, was left to the page around. */
  left(): void;
}

/** In a frame of another page the wheel and one finger belong to that page, as with maps. */
export const isFramed = self !== top;

/** Pixels that a pointer may tremble and still click. */
const tremble = 4;
const doubleMilliseconds = 350;

export function gestures(element: HTMLElement, meanings: Meanings): void {
  const pointers = new Map<number, { x: number; y: number }>();
  let start = { x: 0, y: 0 };
  let isDrag = false;
  let last = { time: -Infinity, x: 0, y: 0 };

  const local = (event: MouseEvent): { x: number; y: number } => {
    const { left, top } = element.getBoundingClientRect();
    return { x: event.clientX - left, y: event.clientY - top };
  };
  if (isFramed) {
    element.style.touchAction = "pan-x pan-y";
    // Else the browser scrolls the page around with two fingers too, and takes the pointers away.
    element.addEventListener("touchmove", (event) => event.touches.length > 1 && event.preventDefault(), { passive: false });
  }
  const end = (event: PointerEvent): void => {
    if (!pointers.delete(event.pointerId)) return;
    element.classList.remove("dragged");
    // The browser takes the finger away to scroll.
    if (isFramed && event.type === "pointercancel") meanings.left();
    if (isDrag || event.type === "pointercancel") return;
    const at = local(event);
    const isDouble = event.timeStamp - last.time < doubleMilliseconds && Math.hypot(at.x - last.x, at.y - last.y) <= 2 * tremble;
    if (isDouble) meanings.double(at.x, at.y);
    else meanings.click(at.x, at.y, event);
    last = { time: isDouble ? -Infinity : event.timeStamp, x: at.x, y: at.y };
  };
  set(element, {
    pointerdown: (event: PointerEvent) => {
      if (event.button !== 0) return;
      element.setPointerCapture(event.pointerId);
      start = local(event);
      pointers.set(event.pointerId, start);
      isDrag = pointers.size > 1;
    },
    pointermove: (event: PointerEvent) => {
      const at = local(event);
      const before = pointers.get(event.pointerId);
      if (before === undefined) {
        meanings.point(at.x, at.y);
        return;
      }
      if (pointers.size === 2) {
        const [other] = [...pointers].filter(([id]) => id !== event.pointerId).map(([, place]) => place);
        const was = Math.hypot(before.x - other.x, before.y - other.y);
        const is = Math.hypot(at.x - other.x, at.y - other.y);
        if (was > 0) meanings.zoom(is / was, (at.x + other.x) / 2, (at.y + other.y) / 2);
        meanings.pan((at.x - before.x) / 2, (at.y - before.y) / 2);
      } else if (!isFramed || event.pointerType !== "touch") {
        const from = isDrag ? before : start;
        isDrag ||= Math.hypot(at.x - start.x, at.y - start.y) > tremble;
        element.classList.toggle("dragged", isDrag);
        if (isDrag) meanings.pan(at.x - from.x, at.y - from.y);
      }
      pointers.set(event.pointerId, at);
    },
    pointerup: end,
    pointercancel: end,
    // A finger leaves when it ends, and the words that it brought are still to be read.
    pointerleave: ({ pointerType }: PointerEvent) => pointerType !== "touch" && meanings.leave(),
  });
  element.addEventListener(
    "wheel",
    (event) => {
      if (isFramed && !event.ctrlKey && !event.metaKey) {
        meanings.left();
        return;
      }
      event.preventDefault();
      const unit = event.deltaMode === 1 ? 20 : event.deltaMode === 2 ? 400 : 1;
      if (event.shiftKey && !event.ctrlKey) {
        meanings.pan(-(event.deltaX || event.deltaY) * unit, 0);
        return;
      }
      const { x, y } = local(event);
      // A pinch on a trackpad comes as a wheel with ctrl, in much smaller steps.
      meanings.zoom(2 ** (-event.deltaY * unit * (event.ctrlKey ? 0.01 : 0.002)), x, y);
    },
    { passive: false },
  );
}
