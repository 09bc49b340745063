/** How wide text is in the page's font, without a canvas: Helvetica's widths in thousandths, with some room for wider fonts. */
import { plain, shorten } from "../draw/plain.ts";

export const font = { size: 12, line: 15 } as const;

const narrow = 0.28;
const widths = new Float64Array(127).fill(0.556);
const table: readonly (readonly [width: number, characters: string])[] = [
  [0.191, "'"],
  [0.222, "ijl"],
  [0.26, "|"],
  [narrow, " !,./:;I[\\]ft"],
  [0.333, "`()-r"],
  [0.355, '"'],
  [0.389, "*"],
  [0.5, "Jckvsxyz"],
  [0.584, "+<=>~"],
  [0.611, "FTZ"],
  [0.667, "ABEKPSVXY&"],
  [0.722, "CDHNRUw"],
  [0.778, "GOQ"],
  [0.833, "Mm"],
  [0.889, "%"],
  [0.944, "W"],
  [1.015, "@"],
];
for (const [width, characters] of table) for (const character of characters) widths[character.charCodeAt(0)] = width;

const room = 1.12;
const bold = 1.07;

/** The width of a text in pixels. */
export function textWidth(text: string, isTitle = false): number {
  let sum = 0;
  for (let place = 0; place < text.length; place++) {
    const code = text.charCodeAt(place);
    if (code < 127) sum += widths[code];
    else if (code === 0xb7) sum += narrow;
    // Both halves of a character beyond the first plane together are one wide one.
    else if (code >= 0xd800 && code < 0xe000) sum += 0.5;
    else sum += code >= 0x1100 ? (code >= 0x2000 && code < 0x2100 ? 0.7 : 1) : 0.62;
  }
  return sum * font.size * room * (isTitle ? bold : 1);
}

/** Cuts the middle of a text so that it is no wider than some pixels. */
export function cutToWidth(text: string, most: number, isTitle = false): string {
  const clean = plain(text, 200);
  if (textWidth(clean, isTitle) <= most) return clean;
  let [low, high] = [0, clean.length];
  while (low < high) {
    const kept = (low + high + 1) >> 1;
    if (textWidth(shorten(clean, kept), isTitle) <= most) low = kept;
    else high = kept - 1;
  }
  return shorten(clean, low);
}
