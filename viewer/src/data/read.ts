import { column, fill, type Packed, readBlock, sumUp } from "./block.ts";
import type { Change, Channel, Cut, Edges, Model, Nodes, Scopes } from "./model.ts";

/** The columns of scopes, nodes and edges, as exporters/gradir_exporters/_page/ writes them: without names, in its order. */
type ScopesRow = readonly [
  count: number, parent: Packed, name: Packed, className: Packed, detail: Packed,
  calls: Packed, parameters: Packed, own: Packed, trainable: Packed, saved: Packed, alike: Packed,
];
type NodesRow = readonly [
  count: number, scope: Packed, role: Packed, op: Packed, id: Packed, name: Packed,
  outputs: Packed, saved: Packed, flags: Packed, status: Packed, stands: Packed, home: Packed,
];
type EdgesRow = readonly [into: Packed, away: Packed, slot: Packed, output: Packed, kind: Packed, kinds: Edges["kinds"], count: number, status: Packed];
type CutRow = readonly [
  kind: string, op: string, names: Cut["names"], shape: string, scope: number, source: string, via: string, meant: string,
  at: number, into: number, slot: number, text: string, advice: string, status: number,
];
type ChannelRow = readonly [name: string, look: Packed, looks: Channel["looks"], said: Packed, legend: Channel["legend"]];
type ChangeRow = readonly [kind: string, group: string, text: string, nodes: Change["nodes"], scopes: Change["scopes"], fields: Change["fields"]];

/** The dtype and the shape of the shown outputs, as texts. */
type Tensors = readonly (readonly [dtype: number, shape: number])[];

/** The first block. */
export type ColumnsBlock = readonly [
  title: string, kind: string, framework: string, sides: Model["sides"], figures: Model["figures"],
  scopes: ScopesRow, steps: Model["steps"], nodes: NodesRow, sizes: readonly number[], tensors: Tensors, edges: EdgesRow,
  cuts: readonly CutRow[], lost: Model["lost"], channels: readonly ChannelRow[], changes: readonly ChangeRow[],
  had: Model["had"], verdict: Model["verdict"], texts: Model["texts"],
];

/** The graph of a page. */
export async function readModel(root: Document): Promise<Model> {
  return modelOf((await readBlock(root, "gradir-columns")) as ColumnsBlock);
}

export function modelOf(block: ColumnsBlock): Model {
  const [title, kind, framework, sides, figures, scopesRow, steps, nodesRow, sizes, tensors, edgesRow, cutRows, lost, channelRows, changeRows, had, verdict, said] = block;
  const texts = [...said];
  const scopes = scopesOf(scopesRow, texts);
  const [count] = nodesRow;
  const edges = edgesOf(edgesRow, count);
  const nodes = nodesOf(nodesRow, sizes, tensors, texts, scopes, edges);
  const cuts = cutRows.map(([kind, op, names, shape, scope, source, via, meant, at, into, slot, text, advice, status]) => (
    { kind, op, names, shape, scope, source, via, meant, at, into, slot, text, advice, status }
  ));
  const channels = channelRows.map(([name, look, looks, said, legend]) => ({ name, look: column(count, look), looks, said: column(count, said), legend }));
  const changes = changeRows.map(([kind, group, text, nodes, scopes, fields]) => ({ kind, group, text, nodes, scopes, fields }));
  const was = new Map<number, string>();
  const classWas = new Map<number, string>();
  for (const change of changes)
    for (const [path, before] of change.fields) {
      if (path === "op") for (const node of change.nodes) was.set(node, before);
      if (path === "class") for (const scope of change.scopes) classWas.set(scope, before);
    }
  return { title, kind, framework, sides, figures, texts, scopes, steps, nodes, edges, cuts, lost, channels, changes, had, verdict, was, classWas };
}

function scopesOf([count, parents, names, classes, details, ...rest]: ScopesRow, texts: readonly string[]): Scopes {
  const [calls, parameters, own, trainable, saved] = rest.map((packed) => fill(new Float64Array(count), packed));
  const parent = toPlaces(column(count, parents));
  const name = column(count, names);
  const paths: string[] = [];
  parent.forEach((above, scope) => paths.push((above && paths[above] ? `${paths[above]}.` : "") + texts[name[scope]]));
  parent[0] = -1;
  return {
    count,
    parent,
    name,
    className: column(count, classes),
    detail: column(count, details),
    calls,
    parameters,
    own,
    trainable,
    saved,
    alike: toPlaces(column(count, rest[5])),
    path: (scope) => paths[scope],
  };
}

/** Turns relative places, counted backward from each entry, into absolute ones. */
function toPlaces(column: Int32Array): Int32Array {
  return column.map((away, at) => at - away);
}

function edgesOf([intos, away, slots, outputs, kind, kinds, count, statuses]: EdgesRow, nodes: number): Edges {
  const into = column(nodes, intos);
  const [from, slot, output, kindOf, status] = [away, slots, outputs, kind, statuses].map((packed) => column(count, packed));
  const to = new Int32Array(count);
  const first = new Int32Array(nodes + 1);
  for (let node = 0, edge = 0; node < nodes; node++) {
    for (let place = 0; place < into[node]; place++, edge++) {
      to[edge] = node;
      from[edge] = node - from[edge];
      slot[edge] += place;
    }
    first[node + 1] = edge;
  }
  return { count, from, to, slot, output, kind: kindOf, kinds, first, status };
}

function nodesOf([count, ...packed]: NodesRow, sizes: readonly number[], tensors: Tensors, texts: string[], scopes: Scopes, edges: Edges): Nodes {
  const [scope, role, op, made, name, outputs, sizeOf, flags, status, stands, homes] = packed.map((each) => column(count, each));
  sumUp(scope);
  sumUp(stands);
  const { path } = scopes;
  const saved = new Float64Array(count);
  const dtype = new Int32Array(count);
  const shape = new Int32Array(count);
  for (let node = 0; node < count; node++) {
    if (name[node] < 0) name[node] = texts.push(`${path(scope[node])}.${texts[-name[node]]}`) - 1;
    [dtype[node], shape[node]] = tensors[outputs[node]];
    saved[node] = sizes[sizeOf[node]];
  }
  const ids: string[] = [];
  const id = (node: number): string => (ids[node] ??= madeId(node));
  const madeId = (node: number): string => {
    // An accumulator may be told by another one, and that by a third: no recursion.
    let behind = "";
    for (; made[node] === -1; node = edges.from[edges.first[node]]) behind = `/${texts[op[node]]}:1${behind}`;
    const how = made[node];
    if (how <= 0) return texts[how === 0 ? name[node] : -2 - how] + behind;
    const around = path(scope[node]);
    return `${around && `${around}/`}${texts[op[node]]}:${how}${behind}`;
  };
  let known: Map<string, number> | undefined;
  const find = (wanted: string): number => {
    known ??= new Map(Array.from(op, (_, node) => [id(node), node]));
    return known.get(wanted) ?? -1;
  };
  const home = homes.map((away, node) => scope[node] + away);
  return { count, scope, role, op, name, dtype, shape, saved, flags, status, outputs, stands, home, id, find };
}
