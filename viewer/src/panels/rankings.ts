/** The largest things in a graph, shown without a selection: modules by saved bytes, parameters by size, files by operations. */

import { type DetailsOfAll, type Model, roles } from "../data/model.ts";
import { bytesText, numberText } from "../draw/plain.ts";
import type { Page } from "./context.ts";
import { type Child, button, h } from "./dom.ts";
import { section, moduleButton, nodeButton, several } from "./pieces.ts";

const most = 6;
const parameter = roles.indexOf("parameter");

const known = new WeakMap<Model, ReturnType<typeof sumByModule>>();

/** Asked for after the first picture, and counted once. */
export function rankings(page: Page, details: DetailsOfAll): Child {
  const { model } = page;
  if (!known.has(model)) known.set(model, sumByModule(model, details));
  const { modules, parameters, files } = known.get(model)!;
  return [
    rankingTable("Saved for backward", modules, bytesText, (scope) => (scope ? moduleButton(page, scope) : "in no module")),
    rankingTable("Parameters by size", parameters, numberText, (node) => nodeButton(page, node)),
    rankingTable("Operations by source file", files, numberText, (file) => button(file, () => page.find(`source:"${file}"`), { class: "link" })),
  ];
}

function sumByModule({ nodes, scopes, texts }: Model, { sources, sourceOf }: DetailsOfAll) {
  // The bytes that a module itself saves; equal layers and steps together.
  const kept = scopes.saved.slice();
  for (let scope = 1; scope < scopes.count; scope++) kept[scopes.parent[scope]] -= scopes.saved[scope];
  const sizes = Array.from(nodes.role, (role, node) => (role === parameter ? elements(texts[nodes.shape[node]]) : 0));
  const files = new Map<string, number>();
  const fileOf = sources.map((source) => /^(.+):\d+/.exec(source)?.[1] ?? "");
  for (const place of sourceOf) files.set(fileOf[place], (files.get(fileOf[place]) ?? 0) + 1);
  files.delete("");
  return {
    modules: sortByAmount(together(kept, scopes.alike)),
    parameters: sortByAmount(together(sizes, nodes.stands)),
    files: sortByAmount([...files].map(([file, count]) => [file, count, 1])),
  };
}

type Ranked<Item> = readonly [item: Item, amount: number, times: number];

function sortByAmount<Item>(all: readonly Ranked<Item>[]): readonly Ranked<Item>[] {
  return all.filter(([, amount]) => amount > 0).sort((one, other) => other[1] - one[1]);
}

function rankingTable<Item>(title: string, order: readonly Ranked<Item>[], textOf: (amount: number) => string, draw: (item: Item) => Child): Child {
  return section(
    title,
    several(order, most, ([item, amount, times]) => {
      const bar = h("div.bar");
      bar.style.width = `${(100 * amount) / order[0][1]}%`;
      return [h("span.count", textOf(amount)), draw(item), times > 1 && h("span.note", ` \u00d7${times}`), bar];
    }),
  );
}

/** Amounts by representative, summed over all that it represents, and how many these are. */
function together(amounts: ArrayLike<number>, standsFor: Int32Array): Ranked<number>[] {
  const sums = new Map<number, [sum: number, times: number]>();
  for (let at = 0; at < amounts.length; at++) {
    const [sum, times] = sums.get(standsFor[at]) ?? [0, 0];
    if (amounts[at] > 0) sums.set(standsFor[at], [sum + amounts[at], times + 1]);
  }
  return [...sums].map(([at, [sum, times]]) => [at, sum, times]);
}

/** "[3, 4]" is 12; nothing is known of a shape with a letter. */
function elements(shape: string): number {
  return shape === "" ? 0 : (shape.match(/[^[\], ]+/g) ?? []).reduce((product, size) => product * Number(size), 1) || 0;
}
