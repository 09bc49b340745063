/** What search looks in, in lower case; made when it is first asked for. */
import type { Model } from "../data/model.ts";

export interface Index {
  readonly texts: readonly string[];
  /** By scope its path. */
  readonly paths: readonly string[];
  /** All ids with a line feed after each, and where each starts; one more for the end. */
  readonly ids: string;
  readonly idStarts: Int32Array;
}

const known = new WeakMap<Model, Index>();

/** Made once for each model; a page may ask for it before the first search, when it is idle. */
export function indexOf(model: Model): Index {
  let index = known.get(model);
  if (!index) known.set(model, (index = made(model)));
  return index;
}

function made({ texts, scopes, nodes }: Model): Index {
  const lower = (text: string): string => text.toLowerCase();
  // The length of some letters changes with their case.
  const ids = Array.from(nodes.op, (_, node) => `${lower(nodes.id(node))}\n`);
  const idStarts = new Int32Array(nodes.count + 1);
  ids.forEach((id, node) => (idStarts[node + 1] = idStarts[node] + id.length));
  return { texts: texts.map(lower), paths: Array.from(scopes.name, (_, scope) => lower(scopes.path(scope))), ids: ids.join(""), idStarts };
}
