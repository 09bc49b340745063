/** The part of a graph that the switches of the page leave visible, with rewired edges. */
import { flag, roles } from "../data/model.ts";
import type { Model, StepScope } from "../data/model.ts";
import { splitCalls } from "./calls.ts";
import { parts } from "./parts.ts";
import { runs } from "./runs.ts";
import { layersOf, roll } from "./stacks.ts";
import { findHidden, keep, rewire } from "./wiring.ts";
import type { Wires } from "./wiring.ts";

export interface Switches {
  /** A module that holds no other one is one box with its parameters, and shapes stand on the lines. */
  readonly layers: boolean;
  readonly hideRearranging: boolean;
  /** The flow runs from left to right. */
  readonly across: boolean;
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
  /** The edges between nodes with boxes of their own, and from lost modules, which count on after all nodes. */
  readonly wires: Wires;
  /** Modules without a node in which a parameter gets no gradient. */
  readonly lost: ReadonlySet<number>;
}

export interface ShownScopes {
  readonly count: number;
  readonly parent: Int32Array;
  /** The scope of the model that it is, or is part of, or lies in (a run). */
  readonly of: Int32Array;
  /** Its number among the parts of its module, from 0, and how many there are. */
  readonly part: Int32Array;
  readonly parts: Int32Array;
  /** 1 where operations of the forward are in it, 2 of the backward, 3 of both. */
  readonly phases: Uint8Array;
  /** How many equal layers it stands for. */
  readonly times: Int32Array;
  /** Whether it is no module, but a run of children or a step. */
  isRun(scope: number): boolean;
  /** The last part of its path: "3", "0–11" of equal layers, "relu#2" of a second part, "1–500" of a run. */
  name(scope: number): string;
  /** Its key in a link, the same for every state of the switches if possible. */
  key(scope: number): string;
  /** The scope of a key, -1 where there is none. */
  find(key: string): number;
  /** The scope that is drawn for another one: itself, or that of the equal layer or of the step which is drawn for all. */
  drawn(scope: number): number;
}

export function chooseShown(model: Model, switches: Switches): Shown {
  const { instead, wires } = rewire(model, findHidden(model, switches.hideRearranging, switches.dropAccumulators));
  const steps = switches.rollUp ? model.steps : [];
  if (switches.rollUp) roll(model, instead, wires);
  const { count } = model.nodes;
  const isItself = (own: number, node: number): number => (own === node ? 1 : 0);
  const left = instead.map(isItself);
  const host = hosts(model, left, wires, switches);
  const boxed = host.map(isItself);
  // Edges of what is written into another box are gone with it.
  keep(wires, (wire) => boxed[wires.from[wire]] === 1);
  const found = parts(model, steps, boxed, wires);
  splitCalls(model, found, wires);
  const { scope, of, parent, part } = found;
  const runsFrom = parent.length;
  const made = runs(model, scope, boxed, parent, wires);
  for (let node = 0; node < count; node++) if (left[node] && !boxed[node]) scope[node] = scope[host[node]];
  for (const run of made) {
    of.push(of[run.parent]);
    part.push(0);
  }
  const scopes = describeModules(model, switches.rollUp, scope, parent, of, part, runsFrom, made);
  const equal = (own: number): number => (switches.rollUp ? model.scopes.alike[own] : own);
  const lost = new Set(model.lost[0].map(equal));
  for (const own of lost) if (!lost.has(scopes.parent[own])) scopes.parent[own] = scopes.drawn(scopes.parent[own]);
  const ends = model.lost[1].map(([own, into]) => [count + equal(own), host[instead[into]] ?? -1]).filter(([, into]) => into >= 0);
  return { model, switches, instead, host, scope, scopes, lost, wires: ends.length ? withLost(wires, ends) : wires };
}

function withLost({ count, from, to, by, kind, status }: Wires, ends: readonly (readonly number[])[]): Wires {
  const grown = (column: Int32Array | Uint8Array, more: (end: readonly number[]) => number) => Int32Array.from([...column.subarray(0, count), ...ends.map(more)]);
  return { count: count + ends.length, from: grown(from, ([own]) => own), to: grown(to, ([, into]) => into), by: grown(by, () => -1), kind: grown(kind, () => cutKind), status: grown(status, () => 0) };
}

/** The kind of a line along which no gradient flows. */
export const cutKind = -1;

/** Tensors that an operation saves although they get no gradient. */
const [parameterRole, inputRole] = [roles.indexOf("parameter"), roles.indexOf("input")];
const besideRoles = [roles.indexOf("buffer"), inputRole];
const mostInputs = 12;
const inlineRoles = [parameterRole, ...besideRoles];
const functionRole = roles.indexOf("function");

/** The node in whose box each is written: a parameter of one operation in that operation's, unless a diff or a cut says something of it. */
function hosts(model: Model, left: Int32Array, wires: Wires, { inlineParameters, layers }: Switches): Int32Array {
  const { role, status, flags, scope, count } = model.nodes;
  const host = left.map((isLeft, node) => (isLeft ? node : -1));
  if (!inlineParameters) return host;
  const consumer = new Int32Array(count).fill(-1);
  const fed = new Uint8Array(count);
  for (let wire = 0; wire < wires.count; wire++) {
    const [from, to] = [wires.from[wire], wires.to[wire]];
    fed[to] = 1;
    const isAlone = consumer[from] === -1 || consumer[from] === to;
    // The layers of all calls of a module have its weight written in them.
    const isOwn = layers && consumer[from] >= 0 && role[from] === parameterRole && scope[from] === scope[to] && scope[from] === scope[consumer[from]];
    if (!isOwn) consumer[from] = isAlone ? to : -2;
    if (wires.status[wire]) consumer[from] = -2;
  }
  // No edge leads to a buffer that an operation only keeps; where its module has one operation, it is that one.
  const only = new Int32Array(model.scopes.count).fill(-1);
  // Very many inputs are numbers that a program made on its way.
  const hasInputs = layers && Array.from(role).filter((own) => own === inputRole).length <= mostInputs;
  for (let node = 0; node < count; node++) {
    if (left[node] && role[node] === functionRole) only[scope[node]] = only[scope[node]] === -1 ? node : -2;
  }
  for (let node = 0; node < count; node++) if (left[node] && besideRoles.includes(role[node]) && consumer[node] === -1) consumer[node] = only[scope[node]];
  for (const cut of model.cuts) for (const node of [cut.at, cut.into]) if (node >= 0) consumer[node] = -2;
  for (let node = 0; node < count; node++) {
    const taker = consumer[node];
    if (!left[node] || taker < 0 || fed[node] || !inlineRoles.includes(role[node]) || (hasInputs && role[node] === inputRole)) continue;
    if (role[taker] === functionRole && status[taker] === status[node] && !(flags[node] & flag.output)) host[node] = taker;
  }
  return host;
}

function describeModules(
  model: Model,
  isRolled: boolean,
  scopeOf: Int32Array,
  above: readonly number[],
  made: readonly number[],
  numbers: readonly number[],
  runsFrom: number,
  runs: readonly { from: number; to: number }[],
): ShownScopes {
  const { texts, nodes, scopes, steps } = model;
  const count = above.length;
  const [parent, part] = [above, numbers].map((column) => Int32Array.from(column));
  const stepOf = (scope: number): StepScope | undefined => steps[made[scope] - scopes.count];
  const of = Int32Array.from(made, (own, scope) => stepOf(scope)?.[1] ?? own);
  /** Its name if it is no module, but a run of children or a step. */
  const called = (scope: number): string => {
    const run = runs[scope - runsFrom];
    return run ? `${run.from}–${run.to}` : texts[stepOf(scope)?.[2] ?? 0];
  };
  /** The module that holds it, also where it stands in a run. */
  const holder = (scope: number): number => {
    let found = parent[scope];
    while (found >= runsFrom) found = parent[found];
    return found;
  };
  const phases = new Uint8Array(count);
  scopeOf.forEach((own, node) => {
    const phase = nodes.role[node] === functionRole ? 1 + Math.sign(nodes.flags[node] & flag.backward) : 0;
    for (let at = own; at >= 0 && phase & ~phases[at]; at = parent[at]) phases[at] |= phase;
  });
  const last = new Map<string, number>();
  const partsOf = new Int32Array(count).fill(1);
  const whole = (scope: number): string => `${holder(scope)} ${of[scope]}`;
  for (let scope = 1; scope < runsFrom; scope++) if (part[scope]) last.set(whole(scope), Math.max(part[scope] + 1, last.get(whole(scope)) ?? 0));
  if (last.size) for (let scope = 1; scope < runsFrom; scope++) partsOf[scope] = last.get(whole(scope)) ?? 1;
  const layers = isRolled ? layersOf(model) : undefined;
  const times = Int32Array.from(of, (own, scope) => (scope < runsFrom ? stepOf(scope)?.[3] ?? layers?.[own] : 0) || 1);
  let keys: Map<string, number> | undefined;
  let used: Uint8Array | undefined;

  /** The path from the scope that contains it, including a container between them. */
  function plain(scope: number): string {
    const own = called(scope);
    if (own) return own;
    const around = scopes.path(of[holder(scope)]);
    return scopes.path(of[scope]).slice(around ? around.length + 1 : 0) + (part[scope] ? `#${part[scope] + 1}` : "");
  }
  function name(scope: number): string {
    const text = plain(scope);
    return times[scope] === 1 || called(scope) ? text : text.replace(/(\d+)(#\d+)?$/, (_, number: string, own = "") => `${number}–${Number(number) + times[scope] - 1}${own}`);
  }
  function key(scope: number): string {
    const way: string[] = [];
    // A module is called the same whether it lies in a run or not.
    for (let around = scope; around > 0; around = parent[around]) if (around === scope || around < runsFrom) way.push(plain(around));
    return way.reverse().join(".");
  }
  function find(wanted: string): number {
    if (!keys) {
      keys = new Map([["", 0]]);
      for (let scope = 1; scope < count; scope++) keys.set(key(scope), scope);
    }
    return keys.get(wanted) ?? -1;
  }
  function drawn(scope: number): number {
    if (!isRolled || scope >= scopes.count) return scope;
    const own = scopes.alike[scope];
    // A scope that lies wholly in a step is drawn there.
    used ??= findUsedScopes(scopeOf, parent);
    return used[own] ? own : Math.max(own, of.indexOf(own, scopes.count));
  }
  return { count, parent, of, part, parts: partsOf, phases, times, isRun: (scope) => called(scope) !== "", name, key, find, drawn };
}

/** By scope whether anything is drawn in it. */
function findUsedScopes(scopeOf: Int32Array, parent: Int32Array): Uint8Array {
  const used = new Uint8Array(parent.length);
  for (let scope of scopeOf) for (; scope >= 0 && !used[scope]; scope = parent[scope]) used[scope] = 1;
  return used;
}
