import { column, type Packed, readBlock } from "./block.ts";
import { rowAt } from "../graph/columns.ts";
import type { Details, DetailsOfAll, Model } from "./model.ts";

/** The saved slots by the kind of their content. */
type Slots = readonly (readonly (readonly [name: string, tensor: string, bytes: number | null, state: string])[])[];

/** The second block, as exporters/gradir_exporters/_page/details.py writes it: without names, in its order. */
export type DetailsBlock = readonly [
  role: Packed, roles: readonly string[], native: Packed, natives: readonly string[], outputs: readonly (readonly string[])[],
  /** Keys and values in turn. */
  attrs: Packed, attributes: readonly (readonly string[])[],
  source: Packed, sources: readonly string[], lines: readonly string[],
  /** The nodes with more than one name, and the names of each. */
  names: readonly [readonly number[], readonly (readonly string[])[]],
  saved: Packed, slots: Slots, storage: Packed, storages: readonly string[], origin: Packed,
];

/** The node that made something, by how far before another it stands, and one more; -1 where it is not known. */
function findMaker(node: number, before: number): number {
  return before === 0 ? -1 : node - before + (before > 0 ? 1 : 0);
}

/** The details of the nodes of a page. */
export async function readDetails(root: Document, model: Model): Promise<DetailsOfAll> {
  return detailsOf((await readBlock(root, "gradir-details")) as DetailsBlock, model);
}

export function detailsOf(block: DetailsBlock, model: Model): DetailsOfAll {
  const [roles, roleTexts, natives, nativeTexts, outputs, attrs, attributes, lineOf, sources, lines, [named, namesOf], saves, slotsOf, storages, storageTexts, origins] = block;
  const { count } = model.nodes;
  const [role, native, attr, source, saved] = [roles, natives, attrs, lineOf, saves].map((packed) => column(count, packed));
  // Slots are numbered through the whole graph.
  const firstSlot = new Int32Array(count + 1);
  for (let node = 0; node < count; node++) firstSlot[node + 1] = firstSlot[node] + slotsOf[saved[node]].length;
  const [storage, origin] = [storages, origins].map((packed) => column(firstSlot[count], packed));
  const names = new Map(named.map((node, at) => [node, namesOf[at]]));

  const storageOf = (slot: number): string => {
    const named = storage[slot] > 0 ? slot - storage[slot] : slot;
    const how = storage[named];
    const owner = rowAt(firstSlot, named);
    if (how < 0) {
      return -how % 2 === 1 ? model.nodes.id(owner - (-how - 1) / 2) : storageTexts[-how / 2];
    }
    return named === slot ? "" : `${model.nodes.id(owner)}.${slotsOf[saved[owner]][named - firstSlot[owner]][0]}`;
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
    sources,
    sourceOf: source,
    of(node): Details {
      const told = attributes[attr[node]];
      const own = model.nodes.name[node];
      return {
        id: model.nodes.id(node),
        role: roleTexts[role[node]],
        native: nativeTexts[native[node]],
        names: names.get(node) ?? (own === 0 ? [] : [model.texts[own]]),
        source: sources[source[node]],
        line: lines[source[node]],
        attributes: Array.from({ length: told.length / 2 }, (_, at) => [told[2 * at], told[2 * at + 1]] as const),
        outputs: outputs[model.nodes.outputs[node]],
        saved: slotsOf[saved[node]].map(([slot, tensor, bytes, state], at) => {
          const number = firstSlot[node] + at;
          return { slot, tensor, bytes, state, storage: storageOf(number), origin: findMaker(node, origin[number]) };
        }),
        base: baseOf(node),
      };
    },
  };
}

