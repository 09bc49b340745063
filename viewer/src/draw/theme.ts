/** The colours of the page: custom properties of the style sheet, so that canvas and DOM change together. */

export const tokens = [
  "ground",
  "panel",
  "text",
  "quiet",
  "line",
  "rim",
  "frame-a",
  "frame-b",
  "frame-rim",
  "accent",
  "cut",
  "lost",
  "module",
  "plain",
  "role-function",
  "role-leaf",
  "role-parameter",
  "role-buffer",
  "role-input",
  "role-constant",
  "role-output",
  "role-other",
  "added",
  "removed",
  "changed",
  "renamed",
  "moved",
  "added-rim",
  "removed-rim",
  "changed-rim",
  "renamed-rim",
  "moved-rim",
  "look-quiet",
  "look-good",
  "look-step-1",
  "look-step-2",
  "look-step-3",
  "look-step-4",
  "look-step-5",
  "look-caution",
  "look-alarm",
  "tint-0",
  "tint-1",
  "tint-2",
  "tint-3",
  "tint-4",
  "tint-5",
  "tint-6",
  "tint-7",
] as const;

/** A colour of the style sheet, or one of the 41 of a scale between its steps. */
export type Token = (typeof tokens)[number] | `scale-${number}`;
/** The colour of a token. */
export type Theme = (token: Token) => string;

export function themeOf(element: Element): Theme {
  const style = getComputedStyle(element);
  const known = new Map<Token, string>();
  return (token) => {
    let colour = known.get(token);
    if (colour === undefined) {
      const place = /^scale-(.*)/.exec(token);
      const property = (name: string): string => style.getPropertyValue(`--${name}`).trim() || "#888888";
      known.set(token, (colour = place ? mixColours((step) => property(`look-step-${step}`), Number(place[1]) / 10) : property(token)));
    }
    return colour;
  };
}

/** A colour between those of two steps. */
function mixColours(colourOf: (step: number) => string, place: number): string {
  const first = Math.min(3, Math.floor(place));
  const [low, high] = [first + 1, first + 2].map((step) => parseInt(colourOf(step).slice(1), 16));
  const mixed = [16, 8, 0].map((bits) => {
    const [from, to] = [(low >> bits) & 255, (high >> bits) & 255];
    return Math.round(from + (to - from) * (place - first)).toString(16).padStart(2, "0");
  });
  return `#${mixed.join("")}`;
}

/** The token of a look that an overlay names; quiet where the page does not know it. */
export function lookToken(look: string): Token {
  return `look-${/^(good|caution|alarm)$/.test(look) ? look : "quiet"}` as Token;
}

/** A look is told by a sign too, so that no colour is needed to see it. */
export function lookSign(look: string): string {
  return look === "alarm" ? "\u2715" : look === "caution" ? "!" : "";
}
