/** A scene as an SVG, to look at while working on layouts: node tests/run.mjs look FOLDER writes some. */
import type { Scene } from "../src/scene/scene.ts";

const escaped = (text: string): string => text.replace(/[&<>"]/g, (character) => `&#${character.charCodeAt(0)};`);

export function svg(scene: Scene, isMarkedDrawn = false): string {
  const parts: string[] = [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${scene.width}" height="${scene.height}" font-family="Helvetica, Arial, sans-serif" font-size="12">`,
    `<rect width="100%" height="100%" fill="white"/>`,
  ];
  for (const { x, y, width, height, depth, caption } of scene.frames) {
    const fill = depth % 2 ? "#f3f4f6" : "#e9ebee";
    parts.push(`<rect x="${x}" y="${y}" width="${width}" height="${height}" rx="8" fill="${fill}" stroke="#c3c7cd"/>`);
    parts.push(`<text x="${x + 10}" y="${y + 18}" font-weight="600">${escaped(caption)}</text>`);
  }
  for (const { way, marked } of scene.lines) {
    if (marked) {
      const [x1, y1, x2, y2] = [way[0], way[1], way[way.length - 2], way[way.length - 1]];
      if (isMarkedDrawn) parts.push(`<line x1="${x1}" y1="${y1}" x2="${x2}" y2="${y2}" stroke="#d88" stroke-dasharray="3 3"/>`);
      parts.push(`<circle cx="${x1}" cy="${y1 + 4}" r="3" fill="#888"/><circle cx="${x2}" cy="${y2 - 4}" r="3" fill="none" stroke="#888"/>`);
      continue;
    }
    parts.push(`<path d="${curve(way)}" fill="none" stroke="#6b7280" marker-end="url(#a)"/>`);
  }
  for (const { x, y, width, height, label, node } of scene.boxes) {
    const fill = node < 0 ? "#dbe7f7" : "#ffffff";
    parts.push(`<rect x="${x}" y="${y}" width="${width}" height="${height}" rx="5" fill="${fill}" stroke="#8792a2"/>`);
    label.forEach((line, place) => {
      const weight = place ? "" : ' font-weight="600"';
      parts.push(`<text x="${x + width / 2}" y="${y + 7 + 12 + place * 15}" text-anchor="middle"${weight}>${escaped(line)}</text>`);
    });
  }
  for (const { x, y, above } of scene.stubs) parts.push(`<line x1="${x}" y1="${y}" x2="${x}" y2="${y + (above ? -14 : 14)}" stroke="red" stroke-dasharray="3 2"/>`);
  parts.push(`<defs><marker id="a" viewBox="0 0 6 6" refX="6" refY="3" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0L6 3L0 6z" fill="#6b7280"/></marker></defs></svg>`);
  return parts.join("\n");
}

function curve(way: Float64Array): string {
  let d = `M${way[0]} ${way[1]}`;
  for (let place = 2; place < way.length; place += 2) {
    const [x0, y0, x, y] = [way[place - 2], way[place - 1], way[place], way[place + 1]];
    d += x === x0 ? `L${x} ${y}` : `C${x0} ${(y0 + y) / 2} ${x} ${(y0 + y) / 2} ${x} ${y}`;
  }
  return d;
}
