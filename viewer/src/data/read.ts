import { column, fill, type Packed, readBlock, summed } from "./block.ts";
import type { Channel, Edges, Model, Nodes, Scopes } from "./model.ts";

type Columns<T> = { readonly count: number } & { readonly [Name in keyof T as T[Name] extends ArrayBufferView ? Name : never]: Packed };

/** The first block, as exporters/gradir_exporters/_page/columns.py writes it. */
export interface ColumnsBlock extends Pick<Model, "title" | "kind" | "framework" | "sides" | "figures" | "texts" | "cuts" | "lost" | "changes" | "steps" | "had" | "verdict"> {
  /** The dtype and the shape of what is shown of some outputs, as texts. */
  readonly tensors: readonly (readonly [number, number])[];
  readonly sizes: readonly number[];
  readonly scopes: Columns<Scopes>;
  readonly nodes: Omit<Columns<Nodes>, "dtype" | "shape"> & { readonly id: Packed };
  readonly edges: Omit<Columns<Edges>, "from" | "to" | "first"> & { readonly into: Packed; readonly away: Packed; readonly kinds: readonly string[] };
  readonly channels: readonly (Omit<Channel, "look" | "said"> & { readonly look: Packed; readonly said: Packed })[];
}

/** The graph of a page. */
export async function readModel(root: Document): Promise<Model> {
  return modelOf((await readBlock(root, "gradir-columns")) as ColumnsBlock);
}

export function modelOf(block: ColumnsBlock): Model {
  const texts = [...block.texts];
  const scopes = scopesOf(block, texts);
  const edges = edgesOf(block);
  const nodes = nodesOf(block, texts, scopes, edges);
  const { count } = nodes;
  const channels = block.channels.map((channel) => ({ ...channel, look: column(count, channel.look), said: column(count, channel.said) }));
  const was = new Map<number, string>();
  const classWas = new Map<number, string>();
  for (const change of block.changes)
    for (const { path, before } of change.fields) {
      if (path === "op") for (const node of change.nodes) was.set(node, before);
      if (path === "class") for (const scope of change.scopes) classWas.set(scope, before);
    }
  return { ...block, texts, scopes, nodes, edges, channels, was, classWas };
}

function scopesOf({ scopes: packed }: ColumnsBlock, texts: readonly string[]): Scopes {
  const { count } = packed;
  const amounts = (name: "calls" | "parameters" | "own" | "trainable" | "saved") => fill(new Float64Array(count), packed[name]);
  const parent = before(column(count, packed.parent));
  const name = column(count, packed.name);
  const paths: string[] = [];
  parent.forEach((above, scope) => paths.push((above && paths[above] ? `${paths[above]}.` : "") + texts[name[scope]]));
  parent[0] = -1;
  return {
    count,
    parent,
    name,
    className: column(count, packed.className),
    detail: column(count, packed.detail),
    calls: amounts("calls"),
    parameters: amounts("parameters"),
    own: amounts("own"),
    trainable: amounts("trainable"),
    saved: amounts("saved"),
    alike: before(column(count, packed.alike)),
    path: (scope) => paths[scope],
  };
}

/** Makes places of what says how far before itself each one is. */
function before(column: Int32Array): Int32Array {
  return column.map((away, at) => at - away);
}

function edgesOf({ edges: packed, nodes }: ColumnsBlock): Edges {
  const { count } = packed;
  const into = column(nodes.count, packed.into);
  const from = column(count, packed.away);
  const slot = column(count, packed.slot);
  const to = new Int32Array(count);
  const first = new Int32Array(nodes.count + 1);
  for (let node = 0, edge = 0; node < nodes.count; node++) {
    for (let place = 0; place < into[node]; place++, edge++) {
      to[edge] = node;
      from[edge] = node - from[edge];
      slot[edge] += place;
    }
    first[node + 1] = edge;
  }
  return { ...packed, from, to, slot, first, output: column(count, packed.output), kind: column(count, packed.kind), status: column(count, packed.status) };
}

function nodesOf({ nodes: packed, tensors, sizes }: ColumnsBlock, texts: string[], scopes: Scopes, edges: Edges): Nodes {
  const { count } = packed;
  const [scope, stands] = [packed.scope, packed.stands].map((each) => summed(column(count, each)));
  const op = column(count, packed.op);
  const { path } = scopes;
  const name = column(count, packed.name);
  const outputs = column(count, packed.outputs);
  const saved = fill(new Float64Array(count), packed.saved);
  const dtype = new Int32Array(count);
  const shape = new Int32Array(count);
  for (let node = 0; node < count; node++) {
    if (name[node] < 0) name[node] = texts.push(`${path(scope[node])}.${texts[-name[node]]}`) - 1;
    [dtype[node], shape[node]] = tensors[outputs[node]];
    saved[node] = sizes[saved[node]];
  }
  const made = column(count, packed.id);
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
  const home = column(count, packed.home).map((away, node) => scope[node] + away);
  const [role, flags, status] = [packed.role, packed.flags, packed.status].map((each) => column(count, each));
  return { count, scope, role, op, name, dtype, shape, saved, flags, status, outputs, stands, home, id, find };
}
