/** What search looks in, in lower case; made when it is first asked for. */
import type { DetailsOfAll, Model } from "../data/model.ts";

export interface Index {
  readonly texts: readonly string[];
  /** By scope its path. */
  readonly paths: readonly string[];
  /** All ids with a line feed after each, and where each starts; one more for the end. */
  readonly ids: string;
  readonly idStarts: Int32Array;
}

export interface Sources {
  readonly texts: readonly string[];
  readonly of: Int32Array;
}

const known = new WeakMap<Model, Index>();
const knownSources = new WeakMap<DetailsOfAll, Sources>();

/** Made once for each model; a page may ask for it before the first search, when it is idle. */
export function indexOf(model: Model): Index {
  let index = known.get(model);
  if (!index) known.set(model, (index = made(model)));
  return index;
}

function made({ texts, scopes, nodes }: Model): Index {
  const lower = texts.map((text) => text.toLowerCase());
  const paths: string[] = [""];
  for (let scope = 1; scope < scopes.count; scope++) {
    const above = paths[scopes.parent[scope]];
    const name = lower[scopes.name[scope]];
    paths.push(above ? `${above}.${name}` : name);
  }
  const ids: string[] = [];
  const idStarts = new Int32Array(nodes.count + 1);
  let at = 0;
  for (let node = 0; node < nodes.count; node++) {
    // The length of some letters changes with their case.
    const id = nodes.id(node).toLowerCase();
    ids.push(id);
    idStarts[node] = at;
    at += id.length + 1;
  }
  idStarts[nodes.count] = at;
  return { texts: lower, paths, ids: `${ids.join("\n")}\n`, idStarts };
}

export function sourcesOf(model: Model, details: DetailsOfAll): Sources {
  let sources = knownSources.get(details);
  if (sources) return sources;
  const of = new Int32Array(model.nodes.count);
  const places = new Map<string, number>();
  const texts: string[] = [];
  for (let node = 0; node < of.length; node++) {
    const source = details.source(node);
    let place = places.get(source);
    if (place === undefined) {
      places.set(source, (place = texts.length));
      texts.push(source.toLowerCase());
    }
    of[node] = place;
  }
  knownSources.set(details, (sources = { texts, of }));
  return sources;
}
