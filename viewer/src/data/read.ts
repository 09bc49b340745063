import { fill, type Packed, readBlock, summed } from "./block.ts";
import type { Change, Channel, Cut, Edges, Model, Nodes, Scopes } from "./model.ts";

/** The first block, as exporters/gradir_exporters/_page_columns.py writes it. */
export interface ColumnsBlock {
  readonly title: string;
  readonly kind: string;
  readonly framework: string;
  readonly texts: readonly string[];
  /** The dtype and the shape of what is shown of some outputs, as texts. */
  readonly tensors: readonly (readonly [number, number])[];
  readonly sizes: readonly number[];
  readonly scopes: Readonly<Record<keyof Omit<Scopes, "className"> | "class", Packed>> & { readonly count: number };
  readonly nodes: Readonly<Record<Exclude<keyof Nodes, "dtype" | "shape" | "find" | "count"> | "outputs", Packed>> & {
    readonly count: number;
  };
  readonly edges: {
    readonly count: number;
    readonly into: Packed;
    readonly away: Packed;
    readonly slot: Packed;
    readonly output: Packed;
    readonly kind: Packed;
    readonly kinds: readonly string[];
    readonly status: Packed;
  };
  readonly cuts: readonly Cut[];
  readonly channels: readonly (Omit<Channel, "look" | "said"> & { readonly look: Packed; readonly said: Packed })[];
  readonly changes: readonly Change[];
}

/** The graph of a page. */
export async function readModel(root: Document): Promise<Model> {
  return modelOf((await readBlock(root, "gradir-columns")) as ColumnsBlock);
}

export function modelOf(block: ColumnsBlock): Model {
  const texts = [...block.texts];
  const scopes = scopesOf(block);
  const edges = edgesOf(block);
  const nodes = nodesOf(block, texts, scopes, edges);
  return {
    title: block.title,
    kind: block.kind,
    framework: block.framework,
    texts,
    scopes,
    nodes,
    edges,
    cuts: block.cuts,
    channels: block.channels.map((channel) => ({
      ...channel,
      look: fill(new Uint8Array(nodes.count), channel.look),
      said: fill(new Int32Array(nodes.count), channel.said),
    })),
    changes: block.changes,
  };
}

function scopesOf({ scopes: packed }: ColumnsBlock): Scopes {
  const { count } = packed;
  const places = (column: Packed) => fill(new Int32Array(count), column);
  const amounts = (column: Packed) => fill(new Float64Array(count), column);
  const parent = before(places(packed.parent));
  parent[0] = -1;
  return {
    count,
    parent,
    name: places(packed.name),
    className: places(packed.class),
    detail: places(packed.detail),
    calls: amounts(packed.calls),
    parameters: amounts(packed.parameters),
    own: amounts(packed.own),
    trainable: amounts(packed.trainable),
    saved: amounts(packed.saved),
    alike: before(places(packed.alike)),
  };
}

/** Makes places of what says how far before itself each one is. */
function before(column: Int32Array): Int32Array {
  for (let at = 0; at < column.length; at++) {
    column[at] = at - column[at]!;
  }
  return column;
}

function edgesOf({ edges: packed, nodes: { count } }: ColumnsBlock): Edges {
  const into = fill(new Int32Array(count), packed.into);
  const from = fill(new Int32Array(packed.count), packed.away);
  const slot = fill(new Int32Array(packed.count), packed.slot);
  const to = new Int32Array(packed.count);
  const first = new Int32Array(count + 1);
  let edge = 0;
  for (let node = 0; node < count; node++) {
    first[node] = edge;
    const end = edge + into[node]!;
    for (let place = 0; edge < end; edge++, place++) {
      to[edge] = node;
      from[edge] = node - from[edge]!;
      slot[edge] += place;
    }
  }
  first[count] = edge;
  return {
    count: packed.count,
    from,
    to,
    slot,
    output: fill(new Int32Array(packed.count), packed.output),
    kind: fill(new Uint8Array(packed.count), packed.kind),
    kinds: packed.kinds,
    first,
    status: fill(new Uint8Array(packed.count), packed.status),
  };
}

function nodesOf({ nodes: packed, tensors, sizes }: ColumnsBlock, texts: string[], scopes: Scopes, edges: Edges): Nodes {
  const { count } = packed;
  const places = (column: Packed) => fill(new Int32Array(count), column);
  const scope = summed(packedSteps(packed.scope, count));
  const op = places(packed.op);
  const path = pathsOf(scopes, texts);
  const name = places(packed.name);
  for (let node = 0; node < count; node++) {
    if (name[node]! < 0) {
      name[node] = texts.push(`${path(scope[node]!)}.${texts[-name[node]!]}`) - 1;
    }
  }
  const outputs = places(packed.outputs);
  const saved = fill(new Float64Array(count), packed.saved);
  const dtype = new Int32Array(count);
  const shape = new Int32Array(count);
  for (let node = 0; node < count; node++) {
    [dtype[node], shape[node]] = tensors[outputs[node]!]!;
    saved[node] = sizes[saved[node]!]!;
  }
  const made = places(packed.id);
  const ids = new Map<number, string>();
  const id = (node: number): string => {
    let found = ids.get(node);
    if (found === undefined) {
      ids.set(node, (found = madeId(node)));
    }
    return found;
  };
  const madeId = (node: number): string => {
    const how = made[node]!;
    if (how === 0) {
      return texts[name[node]!]!;
    }
    if (how < -1) {
      return texts[-2 - how]!;
    }
    if (how === -1) {
      return accumulatorId(node);
    }
    const around = path(scope[node]!);
    return `${around}${around === "" ? "" : "/"}${texts[op[node]!]}:${how}`;
  };
  // An accumulator may be told by another one, and that by a third: no recursion.
  const accumulatorId = (node: number): string => {
    let behind = "";
    let at = node;
    while (made[at] === -1) {
      behind = `/${texts[op[at]!]}:1${behind}`;
      at = edges.from[edges.first[at]!]!;
    }
    return madeId(at) + behind;
  };
  let known: Map<string, number> | undefined;
  const find = (wanted: string): number => {
    if (known === undefined) {
      known = new Map();
      for (let node = 0; node < count; node++) {
        known.set(id(node), node);
      }
    }
    return known.get(wanted) ?? -1;
  };
  return {
    count,
    scope,
    role: fill(new Uint8Array(count), packed.role),
    op,
    name,
    dtype,
    shape,
    saved,
    flags: fill(new Uint8Array(count), packed.flags),
    status: fill(new Uint8Array(count), packed.status),
    outputs,
    id,
    find,
  };
}

function packedSteps(packed: Packed, count: number): Int32Array {
  return fill(new Int32Array(count), packed);
}

/** Gives the path of a scope, each made once. */
function pathsOf(scopes: Scopes, texts: readonly string[]): (scope: number) => string {
  const paths: string[] = [""];
  for (let scope = 1; scope < scopes.count; scope++) {
    const above = paths[scopes.parent[scope]!]!;
    const name = texts[scopes.name[scope]!]!;
    paths.push(above === "" ? name : `${above}.${name}`);
  }
  return (scope) => paths[scope]!;
}
