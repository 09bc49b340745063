/** The words of a search. */

export const searchKeys = ["id", "name", "op", "class", "dtype", "shape", "source", "in"] as const;
export type SearchKey = (typeof searchKeys)[number];

export interface Word {
  readonly text: string;
  /** The one field to look in, if one is named. */
  readonly key: SearchKey | undefined;
}

/** 'op:mm "max pool" in:layers.3' as three words, in lower case. What stands in quotes or brackets is one word: a shape has spaces. */
export function parsed(words: string): Word[] {
  const found: Word[] = [];
  for (const [whole] of words.slice(0, 1000).toLowerCase().matchAll(/(?:[a-z]+:)?(?:"[^"]*"?|\[[^\]]*\]?|[^\s"[]+)+/g)) {
    const colon = whole.indexOf(":");
    const key = searchKeys.find((name) => colon > 0 && name === whole.slice(0, colon));
    const text = (key ? whole.slice(colon + 1) : whole).replaceAll('"', "");
    if (text) found.push({ text, key });
  }
  return found;
}

const every: ReadonlySet<SearchKey> = new Set(searchKeys);
const single = new Map(searchKeys.map((key) => [key, new Set([key]) as ReadonlySet<SearchKey>]));

/** Where to look for a word. */
export function fieldsOf({ key }: Word): ReadonlySet<SearchKey> {
  return key ? single.get(key)! : every;
}
