/** What is left of a graph by the switches of the page, with rewired edges. */
import { flag, roles } from "../data/model.ts";
import type { Model } from "../data/model.ts";
import { parts } from "./parts.ts";
import { runs } from "./runs.ts";
import { roll } from "./stacks.ts";
import { gone, rewired } from "./wiring.ts";
import type { Wires } from "./wiring.ts";

export interface Switches {
  readonly hideRearranging: boolean;
  readonly dropAccumulators: boolean;
  readonly rollUp: boolean;
  /** Write a parameter into the box of the one operation that takes it. */
  readonly inlineParameters: boolean;
}

/**
 * Nodes keep their numbers of the model. Scopes keep theirs too; the later parts of a module that the flow enters several times,
 * and runs of very many children, come after them.
 */
export interface Shown {
  readonly model: Model;
  readonly switches: Switches;
  /** By node the node that stands for it: itself, the one whose value passes through it, its equal of the first layer; or -1. */
  readonly instead: Int32Array;
  /** By node the node in whose box it is written, itself for most; -1 where it is not left. */
  readonly host: Int32Array;
  /** By node the scope that holds its box, -1 where it is not left. */
  readonly scope: Int32Array;
  readonly scopes: ShownScopes;
  /** The edges between nodes with boxes of their own. */
  readonly wires: Wires;
  /** What each layer of a rolled-up stack hands to the next, as pairs of nodes that are left. */
  readonly rounds: readonly (readonly [from: number, to: number])[];
}

export interface ShownScopes {
  readonly count: number;
  readonly parent: Int32Array;
  /** The scope of the model that it is, or is part of, or lies in (a run). */
  readonly of: Int32Array;
  /** Its number among the parts of its module, from 0, and how many there are. */
  readonly part: Int32Array;
  readonly parts: Int32Array;
  /** How many equal layers it stands for. */
  readonly times: Int32Array;
  /** Whether it is a run of children. */
  isRun(scope: number): boolean;
  /** The last part of its path: "3", "0–11" of equal layers, "relu#2" of a second part, "1–500" of a run. */
  name(scope: number): string;
  /** What a link calls it, the same for every state of the switches where it can be. */
  key(scope: number): string;
  /** The scope of a key, -1 where there is none. */
  find(key: string): number;
}

export function shown(model: Model, switches: Switches): Shown {
  const { instead, wires } = rewired(model, gone(model, switches.hideRearranging, switches.dropAccumulators));
  const { times, rounds } = switches.rollUp
    ? roll(model, instead, wires)
    : { times: new Int32Array(model.scopes.count).fill(1), rounds: [] };
  const count = model.nodes.count;
  const left = new Uint8Array(count);
  for (let node = 0; node < count; node++) left[node] = instead[node] === node ? 1 : 0;
  const host = hosts(model, left, wires, switches.inlineParameters);
  const boxed = new Uint8Array(count);
  for (let node = 0; node < count; node++) boxed[node] = host[node] === node ? 1 : 0;
  // Edges of what is written into another box are gone with it.
  let kept = 0;
  for (let wire = 0; wire < wires.count; wire++) {
    if (!boxed[wires.from[wire]]) continue;
    wires.from[kept] = wires.from[wire];
    wires.to[kept] = wires.to[wire];
    wires.kind[kept] = wires.kind[wire];
    wires.slot[kept] = wires.slot[wire];
    wires.status[kept++] = wires.status[wire];
  }
  wires.count = kept;
  const { scope, of, parent, part } = parts(model, boxed, wires);
  const runsFrom = parent.length;
  const made = runs(model, scope, boxed, parent, wires);
  for (let node = 0; node < count; node++) if (left[node] && !boxed[node]) scope[node] = scope[host[node]];
  for (const run of made) {
    of.push(of[run.parent]);
    part.push(0);
  }
  const scopes = described(model, Int32Array.from(parent), Int32Array.from(of), Int32Array.from(part), times, runsFrom, made);
  return { model, switches, instead, host, scope, scopes, wires, rounds };
}

const bufferRole = roles.indexOf("buffer");
const inlineRoles = [roles.indexOf("parameter"), bufferRole];
const functionRole = roles.indexOf("function");

/** The node in whose box each is written: a parameter of one operation in that operation's, unless a diff or a cut says something of it. */
function hosts(model: Model, left: Uint8Array, wires: Wires, inline: boolean): Int32Array {
  const { role, status, flags, scope, count } = model.nodes;
  const host = new Int32Array(count).fill(-1);
  for (let node = 0; node < count; node++) if (left[node]) host[node] = node;
  if (!inline) return host;
  const consumer = new Int32Array(count).fill(-1);
  const fed = new Uint8Array(count);
  for (let wire = 0; wire < wires.count; wire++) {
    const [from, to] = [wires.from[wire], wires.to[wire]];
    fed[to] = 1;
    consumer[from] = consumer[from] === -1 || consumer[from] === to ? to : -2;
    if (wires.status[wire]) consumer[from] = -2;
  }
  // No edge leads to a buffer that an operation only keeps; where its module has one operation, it is that one.
  const only = new Int32Array(model.scopes.count).fill(-1);
  for (let node = 0; node < count; node++) {
    if (left[node] && role[node] === functionRole) only[scope[node]] = only[scope[node]] === -1 ? node : -2;
  }
  for (let node = 0; node < count; node++) if (left[node] && role[node] === bufferRole && consumer[node] === -1) consumer[node] = only[scope[node]];
  for (const cut of model.cuts) for (const node of [cut.at, cut.into]) if (node >= 0) consumer[node] = -2;
  for (let node = 0; node < count; node++) {
    const taker = consumer[node];
    if (!left[node] || taker < 0 || fed[node] || !inlineRoles.includes(role[node])) continue;
    if (role[taker] === functionRole && status[taker] === status[node] && !(flags[node] & flag.output)) host[node] = taker;
  }
  return host;
}

function described(
  model: Model,
  parent: Int32Array,
  of: Int32Array,
  part: Int32Array,
  modelTimes: Int32Array,
  runsFrom: number,
  made: readonly { from: number; to: number }[],
): ShownScopes {
  const { texts, scopes } = model;
  const count = parent.length;
  const last = new Map<string, number>();
  const partsOf = new Int32Array(count).fill(1);
  const holder = (scope: number): string => {
    let above = parent[scope];
    while (above >= runsFrom) above = parent[above];
    return `${above} ${of[scope]}`;
  };
  for (let scope = 1; scope < runsFrom; scope++) if (part[scope]) last.set(holder(scope), Math.max(part[scope] + 1, last.get(holder(scope)) ?? 0));
  if (last.size) for (let scope = 1; scope < runsFrom; scope++) partsOf[scope] = last.get(holder(scope)) ?? 1;
  const times = new Int32Array(count).fill(1);
  for (let scope = 0; scope < runsFrom; scope++) times[scope] = modelTimes[of[scope]];
  let keys: Map<string, number> | undefined;

  function plain(scope: number): string {
    if (scope >= runsFrom) return `${made[scope - runsFrom].from}–${made[scope - runsFrom].to}`;
    return pathOf(scope) + (part[scope] ? `#${part[scope] + 1}` : "");
  }
  /** The path from the scope that holds it: what stood in a container between them is named with it. */
  function pathOf(scope: number): string {
    let holder = parent[scope];
    while (holder >= runsFrom) holder = parent[holder];
    const way: string[] = [];
    for (let above = of[scope]; above > 0 && above !== of[holder]; above = scopes.parent[above]) way.push(texts[scopes.name[above]]);
    return way.reverse().join(".");
  }
  function name(scope: number): string {
    const text = plain(scope);
    const number = times[scope] === 1 || scope >= runsFrom ? null : /\d+$/.exec(text);
    return number ? `${text}–${Number(number[0]) + times[scope] - 1}` : text;
  }
  function key(scope: number): string {
    const way: string[] = [];
    // A module is called the same whether it lies in a run or not.
    for (let above = scope; above > 0; above = parent[above]) if (above === scope || above < runsFrom) way.push(plain(above));
    return way.reverse().join(".");
  }
  function find(wanted: string): number {
    if (!keys) {
      keys = new Map([["", 0]]);
      for (let scope = 1; scope < count; scope++) keys.set(key(scope), scope);
    }
    return keys.get(wanted) ?? -1;
  }
  return { count, parent, of, part, parts: partsOf, times, isRun: (scope) => scope >= runsFrom, name, key, find };
}
