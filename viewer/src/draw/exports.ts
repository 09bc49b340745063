/** The view as a file: an SVG whose texts remain text, or a PNG at twice the size. */

import { h } from "../panels/dom.ts";
import { type Camera, type Size, visibleArea } from "./camera.ts";
import { type Marks, noMarks, paintCaptions, paintMarks, paintOver } from "./over.ts";
import { paintScene } from "./paint.ts";
import type { Painting } from "./painting.ts";
import { type Pen, type Stroke, canvasPen, curve, family, lookFrom } from "./pen.ts";

export function svgOf(painting: Painting, camera: Camera, size: Size, selected: Marks, title: string, verdict: string): string {
  const parts: string[] = [];
  const window = visibleArea(camera, size);
  const pen = svgPen(parts);
  paintScene(pen, painting, window, camera.k);
  paintMarks(pen, painting, selected, noMarks, camera.k);
  const over: string[] = [];
  paintCaptions(svgPen(over), painting, camera, size);
  const shift = `scale(${short(camera.k)}) translate(${short(-camera.x)} ${short(-camera.y)})`;
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${size.width}" height="${size.height}" viewBox="0 0 ${size.width} ${size.height}" role="img" font-family="${escaped(family)}">`,
    `<title>${escaped(title)}</title>${verdict && `<desc>${escaped(verdict)}</desc>`}`,
    `<rect width="100%" height="100%" fill="${painting.theme("ground")}"/>`,
    `<g transform="${shift}">`,
    ...parts,
    "</g>",
    ...over,
    "</svg>\n",
  ].join("\n");
}

/** The view at twice its size. */
export function canvasOf(painting: Painting, camera: Camera, size: Size, selected: Marks): HTMLCanvasElement {
  const ratio = Math.max(2, devicePixelRatio);
  const canvas = h("canvas", { width: size.width * ratio, height: size.height * ratio });
  const context = canvas.getContext("2d")!;
  context.fillStyle = painting.theme("ground");
  context.fillRect(0, 0, canvas.width, canvas.height);
  lookFrom(context, camera, ratio);
  paintScene(canvasPen(context), painting, visibleArea(camera, size), camera.k);
  paintOver(context, painting, camera, size, ratio, selected, noMarks);
  return canvas;
}

export function download(blob: Blob, name: string): void {
  const href = URL.createObjectURL(blob);
  h("a", { href, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(href), 10_000);
}

const short = (value: number): string => String(Math.round(value * 1000) / 1000);

// XML 1.0 has no place for control characters, however written.
const escaped = (text: string): string =>
  text
    .replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]/g, "")
    .replace(/[&<>"]/g, (sign) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[sign] ?? "");

function svgPen(parts: string[]): Pen {
  let opacity = "";
  const stroked = ({ colour, width, dash }: Stroke): string =>
    ` stroke="${colour}" stroke-width="${short(width)}"${dash ? ` stroke-dasharray="${dash.join(" ")}"` : ""}`;
  return {
    rectangles(places, fill, stroke, radius) {
      const look = ` fill="${fill ?? "none"}"${stroke === null ? "" : stroked(stroke)}${radius > 0 ? ` rx="${radius}"` : ""}${opacity}`;
      for (let at = 0; at < places.length; at += 4) {
        const [x, y, width, height] = places.slice(at, at + 4).map(short);
        parts.push(`<rect x="${x}" y="${y}" width="${width}" height="${height}"${look}/>`);
      }
    },
    curves(ways, stroke, across) {
      for (const way of ways) {
        let d = "";
        curve(
          {
            moveTo: (x, y) => void (d += `M${short(x)} ${short(y)}`),
            lineTo: (x, y) => void (d += `L${short(x)} ${short(y)}`),
            bezierCurveTo: (...corners) => void (d += `C${corners.map(short).join(" ")}`),
          },
          way,
          across,
        );
        parts.push(`<path d="${d}" fill="none"${stroked(stroke)}${opacity}/>`);
      }
    },
    polygons(corners, fill) {
      for (const polygon of corners) parts.push(`<polygon points="${polygon.map(short).join(" ")}" fill="${fill}"${opacity}/>`);
    },
    text(words, x, y, size, colour, bold, align) {
      const anchor = align === "left" ? "" : ` text-anchor="${align === "right" ? "end" : "middle"}"`;
      parts.push(
        `<text x="${short(x)}" y="${short(y)}" font-size="${size}" fill="${colour}"${bold ? ' font-weight="600"' : ""}${anchor}${opacity}>${escaped(words)}</text>`,
      );
    },
    opacity(share) {
      opacity = share === 1 ? "" : ` opacity="${share}"`;
    },
  };
}
