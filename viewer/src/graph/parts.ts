/**
 * Modules that the flow enters more than once, in parts: drawn as one box each would close a cycle. The rule is that of `gradir.passes.fold`.
 */
import { flag, roles } from "../data/model.ts";
import type { Model, StepScope } from "../data/model.ts";
import { depths, flowOrder, groupByKey } from "./columns.ts";
import type { Groups } from "./columns.ts";
import type { Wires } from "./wiring.ts";

const functionRole = roles.indexOf("function");
const unused = 0x7fffffff;

/** Scopes and steps with their parts. The first part of scope s is s, later ones come after all of them. */
export interface Parts {
  /** By node, -1 where it is not left. */
  readonly scope: Int32Array;
  /** By part the scope of the model, the part that holds it, and its number among the parts of its scope there, from 0. */
  readonly of: number[];
  readonly parent: number[];
  readonly part: number[];
}

/** The nodes of each scope, and the scope around it. */
interface Homes {
  readonly home: Int32Array;
  readonly parent: Int32Array;
}

const mostRounds = 6;

/**
 * A container that is never called itself (a `ModuleList`) is not split: where the flow leaves and enters it, its contents stand in the
 * module around it.
 */
export function parts({ scopes, nodes }: Model, steps: readonly StepScope[], left: Int32Array, wires: Wires): Parts {
  const parent = Int32Array.from([...scopes.parent, ...steps.map(([above]) => above)]);
  const scopeOf = (steps.length ? nodes.home : nodes.scope).slice();
  const home = parent.map((_, scope) => scope);
  const busy = new Uint8Array(parent.length).fill(1, scopes.count);
  for (let node = 0; node < nodes.count; node++) if (left[node] && nodes.role[node] === functionRole) busy[scopeOf[node]] = 1;
  // Each round takes away one level of containers within containers.
  for (let round = 0; ; round++) {
    const found = split({ home, parent }, scopeOf, left, wires, nodes.flags);
    const loose = found.of.filter((scope, made) => found.part[made] && home[scope] === scope && !scopes.calls[scope] && !busy[scope]);
    if (!loose.length || round === mostRounds) return found;
    for (const scope of loose) home[scope] = parent[scope];
    // A scope stands after its parent, whose home is known by then.
    for (let scope = 1; scope < home.length; scope++) {
      home[scope] = home[scope] === scope ? scope : home[home[scope]];
      parent[scope] = home[parent[scope]];
    }
    for (let node = 0; node < scopeOf.length; node++) scopeOf[node] = home[scopeOf[node]];
  }
}

function split(scopes: Homes, scopeOf: Int32Array, left: Int32Array, wires: Wires, flags: ArrayLike<number>): Parts {
  const count = scopes.parent.length;
  const nodes = scopeOf.length;
  const of = Array.from({ length: count }, (_, scope) => scope);
  const parent = Array.from(scopes.parent);
  const part = new Array<number>(count).fill(0);
  const depth = depths(scopes.parent);
  const deepest = depth.reduce((most, own) => Math.max(most, own));
  const current = left.map((isLeft) => (isLeft ? 0 : -1));
  // Edges whose ends are in one part so far.
  let active = [...wires.from.subarray(0, wires.count).keys()];
  const vertexOf = new Int32Array(nodes);
  const above = new Int32Array(count);
  const taken = new Uint8Array(count);
  for (let level = 1; level <= deepest && active.length; level++) {
    for (let scope = 0; scope < count; scope++) {
      above[scope] = depth[scope] < level ? -1 : depth[scope] === level ? scope : above[scopes.parent[scope]];
    }
    const vertices = contract(scopeOf, current, above, depth, level, vertexOf);
    const between: number[] = [];
    const within: number[] = [];
    for (const wire of active) {
      const from = wires.from[wire];
      const to = wires.to[wire];
      if (current[from] !== current[to] || vertexOf[from] < 0 || vertexOf[to] < 0) continue;
      (vertexOf[from] === vertexOf[to] ? within : between).push(wire);
    }
    active = within;
    const component = cycles(vertices, between, wires, vertexOf);
    const rounds = component ? levels(wires, vertexOf, component, current, flags) : undefined;
    const known = new Map<number, number>();
    const later: { vertex: number; round: number; scope: number; holder: number; nodes: number[] }[] = [];
    const first = new Int32Array(vertices).fill(-1);
    for (let node = 0; node < nodes; node++) {
      const scope = current[node] < 0 ? -1 : above[scopeOf[node]];
      if (scope < 0) continue;
      const vertex = vertexOf[node];
      if (rounds && component![vertex] >= 0) {
        const key = vertex * (nodes + 2) + rounds[node] + 1;
        let place = known.get(key);
        if (place === undefined) {
          known.set(key, (place = later.length));
          later.push({ vertex, round: rounds[node], scope, holder: current[node], nodes: [] });
        }
        later[place].nodes.push(node);
        continue;
      }
      if (first[vertex] < 0) first[vertex] = numbered(scope, current[node], 0);
      current[node] = first[vertex];
    }
    later.sort((one, other) => one.vertex - other.vertex || one.round - other.round);
    let number = 0;
    for (const [place, { vertex, scope, holder, nodes: members }] of later.entries()) {
      number = place && later[place - 1].vertex === vertex ? number + 1 : 0;
      const made = numbered(scope, holder, number);
      for (const node of members) current[node] = made;
    }
  }
  // A scope deeper than any edge is not split.
  settle(scopes.parent, scopeOf, current, numbered, of);
  return { scope: current, of, parent, part };

  function numbered(scope: number, holder: number, number: number): number {
    if (!taken[scope] && scopes.parent[scope] === holder) {
      taken[scope] = 1;
      part[scope] = number;
      return scope;
    }
    of.push(scope);
    parent.push(holder);
    part.push(number);
    return of.length - 1;
  }
}

/** Brings nodes whose part stands above their own scope down to it. */
function settle(
  parent: Int32Array,
  scopeOf: Int32Array,
  current: Int32Array,
  numbered: (scope: number, holder: number, number: number) => number,
  of: readonly number[],
): void {
  const known = new Map<number, number>();
  for (let node = 0; node < scopeOf.length; node++) {
    if (current[node] < 0) continue;
    const way: number[] = [];
    for (let scope = scopeOf[node]; scope !== of[current[node]]; scope = parent[scope]) way.push(scope);
    for (const scope of way.reverse()) {
      const key = current[node] * parent.length + scope;
      let made = known.get(key);
      if (made === undefined) known.set(key, (made = numbered(scope, current[node], 0)));
      current[node] = made;
    }
  }
}

/** Numbers the vertices that the nodes contract to: the child module of their part, or themselves; -1 if they were settled above. */
function contract(
  scopeOf: Int32Array,
  current: Int32Array,
  above: Int32Array,
  depth: Int32Array,
  level: number,
  vertexOf: Int32Array,
): number {
  let vertices = 0;
  // Most modules have one part, so the last one asked for is mostly the one.
  const lastPart = new Int32Array(above.length).fill(-1);
  const lastVertex = new Int32Array(above.length);
  const known = new Map<number, number>();
  for (let node = 0; node < current.length; node++) {
    vertexOf[node] = -1;
    if (current[node] < 0) continue;
    const scope = above[scopeOf[node]];
    if (scope < 0) {
      if (depth[scopeOf[node]] === level - 1) vertexOf[node] = vertices++;
      continue;
    }
    if (lastPart[scope] !== current[node]) {
      const key = current[node] * above.length + scope;
      let vertex = known.get(key);
      if (vertex === undefined) known.set(key, (vertex = vertices++));
      lastPart[scope] = current[node];
      lastVertex[scope] = vertex;
    }
    vertexOf[node] = lastVertex[scope];
  }
  return vertices;
}

/** For each vertex the number of its strongly connected component of several vertices, or -1; nothing where there is no cycle. */
function cycles(vertices: number, between: readonly number[], wires: Wires, vertexOf: Int32Array): Int32Array | undefined {
  const tails = between.map((wire) => vertexOf[wires.from[wire]]);
  const heads = between.map((wire) => vertexOf[wires.to[wire]]);
  const out = groupByKey(tails, vertices);
  return flowOrder(out, heads).length === vertices ? undefined : components(out, heads);
}

/** Tarjan's algorithm with a stack of its own. */
export function components({ first, rows }: Groups, heads: ArrayLike<number>): Int32Array {
  const vertices = first.length - 1;
  const found = new Int32Array(vertices).fill(-1);
  const index = new Int32Array(vertices);
  const low = new Int32Array(vertices);
  const next = first.slice(0, vertices);
  const open = new Uint8Array(vertices);
  const path = new Int32Array(vertices);
  const stack = new Int32Array(vertices);
  let [clock, top, height, count] = [0, -1, 0, 0];
  for (let root = 0; root < vertices; root++) {
    if (index[root]) continue;
    path[++top] = root;
    while (top >= 0) {
      const vertex = path[top];
      if (!index[vertex]) {
        index[vertex] = low[vertex] = ++clock;
        open[vertex] = 1;
        stack[height++] = vertex;
      }
      if (next[vertex] < first[vertex + 1]) {
        const head = heads[rows[next[vertex]++]];
        if (!index[head]) path[++top] = head;
        else if (open[head]) low[vertex] = Math.min(low[vertex], index[head]);
        continue;
      }
      top--;
      if (top >= 0) low[path[top]] = Math.min(low[path[top]], low[vertex]);
      if (low[vertex] !== index[vertex]) continue;
      const alone = stack[height - 1] === vertex;
      let member = -1;
      while (member !== vertex) {
        member = stack[--height];
        open[member] = 0;
        if (!alone) found[member] = count;
      }
      count++;
    }
  }
  return found;
}

/**
 * How often the flow has come into a module of the same component before each node. A node outside of all modules has the vertex -1, for which
 * a table of vertices reads as undefined and keeps no value.
 */
function levels(wires: Wires, vertexOf: Int32Array, component: Int32Array, current: Int32Array, flags: ArrayLike<number>): Int32Array {
  const count = vertexOf.length;
  const level = new Int32Array(count);
  // Whether a node depends on something outside its module, other than a backward on the forward.
  const depends = new Uint8Array(count);
  const fed = new Uint8Array(count);
  const ofForward = new Int32Array(component.length);
  // Wires are sorted by consumer, and nodes stand after what they take from.
  for (let wire = 0; wire < wires.count; wire++) {
    const from = wires.from[wire];
    const to = wires.to[wire];
    fed[to] = 1;
    const inside = current[from] === current[to] && vertexOf[from] === vertexOf[to] && vertexOf[to] >= 0;
    const isLate = flags[to] & flag.backward;
    if ((flags[from] & flag.backward) >= isLate && (!inside || depends[from])) depends[to] = 1;
    const own = vertexOf[to];
    // A backward is in no part before those of the forward.
    if (isLate && own >= 0) level[to] = Math.max(level[to], ofForward[own]);
    if (!together(from, to)) continue;
    level[to] = Math.max(level[to], level[from] + (inside ? 0 : 1));
    if (!isLate) ofForward[own] = Math.max(level[to], ofForward[own]);
  }
  // A parameter that another module takes first stands before all rounds of its own, so a level may be -1.
  const used = new Int32Array(count).fill(unused);
  for (let wire = wires.count - 1; wire >= 0; ) {
    const to = wires.to[wire];
    if (!depends[to] && used[to] < unused) level[to] = used[to];
    for (; wire >= 0 && wires.to[wire] === to; wire--) {
      const from = wires.from[wire];
      if (depends[from] || !together(from, to)) continue;
      used[from] = Math.min(used[from], level[to] - (vertexOf[from] === vertexOf[to] ? 0 : 1));
    }
  }
  const first = new Int32Array(component.length).fill(unused);
  for (let node = 0; node < count; node++) {
    if (!fed[node] && used[node] < unused) level[node] = used[node];
    if (fed[node] || used[node] < unused) first[vertexOf[node]] = Math.min(first[vertexOf[node]], level[node]);
  }
  // A node without edges is in the first part.
  for (let node = 0; node < count; node++) {
    if (!fed[node] && used[node] === unused && first[vertexOf[node]] < unused) level[node] = first[vertexOf[node]];
  }
  return level;

  function together(from: number, to: number): boolean {
    return current[from] === current[to] && component[vertexOf[from]] >= 0 && component[vertexOf[from]] === component[vertexOf[to]];
  }
}
