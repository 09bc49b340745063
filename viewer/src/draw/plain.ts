/** Untrusted text for the eye: no control character acts, none hides, and nothing is endless. */

// Bidirectional overrides and isolates, zero widths, line and paragraph separators, C0 and C1.
const hidden = /[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;

export function plain(text: string, most = 2000): string {
  const cut = text.length > most ? `${text.slice(0, most)}\u2026` : text;
  return cut.replace(hidden, (sign) => (/[\t\n]/.test(sign) ? " " : `\\u${sign.charCodeAt(0).toString(16).padStart(4, "0")}`));
}

/** Long names lose their middle: both ends tell more than one. */
export function shorten(text: string, kept: number): string {
  if (text.length <= kept) return text;
  const tail = Math.floor(kept * 0.4);
  return `${text.slice(0, kept - tail)}\u2026${tail ? text.slice(-tail) : ""}`;
}

/** "1.2 M", "34.5 kB": a number with one of the units, each a thousand times the one before. */
export function formatQuantity(value: number, units: readonly string[]): string {
  let unit = 0;
  while (value >= 999.5 && unit < units.length - 1) {
    value /= 1000;
    unit++;
  }
  return (unit === 0 || value >= 99.5 ? Math.round(value) : value.toFixed(1)) + units[unit];
}

export function bytesText(bytes: number): string {
  return formatQuantity(bytes, [" B", " kB", " MB", " GB", " TB"]);
}

/** A whole number with commas. The browser's own way loads its languages first, 20 ms before the first picture. */
export function numberText(value: number): string {
  return `${value}`.replace(/\B(?=(\d{3})+$)/g, ",");
}
