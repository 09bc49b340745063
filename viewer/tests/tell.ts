// What the viewer reads of pages, for the tests of the exporter: takes a JSON list with the path of a page a line, and gives a line of JSON for each.
import { readFile } from "node:fs/promises";
import { createInterface } from "node:readline";
import { readDetails } from "../src/data/details.ts";
import { statuses } from "../src/data/model.ts";
import { readModel } from "../src/data/read.ts";

function pageOf(html: string): Document {
  const getElementById = (id: string) => {
    const found = new RegExp(`<script type="application/octet-stream" id="${id}">([^<]*)</script>`).exec(html);
    return found === null ? null : { textContent: found[1] };
  };
  return { getElementById } as unknown as Document;
}

async function told(path: string): Promise<unknown> {
  const root = pageOf(await readFile(path, "utf8"));
  const model = await readModel(root);
  const details = await readDetails(root, model);
  const { nodes, edges, scopes, texts } = model;
  const range = (count: number) => Array.from({ length: count }, (_, at) => at);
  const into = (node: number) => range(edges.first[node + 1] - edges.first[node]).map((at) => at + edges.first[node]);
  return {
    title: model.title,
    verdict: model.verdict,
    kind: model.kind,
    framework: model.framework,
    scopes: range(scopes.count).map((scope) => ({
      parent: scopes.parent[scope],
      name: texts[scopes.name[scope]],
      className: texts[scopes.className[scope]],
      detail: texts[scopes.detail[scope]],
      calls: scopes.calls[scope],
      parameters: scopes.parameters[scope],
      own: scopes.own[scope],
      trainable: scopes.trainable[scope],
      saved: scopes.saved[scope],
      alike: scopes.alike[scope],
    })),
    nodes: range(nodes.count).map((node) => ({
      found: nodes.find(nodes.id(node)),
      scope: nodes.scope[node],
      place: nodes.role[node],
      op: texts[nodes.op[node]],
      name: texts[nodes.name[node]],
      dtype: texts[nodes.dtype[node]],
      shape: texts[nodes.shape[node]],
      bytes: nodes.saved[node],
      flags: nodes.flags[node],
      status: statuses[nodes.status[node]],
      edges: into(node).map((edge) => [
        nodes.id(edges.from[edge]),
        edges.output[edge],
        edges.slot[edge],
        edges.kinds[edges.kind[edge]],
        statuses[edges.status[edge]],
      ]),
      ends: into(node).map((edge) => edges.to[edge]),
      line: details.sources[details.sourceOf[node]],
      details: details.of(node),
    })),
    cuts: model.cuts,
    channels: model.channels.map((channel) => ({
      ...channel,
      look: [...channel.look].map((look) => channel.looks[look]),
      said: [...channel.said].map((text) => texts[text]),
    })),
    changes: model.changes,
  };
}

for await (const line of createInterface({ input: process.stdin })) {
  const [path] = JSON.parse(line);
  process.stdout.write(`${JSON.stringify(await told(path))}\n`);
}
