/** Nodes and modules by words: all of them must be found, in any field or in one that is named ("op:mm in:layers.3"). */
import type { DetailsOfAll, Model } from "../data/model.ts";
import { parseQuery } from "./query.ts";
import type { SearchKey, Word } from "./query.ts";

/** A node, or a module (`node` -1), the other is -1. */
export interface Hit {
  readonly node: number;
  readonly scope: number;
}

export const mostHits = 500;

/** The score of a match: none, somewhere, at a start, the whole text. */
type Worth = readonly [none: 0, somewhere: number, start: number, whole: number];
const named: Worth = [0, 40, 60, 100];
const done: Worth = [0, 35, 50, 95];
const typed: Worth = [0, 12, 16, 50];

/** The texts to search, in lower case. */
interface Index {
  readonly texts: readonly string[];
  readonly paths: readonly string[];
  readonly ids: readonly string[];
}

const known = new WeakMap<Model, Index>();

/** Made once for each model; a page may ask for it before the first search, when it is idle. */
export function indexOf(model: Model): Index {
  const { texts, scopes, nodes } = model;
  const lower = (text: string): string => text.toLowerCase();
  const made = known.get(model) ?? {
    texts: texts.map(lower),
    paths: Array.from(scopes.name, (_, scope) => lower(scopes.path(scope))),
    ids: Array.from(nodes.op, (_, node) => lower(nodes.id(node))),
  };
  known.set(model, made);
  return made;
}

/** The best hits first, modules before nodes that fit as well; at most `most`. */
export function search(model: Model, details: DetailsOfAll | null, words: string, most = mostHits): Hit[] {
  const asked = parseQuery(words);
  if (!asked.length) return [];
  const { texts, paths, ids } = indexOf(model);
  const { nodes, scopes } = model;
  // Modules, then nodes.
  const score = new Int16Array(scopes.count + nodes.count).fill(1);
  score[0] = 0;
  for (const word of asked) {
    const found = new Int16Array(score.length);
    const ranks = new Map<readonly string[], Uint8Array | null>();
    const look = (key: SearchKey, isNode: boolean, worth: Worth, all: readonly string[], column?: ArrayLike<number>): void => {
      if (word.key && word.key !== key) return;
      if (!ranks.has(all)) ranks.set(all, matches(all, word));
      const own = ranks.get(all);
      if (!own) return;
      const start = isNode ? scopes.count : 0;
      const end = isNode ? score.length : start + scopes.count;
      for (let at = start; at < end; at++) {
        const value = worth[own[column ? column[at - start] : at - start]];
        if (value > found[at]) found[at] = value;
      }
    };
    look("name", false, named, texts, scopes.name);
    look("class", false, done, texts, scopes.className);
    look("in", false, word.key ? [0, 5, 5, 8] : [0, 20, 30, 100], paths);
    look("op", true, done, texts, nodes.op);
    look("name", true, named, texts, nodes.name);
    look("dtype", true, typed, texts, nodes.dtype);
    look("shape", true, typed, texts, nodes.shape);
    look("class", true, [0, 6, 8, 10], texts, nodes.scope.map((scope) => scopes.className[scope]));
    look("in", true, [0, 5, 5, 8], paths, nodes.scope);
    look("id", true, [0, 30, 45, 100], ids);
    if (details) look("source", true, [0, 10, 14, 20], details.sources.map((source) => source.toLowerCase()), details.sourceOf);
    for (let at = 0; at < score.length; at++) score[at] = found[at] && score[at] && score[at] + found[at];
  }
  return best(score, most).map((at) => (at < scopes.count ? { node: -1, scope: at } : { node: at - scopes.count, scope: -1 }));
}

/** The places of the highest scores, the first of equal ones first. A frequent word hits every node: sorting all would take longer than finding them. */
function best(score: Int16Array, most: number): number[] {
  const places: number[][] = [];
  score.forEach((own, at) => {
    if (own && (places[own] ??= []).length < most) places[own].push(at);
  });
  return places.reverse().flat().slice(0, most);
}

/** By text 3 where it is the word, 2 where it or a part of it behind a dot starts with it, 1 where it is in it; null where it is in none. */
function matches(texts: readonly string[], { text: word, key, expression }: Word): Uint8Array | null {
  // Of "in:" whole parts of a path must be the words.
  const whole = `.${word}.`;
  const part = `.${word}`;
  const rank = (text: string): number => {
    if (expression) {
      const match = expression.exec(text);
      return match === null ? 0 : match[0] === text ? 3 : match.index === 0 ? 2 : 1;
    }
    if (key === "in") return `.${text}.`.includes(whole) ? 3 : 0;
    const at = text.indexOf(word);
    return at < 0 ? 0 : text === word ? 3 : at === 0 || text.includes(part) ? 2 : 1;
  };
  const ranks = Uint8Array.from(texts, rank);
  return ranks.some(Boolean) ? ranks : null;
}
