/** The choices of a reader, and the link that restores them: `#node=…&open=…`. */

import type { Model } from "./data/model.ts";
import type { ShownScopes, Switches } from "./graph/shown.ts";

export interface Selected {
  readonly kind: "none" | "node" | "module" | "cut" | "change";
  /** A module is a shown scope; -1 for nothing. */
  readonly at: number;
}

export const nothing: Selected = { kind: "none", at: -1 };

/** The ways that can be followed from the selected node, with their keys. */
export const trails = [
  ["path", "l"],
  ["ancestors", "a"],
  ["descendants", "d"],
] as const;
export type Trail = "" | (typeof trails)[number][0];

/** The switches: the word of each in a link, its name, its key, its words, and whether it is on at first. */
export const switches = [
  ["layers", "layers", "y", "layers", true],
  ["shapes", "hideRearranging", "h", "hide shape operations", true],
  ["across", "across", "j", "left to right", false],
  ["accumulators", "dropAccumulators", "g", "hide gradient accumulators", true],
  ["rollup", "rollUp", "r", "draw equal layers and steps once", false],
  ["inline", "inlineParameters", "i", "parameters in their operation", true],
] as const;

export interface State {
  readonly selected: Selected;
  /** Shown scopes. */
  readonly opened: ReadonlySet<number>;
  /** The name of a colouring. */
  readonly colour: string;
  readonly switches: Switches;
  /** The way that is followed from the selected node; the rest fades. */
  readonly trail: Trail;
  /** Before and after of a diff beside each other. */
  readonly sides: boolean;
}

/** A list of opened modules that would be longer is written as ranges of numbers. */
const mostText = 1500;

export function readSwitches(isOn: (word: string, byDefault: boolean) => boolean): Switches {
  return Object.fromEntries(switches.map(([word, name, , , byDefault]) => [name, isOn(word, byDefault)])) as unknown as Switches;
}

/** The key of a selection in a link, and the search for such a key: -1 if the page does not have it. */
function naming(model: Model, scopes: ShownScopes) {
  const numbered = ({ length }: readonly unknown[]) =>
    [String, (text: string) => (/^\d+$/.test(text) && Number(text) < length ? Number(text) : -1)] as const;
  return {
    node: [model.nodes.id, model.nodes.find],
    module: [scopes.key, scopes.find],
    cut: numbered(model.cuts),
    change: numbered(model.changes),
  } as const;
}

export function hashOf({ selected: { kind, at }, opened, colour, switches: on, trail, sides }: State, model: Model, scopes: ShownScopes): string {
  const all = [
    [kind, kind === "none" ? "" : encodeForLink(naming(model, scopes)[kind][0](at))],
    ["open", openText(opened, scopes)],
    ["colour", encodeForLink(colour)],
    ["on", switches.flatMap(([word, name]) => (on[name] ? [word] : [])).join(",")],
    ["follow", trail],
    ["sides", sides ? "1" : ""],
  ];
  // That nothing is open, or on, is something to say.
  return `#${all
    .filter(([key, value]) => value !== "" || key[0] === "o")
    .map((both) => both.join("="))
    .join("&")}`;
}

function parseHash(hash: string): ReadonlyMap<string, string | undefined> {
  return new Map(
    hash
      .replace(/^#/, "")
      .split("&")
      .map((part) => part.split(/=(.*)/s) as [string, string]),
  );
}

/** The switches come first, since the scopes that can be opened depend on them. */
export function switchesOf(hash: string, otherwise: Switches): Switches {
  const on = parseHash(hash).get("on")?.split(",");
  return on === undefined ? otherwise : readSwitches((word) => on.includes(word));
}

/** The state of a link; parts that it lacks, or that belong to another graph, stay as in `otherwise`. */
export function stateOf(hash: string, model: Model, scopes: ShownScopes, otherwise: State): State {
  const said = parseHash(hash);
  const open = said.get("open");
  const selected = Object.entries(naming(model, scopes)).map(([kind, [, find]]) => {
    const name = said.get(kind);
    return { kind, at: name === undefined ? -1 : find(read(name)) } as Selected;
  });
  return {
    selected: selected.find(({ at }) => at >= 0) ?? nothing,
    opened: open === undefined ? otherwise.opened : parseOpened(open, scopes),
    colour: read(said.get("colour") ?? otherwise.colour),
    switches: switchesOf(hash, otherwise.switches),
    trail: trails.find(([trail]) => trail === said.get("follow"))?.[0] ?? "",
    sides: said.get("sides") === "1",
  };
}

/** The innermost opened modules by path, for those around them are opened too; `*` for all; `@1-5,9` where that is too long. */
function openText(opened: ReadonlySet<number>, { count, parent, key }: ShownScopes): string {
  if (opened.size > 3 && opened.size >= count - 1) return "*";
  const all = [...opened].filter((scope) => scope > 0).sort((one, other) => one - other);
  const holders = new Set(all.map((scope) => parent[scope]));
  const inner = all.filter((scope) => !holders.has(scope));
  holders.delete(0);
  if ([...holders].every((scope) => opened.has(scope)) && inner.length < mostText / 2) {
    const paths = inner.map((scope) => encodeForLink(key(scope))).sort();
    if (paths.join().length <= mostText) return paths.join();
  }
  const ranges: [first: number, last: number][] = [];
  for (const scope of all) {
    const range = ranges.at(-1);
    if (range?.[1] === scope - 1) range[1] = scope;
    else ranges.push([scope, scope]);
  }
  return `@${ranges.map((range) => [...new Set(range)].join("-")).join()}`;
}

function parseOpened(text: string, { count, parent, find }: ShownScopes): Set<number> {
  const opened = new Set<number>();
  const isNumbers = text === "*" || text.startsWith("@");
  for (const part of (text === "*" ? `1-${count}` : text.replace(/^@/, "")).split(",")) {
    const [first, last = first] = part.split("-").map(Number);
    if (isNumbers) for (let scope = Math.max(0, first); scope <= Math.min(last, count - 1); scope++) opened.add(scope);
    else for (let at = find(read(part)); at > 0 && !opened.has(at); at = parent[at]) opened.add(at);
  }
  return opened;
}

/** The opened modules of other switches, as far as they are there. */
export function carryOver(opened: ReadonlySet<number>, before: ShownScopes, now: ShownScopes): Set<number> {
  return new Set([...opened].map((scope) => now.find(before.key(scope))).filter((scope) => scope >= 0));
}

/** Encodes as little as a link allows, so that names stay readable. */
function encodeForLink(text: string): string {
  // A lone surrogate has no place in an address.
  return encodeURIComponent(text.replace(/\p{Surrogate}/gu, "\ufffd"))
    .replace(/%(2F|3A|40)/g, decodeURIComponent)
    .replace(/^@/, "%40");
}

function read(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
