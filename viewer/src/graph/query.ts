/** The words of a search. */

export const searchKeys = ["id", "name", "op", "class", "dtype", "shape", "source", "in"] as const;
export type SearchKey = (typeof searchKeys)[number];

export interface Word {
  readonly text: string;
  /** The one field to look in, if one is named. */
  readonly key: SearchKey | undefined;
  /** The expression to match instead of the text. */
  readonly expression?: RegExp;
}

/** Texts of boxes beside names: "fc: Linear (1 of 2)", "Block \u00d712", "relu \u2192 gelu". */
const beside = /\(\d+ of \d+\)|\(opaque\)|\u00d7\d+|\u2192|:(?=\s|$)/g;

/**
 * 'op:mm "max pool" in:layers.3 /add|mul/' as four words, in lower case. Text in quotes or brackets is one word: a shape has
 * spaces. Text between slashes is a regular expression, and a word with stars matches a whole text.
 *
 * Raises a SyntaxError where that is none.
 */
export function parseQuery(words: string): Word[] {
  const found: Word[] = [];
  const parts = /(?:[a-z]+:)?(?:\/(?:\\.|[^\\/])+\/(?=\s|$)|(?:"[^"]*"?|\[[^\]]*\]?|[^\s"[]+)+)/gi;
  for (const [whole] of words.slice(0, 1000).replace(beside, " ").matchAll(parts)) {
    const [, named, rest] = /^(?:([a-z]+):)?(.*)$/is.exec(whole)!;
    const key = searchKeys.find((name) => name === named?.toLowerCase());
    const own = key ? rest : whole;
    if (/^\/.+\/$/.test(own)) found.push({ text: own, key, expression: new RegExp(own.slice(1, -1), "i") });
    // "float32[8, 32]" is two fields.
    else
      for (const part of key ? [own] : own.split(/(?<=\w)(?=\[)/)) {
        const text = part.replaceAll('"', "").toLowerCase();
        // As in --fold: 'h.*.attn', 'class:*Norm'.
        const whole = text.replace(/[.+?^${}()|[\]\\]/g, "\\$&").replaceAll("*", ".*");
        if (text) found.push({ text, key, ...(text.includes("*") && { expression: new RegExp(`^${whole}$`) }) });
      }
  }
  return found;
}
