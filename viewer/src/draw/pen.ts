/** The tool that a painter draws with: a canvas, or the text of an SVG. Shapes come in batches of one look. */

import type { Camera } from "./camera.ts";

export interface Stroke {
  readonly colour: string;
  readonly width: number;
  readonly dash?: readonly number[];
}

export type Align = "left" | "center" | "right";

export interface Pen {
  /** Rectangles as x, y, width, height, one after the other. */
  rectangles(places: readonly number[], fill: string | null, stroke: Stroke | null, radius: number): void;
  /** Curves through corners. */
  curves(ways: readonly Float64Array[], stroke: Stroke, across: boolean): void;
  /** Closed polygons as corners. */
  polygons(corners: readonly (readonly number[])[], fill: string): void;
  /** Squeezed where it would be wider than `most`. */
  text(words: string, x: number, y: number, size: number, colour: string, bold: boolean, align: Align, most?: number): void;
  /** All that follows is that much opaque. */
  opacity(share: number): void;
}

/** Of the widths that boxes are made by (scene/widths.ts). */
export const family = '"Helvetica Neue", Helvetica, Arial, "Liberation Sans", sans-serif';

type Path = Pick<CanvasPath, "moveTo" | "lineTo" | "bezierCurveTo">;

/** A curve through all corners that is vertical at both ends, or horizontal if it runs across: cubic parts whose slopes never overshoot a corner. */
export function curve(path: Path, way: Float64Array, across: boolean): void {
  if (across) {
    const turned: Path = {
      moveTo: (x, y) => path.moveTo(y, x),
      lineTo: (x, y) => path.lineTo(y, x),
      bezierCurveTo: (x1, y1, x2, y2, x, y) => path.bezierCurveTo(y1, x1, y2, x2, y, x),
    };
    curve(turned, way.map((_, at) => way[at ^ 1]), false);
    return;
  }
  const last = way.length / 2 - 1;
  path.moveTo(way[0], way[1]);
  let slope = 0;
  for (let corner = 0; corner < last; corner++) {
    const x = way[2 * corner];
    const y = way[2 * corner + 1];
    const toX = way[2 * corner + 2];
    const toY = way[2 * corner + 3];
    const part = (toX - x) / (toY - y || 1);
    let next = 0;
    if (corner + 1 < last) {
      const after = (way[2 * corner + 4] - toX) / (way[2 * corner + 5] - toY || 1);
      // The harmonic mean is zero where the way turns back, as a monotone interpolation wants it.
      if (part * after > 0) next = (2 * part * after) / (part + after);
    }
    if (x === toX && slope === 0 && next === 0) path.lineTo(toX, toY);
    else {
      const third = (toY - y) / (slope === 0 && next === 0 ? 2 : 3);
      path.bezierCurveTo(x + slope * third, y + third, toX - next * third, toY - third, toX, toY);
    }
    slope = next;
  }
}

export function canvasPen(context: CanvasRenderingContext2D): Pen {
  let font = "";
  const stroked = (stroke: Stroke): void => {
    context.strokeStyle = stroke.colour;
    context.lineWidth = stroke.width;
    context.setLineDash(stroke.dash ? [...stroke.dash] : []);
    context.stroke();
  };
  context.lineJoin = "round";
  return {
    rectangles(places, fill, stroke, radius) {
      if (places.length === 0) return;
      context.beginPath();
      for (let at = 0; at < places.length; at += 4) {
        if (radius > 0) context.roundRect(places[at], places[at + 1], places[at + 2], places[at + 3], radius);
        else context.rect(places[at], places[at + 1], places[at + 2], places[at + 3]);
      }
      if (fill !== null) {
        context.fillStyle = fill;
        context.fill();
      }
      if (stroke !== null) stroked(stroke);
    },
    curves(ways, stroke, across) {
      if (ways.length === 0) return;
      context.beginPath();
      for (const way of ways) curve(context, way, across);
      stroked(stroke);
    },
    polygons(corners, fill) {
      if (corners.length === 0) return;
      context.beginPath();
      for (const polygon of corners) {
        context.moveTo(polygon[0], polygon[1]);
        for (let at = 2; at < polygon.length; at += 2) context.lineTo(polygon[at], polygon[at + 1]);
        context.closePath();
      }
      context.fillStyle = fill;
      context.fill();
    },
    text(words, x, y, size, colour, bold, align, most) {
      const wanted = `${bold ? "600 " : ""}${size}px ${family}`;
      // Setting a font is the dearest part of writing.
      if (font !== wanted) context.font = font = wanted;
      context.fillStyle = colour;
      context.textAlign = align;
      context.fillText(words, x, y, most);
    },
    opacity(share) {
      context.globalAlpha = share;
    },
  };
}

/** Clears a canvas and returns its context. */
export function wipe(canvas: HTMLCanvasElement): CanvasRenderingContext2D | null {
  const context = canvas.getContext("2d");
  context?.setTransform(1, 0, 0, 1, 0, 0);
  context?.clearRect(0, 0, canvas.width, canvas.height);
  return context;
}

/** Draws from now on as the camera sees it, `beyond` pixels from the corner. */
export function lookFrom(context: CanvasRenderingContext2D, { x, y, k }: Camera, ratio: number, beyond = 0): void {
  const scale = k * ratio;
  context.setTransform(scale, 0, 0, scale, beyond * ratio - x * scale, beyond * ratio - y * scale);
}
