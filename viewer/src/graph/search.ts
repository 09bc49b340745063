/** Nodes and modules by words: all of them must be found, in any field or in one that is named ("op:mm in:layers.3"). */
import type { DetailsOfAll, Model } from "../data/model.ts";
import { indexOf } from "./haystack.ts";
import type { Index } from "./haystack.ts";
import { fieldsOf, parsed } from "./query.ts";
import type { Word } from "./query.ts";

/** A node, or a module (`node` -1), the other is -1. */
export interface Hit {
  readonly node: number;
  readonly scope: number;
}

export const mostHits = 500;

/** What a match is worth: none, somewhere, at a start, as a whole. */
const worth = {
  name: [0, 40, 60, 100],
  op: [0, 35, 50, 95],
  type: [0, 12, 16, 50],
  id: [0, 30, 45, 100],
  source: [0, 10, 14, 20],
  path: [0, 5, 5, 8],
  class: [0, 6, 8, 10],
} as const;

/** The best hits first, modules before nodes that fit as well; at most `most`. */
export function search(model: Model, details: DetailsOfAll | null, words: string, most = mostHits): Hit[] {
  const asked = parsed(words);
  if (!asked.length) return [];
  const index = indexOf(model);
  const { nodes, scopes } = model;
  const score = new Int16Array(nodes.count).fill(1);
  const ofScope = new Int16Array(scopes.count).fill(1);
  ofScope[0] = 0;
  for (const word of asked) {
    const fields = fieldsOf(word);
    const inTexts = matches(index.texts, word);
    const inPaths = fields.has("in") ? pathMatches(index, word) : undefined;
    scoreScopes(model, ofScope, word, inTexts, inPaths);
    scoreNodes(model, index, details, score, word, inTexts, inPaths);
  }
  return best(score, ofScope, most);
}

/** By text 3 where it is the word, 2 where it or a part of it behind a dot starts with it, 1 where it is in it. */
function matches(texts: readonly string[], { text: word, expression }: Word): Uint8Array {
  if (expression) return Uint8Array.from(texts, (text) => valueOf(expression.exec(text)));
  const found = new Uint8Array(texts.length);
  const part = `.${word}`;
  for (let place = 0; place < texts.length; place++) {
    const text = texts[place];
    const at = text.indexOf(word);
    if (at < 0) continue;
    if (text.length === word.length) found[place] = 3;
    else found[place] = at === 0 || text.includes(part) ? 2 : 1;
  }
  return found;
}

function valueOf(match: RegExpExecArray | null): number {
  return match === null ? 0 : match[0] === match.input ? 3 : match.index === 0 ? 2 : 1;
}

/** By scope: of "in:" whole parts of its path must be the words; else they may stand anywhere in it. */
function pathMatches({ paths }: Index, word: Word): Uint8Array {
  const { text, key, expression } = word;
  if (key !== "in" || expression) return matches(paths, word);
  const whole = `.${text}.`;
  return Uint8Array.from(paths, (path) => (`.${path}.`.includes(whole) ? 3 : 0));
}

function scoreScopes(model: Model, score: Int16Array, word: Word, inTexts: Uint8Array, inPaths: Uint8Array | undefined): void {
  const fields = fieldsOf(word);
  const { name, className, count } = model.scopes;
  for (let scope = 1; scope < count; scope++) {
    if (!score[scope]) continue;
    let found = 0;
    if (fields.has("name")) found = Math.max(found, worth.name[inTexts[name[scope]]]);
    if (fields.has("class")) found = Math.max(found, worth.op[inTexts[className[scope]]]);
    if (inPaths) found = Math.max(found, word.key === "in" ? worth.path[inPaths[scope]] : worth.name[inPaths[scope]] / 2);
    if (fields.has("id")) found = Math.max(found, inPaths?.[scope] === 3 ? worth.id[3] : 0);
    score[scope] = found ? score[scope] + found : 0;
  }
}

function scoreNodes(
  model: Model,
  index: Index,
  details: DetailsOfAll | null,
  score: Int16Array,
  word: Word,
  inTexts: Uint8Array,
  inPaths: Uint8Array | undefined,
): void {
  const fields = fieldsOf(word);
  const { count, op, name, dtype, shape, scope } = model.nodes;
  const { className } = model.scopes;
  const inIds = fields.has("id") ? idMatches(index, word, count) : undefined;
  const inSources =
    details && fields.has("source")
      ? matches(
          details.sources.map((source) => source.toLowerCase()),
          word,
        )
      : undefined;
  const [byOp, byName, byDtype, byShape, byClass] = (["op", "name", "dtype", "shape", "class"] as const).map((key) => fields.has(key));
  for (let node = 0; node < count; node++) {
    if (!score[node]) continue;
    let found = 0;
    if (byOp) found = Math.max(found, worth.op[inTexts[op[node]]]);
    if (byName) found = Math.max(found, worth.name[inTexts[name[node]]]);
    if (byDtype) found = Math.max(found, worth.type[inTexts[dtype[node]]]);
    if (byShape) found = Math.max(found, worth.type[inTexts[shape[node]]]);
    if (byClass) found = Math.max(found, worth.class[inTexts[className[scope[node]]]]);
    if (inPaths) found = Math.max(found, worth.path[inPaths[scope[node]]]);
    if (inIds) found = Math.max(found, worth.id[inIds[node]]);
    if (inSources) found = Math.max(found, worth.source[inSources[details!.sourceOf[node]]]);
    score[node] = found ? score[node] + found : 0;
  }
}

/** By node how its id has the word: the ids are one text, each between line feeds. */
function idMatches({ ids, idStarts }: Index, { text: word, expression }: Word, count: number): Uint8Array {
  const found = new Uint8Array(count);
  if (expression) return found.map((_, node) => valueOf(expression.exec(ids.slice(idStarts[node], idStarts[node + 1] - 1))));
  for (let node = 0, at = ids.indexOf(word); at >= 0; at = ids.indexOf(word, idStarts[node + 1])) {
    while (idStarts[node + 1] <= at) node++;
    const isWhole = idStarts[node + 1] - 1 - at === word.length;
    found[node] = at > idStarts[node] ? 1 : isWhole ? 3 : 2;
  }
  return found;
}

function best(score: Int16Array, ofScope: Int16Array, most: number): Hit[] {
  const counts = new Int32Array(2 ** 15);
  for (const own of score) counts[own]++;
  for (const own of ofScope) counts[own]++;
  let least = counts.length - 1;
  for (let sum = counts[least]; least > 1 && sum < most; sum += counts[least]) least--;
  least = Math.max(1, least);
  const found: { score: number; node: number; scope: number }[] = [];
  for (let scope = 1; scope < ofScope.length; scope++) if (ofScope[scope] >= least) found.push({ score: ofScope[scope], node: -1, scope });
  for (let node = 0; node < score.length && found.length < 4 * most; node++) {
    if (score[node] > least) found.push({ score: score[node], node, scope: -1 });
  }
  for (let node = 0; node < score.length && found.length < 4 * most; node++) {
    if (score[node] === least) found.push({ score: least, node, scope: -1 });
  }
  found.sort((one, other) => other.score - one.score);
  return found.slice(0, most).map(({ node, scope }) => ({ node, scope }));
}
