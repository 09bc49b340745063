import { column, type Packed, readBlock } from "./block.ts";
import { rowAt } from "../graph/columns.ts";
import type { Details, DetailsOfAll, Model } from "./model.ts";

/** The second block, as exporters/gradir_exporters/_page/details.py writes it. */
export interface DetailsBlock {
  readonly role: Packed;
  readonly roles: readonly string[];
  readonly native: Packed;
  readonly natives: readonly string[];
  readonly outputs: readonly (readonly string[])[];
  readonly attrs: Packed;
  /** Keys and values in turn. */
  readonly attributes: readonly (readonly string[])[];
  readonly source: Packed;
  readonly sources: readonly string[];
  readonly lines: readonly string[];
  /** The nodes with more than one name, and the names of each. */
  readonly names: readonly [readonly number[], readonly (readonly string[])[]];
  readonly saved: Packed;
  /** By the kind of what is saved the slots: name, tensor, bytes, state. */
  readonly slots: readonly (readonly (readonly [string, string, number | null, string])[])[];
  readonly storage: Packed;
  readonly storages: readonly string[];
  readonly origin: Packed;
}

/** The node that made something, by how far before another it stands, and one more; -1 where it is not known. */
function madeBy(node: number, before: number): number {
  return before === 0 ? -1 : node - before + (before > 0 ? 1 : 0);
}

/** What the nodes of a page say of themselves. */
export async function readDetails(root: Document, model: Model): Promise<DetailsOfAll> {
  return detailsOf((await readBlock(root, "gradir-details")) as DetailsBlock, model);
}

export function detailsOf(block: DetailsBlock, model: Model): DetailsOfAll {
  const { count } = model.nodes;
  const places = (packed: Packed, length = count) => column(length, packed);
  const role = places(block.role);
  const native = places(block.native);
  const attrs = places(block.attrs);
  const source = places(block.source);
  const saved = places(block.saved);
  // Slots are numbered through the whole graph.
  const firstSlot = new Int32Array(count + 1);
  for (let node = 0; node < count; node++) {
    firstSlot[node + 1] = firstSlot[node] + block.slots[saved[node]].length;
  }
  const slots = firstSlot[count];
  const storage = places(block.storage, slots);
  const origin = places(block.origin, slots);
  const names = new Map(block.names[0].map((node, at) => [node, block.names[1][at]]));

  const storageOf = (slot: number): string => {
    const named = storage[slot] > 0 ? slot - storage[slot] : slot;
    const how = storage[named];
    const owner = rowAt(firstSlot, named);
    if (how < 0) {
      return -how % 2 === 1 ? model.nodes.id(owner - (-how - 1) / 2) : block.storages[-how / 2];
    }
    return named === slot ? "" : `${model.nodes.id(owner)}.${block.slots[saved[owner]][named - firstSlot[owner]][0]}`;
  };
  const baseOf = (node: number): string => {
    for (let edge = model.edges.first[node]; edge < model.edges.first[node + 1]; edge++) {
      if (model.edges.slot[edge] === -1 && model.edges.kinds[model.edges.kind[edge]] === "view") {
        return model.nodes.id(model.edges.from[edge]);
      }
    }
    return "";
  };
  return {
    sources: block.sources,
    sourceOf: source,
    of(node): Details {
      const told = block.attributes[attrs[node]];
      const own = model.nodes.name[node];
      return {
        id: model.nodes.id(node),
        role: block.roles[role[node]],
        native: block.natives[native[node]],
        names: names.get(node) ?? (own === 0 ? [] : [model.texts[own]]),
        source: block.sources[source[node]],
        line: block.lines[source[node]],
        attributes: Array.from({ length: told.length / 2 }, (_, at) => [told[2 * at], told[2 * at + 1]] as const),
        outputs: block.outputs[model.nodes.outputs[node]],
        saved: block.slots[saved[node]].map(([slot, tensor, bytes, state], at) => {
          const number = firstSlot[node] + at;
          return { slot, tensor, bytes, state, storage: storageOf(number), origin: madeBy(node, origin[number]) };
        }),
        base: baseOf(node),
      };
    },
  };
}

