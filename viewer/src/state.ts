/** What a reader has chosen, and the link that brings it back: `#node=…&open=…`. */

import type { Model } from "./data/model.ts";
import type { ShownScopes, Switches } from "./graph/shown.ts";

export type Selected = { readonly kind: "none" } | { readonly kind: "node" | "module" | "cut" | "change"; readonly at: number };

export const trails = ["", "ancestors", "descendants", "path"] as const;
export type Trail = (typeof trails)[number];

export interface State {
  /** A module is a scope of what is shown, as the opened ones are. */
  readonly selected: Selected;
  readonly opened: ReadonlySet<number>;
  /** The name of a colouring. */
  readonly colour: string;
  readonly switches: Switches;
  /** What of the selected node is followed; the rest fades. */
  readonly trail: Trail;
  /** Before and after of a diff beside each other. */
  readonly sides: boolean;
}

export const nothing: Selected = { kind: "none" };

/** The word of each switch in a link, and in the page. */
export const switchNames = {
  shapes: ["hideRearranging", "Hide shape operations"],
  accumulators: ["dropAccumulators", "Drop accumulators"],
  rollup: ["rollUp", "Roll up equal layers"],
  inline: ["inlineParameters", "Parameters in their operation"],
} as const;

/** A list of opened modules that would be longer is written as ranges of numbers. */
const mostText = 1500;

export function hashOf(state: State, model: Model, scopes: ShownScopes): string {
  const parts: string[] = [];
  const { selected } = state;
  if (selected.kind === "node") parts.push(`node=${written(model.nodes.id(selected.at))}`);
  else if (selected.kind === "module") parts.push(`module=${written(scopes.key(selected.at))}`);
  else if (selected.kind !== "none") parts.push(`${selected.kind}=${selected.at}`);
  parts.push(`open=${openText(state.opened, scopes)}`);
  if (state.colour !== "") parts.push(`colour=${written(state.colour)}`);
  parts.push(
    `on=${Object.entries(switchNames)
      .filter(([, [key]]) => state.switches[key])
      .map(([name]) => name)
      .join(",")}`,
  );
  if (state.trail !== "") parts.push(`follow=${state.trail}`);
  if (state.sides) parts.push("sides=1");
  return `#${parts.join("&")}`;
}

function saidIn(hash: string): Map<string, string> {
  const said = new Map<string, string>();
  for (const part of hash.replace(/^#/, "").split("&")) {
    const at = part.indexOf("=");
    if (at > 0) said.set(part.slice(0, at), part.slice(at + 1));
  }
  return said;
}

/** The switches come first, for what can be opened depends on them. */
export function switchesOf(hash: string, otherwise: Switches): Switches {
  const said = saidIn(hash).get("on");
  if (said === undefined) return otherwise;
  const on = new Set(said.split(","));
  return Object.fromEntries(Object.entries(switchNames).map(([name, [key]]) => [key, on.has(name)])) as unknown as Switches;
}

/** The state of a link; what it does not say, or says of another graph, stays as it is in `otherwise`. */
export function stateOf(hash: string, model: Model, scopes: ShownScopes, otherwise: State): State {
  const said = saidIn(hash);
  const open = said.get("open");
  const trail = said.get("follow") ?? "";
  const colour = said.get("colour");
  return {
    selected: selectedOf(said, model, scopes),
    opened: open === undefined ? otherwise.opened : openedOf(open, scopes),
    colour: colour === undefined ? otherwise.colour : read(colour),
    switches: switchesOf(hash, otherwise.switches),
    trail: (trails as readonly string[]).includes(trail) ? (trail as Trail) : "",
    sides: said.get("sides") === "1",
  };
}

/** What a link asks for, as far as the page has it: a colouring of another graph is left out, and both sides of what is no diff. */
export function had(state: State, otherwise: State, colours: readonly (readonly [name: string, words: string])[], isDiff: boolean): State {
  const isColour = colours.some(([name]) => name === state.colour);
  return { ...state, colour: isColour ? state.colour : otherwise.colour, sides: state.sides && isDiff };
}

function selectedOf(said: ReadonlyMap<string, string>, model: Model, scopes: ShownScopes): Selected {
  const node = said.get("node");
  if (node !== undefined) {
    const at = model.nodes.find(read(node));
    return at >= 0 ? { kind: "node", at } : nothing;
  }
  const module = said.get("module");
  if (module !== undefined) {
    const at = scopes.find(read(module));
    return at < 0 ? nothing : { kind: "module", at };
  }
  for (const [kind, all] of [
    ["cut", model.cuts],
    ["change", model.changes],
  ] as const) {
    const at = Number(said.get(kind));
    if (said.has(kind) && Number.isInteger(at) && at >= 0 && at < all.length) return { kind, at };
  }
  return nothing;
}

/** The innermost opened modules by path, for those around them are opened too; `*` for all; `@1-5,9` where that is too long. */
function openText(opened: ReadonlySet<number>, scopes: ShownScopes): string {
  if (opened.size > 3 && opened.size >= scopes.count - 1) return "*";
  const inner = new Set(opened);
  let isWhole = true;
  for (const scope of opened) {
    if (scope <= 0) continue;
    const parent = scopes.parent[scope];
    inner.delete(parent);
    if (parent > 0 && !opened.has(parent)) isWhole = false;
  }
  const paths: string[] = [];
  let length = 0;
  for (const scope of inner) {
    if (scope <= 0) continue;
    paths.push(written(scopes.key(scope)));
    length += paths[paths.length - 1].length + 1;
    if (length > mostText) break;
  }
  return isWhole && length <= mostText ? paths.sort().join(",") : `@${ranges([...opened])}`;
}

function ranges(numbers: number[]): string {
  const parts: string[] = [];
  numbers.sort((one, other) => one - other);
  for (let at = 0; at < numbers.length;) {
    let end = at;
    while (end + 1 < numbers.length && numbers[end + 1] === numbers[end] + 1) end++;
    parts.push(end === at ? `${numbers[at]}` : `${numbers[at]}-${numbers[end]}`);
    at = end + 1;
  }
  return parts.join(",");
}

function openedOf(text: string, scopes: ShownScopes): Set<number> {
  const opened = new Set<number>();
  if (text === "*") for (let scope = 1; scope < scopes.count; scope++) opened.add(scope);
  else if (text.startsWith("@")) {
    for (const part of text.slice(1).split(",")) {
      const [first, last] = part.split("-").map(Number);
      for (let scope = Math.max(0, first); scope <= Math.min(last ?? first, scopes.count - 1); scope++) opened.add(scope);
    }
  } else if (text !== "") {
    for (const part of text.split(",")) {
      for (let at = scopes.find(read(part)); at > 0 && !opened.has(at); at = scopes.parent[at]) opened.add(at);
    }
  }
  return opened;
}

/** The opened modules of other switches, as far as they are there. */
export function carried(opened: ReadonlySet<number>, before: ShownScopes, now: ShownScopes): Set<number> {
  const kept = new Set<number>();
  for (const scope of opened) {
    const found = now.find(before.key(scope));
    if (found >= 0) kept.add(found);
  }
  return kept;
}

/** Encoded as little as a link allows, so that it reads as what it names. */
function written(text: string): string {
  // A lone surrogate has no place in an address.
  return encodeURIComponent(text.replace(/\p{Surrogate}/gu, "\ufffd"))
    .replace(/%2F/g, "/")
    .replace(/%3A/g, ":")
    .replace(/%40/g, "@")
    .replace(/^@/, "%40");
}

function read(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
