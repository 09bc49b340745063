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

export type Token = (typeof tokens)[number];
/** The colour of a token. */
export type Theme = (token: Token) => string;

export function themeOf(element: Element): Theme {
  const style = getComputedStyle(element);
  const known = new Map<Token, string>();
  return (token) => {
    let colour = known.get(token);
    if (colour === undefined) known.set(token, (colour = style.getPropertyValue(`--${token}`).trim() || "#888"));
    return colour;
  };
}

/** The looks that an overlay may name, the gravest last. */
export const severity = ["quiet", "good", "step 1", "step 2", "step 3", "step 4", "step 5", "caution", "alarm"];

/** The token of a look that an overlay names; quiet where the page does not know it. */
export function lookToken(look: string): Token {
  return `look-${severity.includes(look) ? look.replace(" ", "-") : "quiet"}` as Token;
}

/** A look is told by a sign too, so that no colour is needed to see it. */
export function lookSign(look: string): string {
  return look === "alarm" ? "\u2715" : look === "caution" ? "!" : "";
}
