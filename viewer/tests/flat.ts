/** The graphs of pages as JSON, without their modules: node tests/run.mjs flatten PAGE… > tests/examples.json */
import { readFileSync } from "node:fs";
import { basename } from "node:path";
import { readModel } from "../src/data/read.ts";
import type { Model } from "../src/data/model.ts";

/** The graph in a page's file. */
export async function modelIn(path: string): Promise<Model> {
  const html = readFileSync(path, "utf8");
  const getElementById = (id: string): { textContent: string } | null => {
    const found = new RegExp(`<script type="application/octet-stream" id="${id}">([^<]*)</script>`).exec(html);
    return found ? { textContent: found[1] } : null;
  };
  return readModel({ getElementById } as unknown as Document);
}

export async function flat(paths: readonly string[]): Promise<Record<string, { nodes: number; edges: [number, number][] }>> {
  const graphs: Record<string, { nodes: number; edges: [number, number][] }> = {};
  for (const path of paths) {
    const { nodes, edges } = await modelIn(path);
    const pairs = Array.from(edges.from, (from, edge): [number, number] => [from, edges.to[edge]]);
    graphs[basename(path, ".html")] = { nodes: nodes.count, edges: pairs };
  }
  return graphs;
}
