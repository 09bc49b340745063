// Answers each line of standard input, a JSON list of Mermaid sources, with a line: the JSON list of what Mermaid's own
// parser makes of each. That is its direction, layout, vertices, edges and subgraphs with their labels decoded, or the error.
import { createInterface } from "node:readline";
import { JSDOM } from "jsdom";

const dom = new JSDOM("<!doctype html><body></body>");
globalThis.window = dom.window;
globalThis.document = dom.window.document;

// Imported only now: DOMPurify looks for a window when it is loaded.
const { default: mermaid } = await import("mermaid");
mermaid.initialize({ startOnLoad: false });

// The parser keeps `#34;` under a spelling of its own until it draws; a drawn label is HTML.
function shown(label) {
  const html = label.replaceAll("ﬂ°°", "&#").replaceAll("ﬂ°", "&").replaceAll("¶ß", ";");
  const element = dom.window.document.createElement("div");
  element.innerHTML = html.replaceAll(/<br ?\/?>/g, "\n");
  return { text: element.textContent, elements: element.getElementsByTagName("*").length };
}

async function parse(source) {
  const { config } = await mermaid.parse(source);
  const { db } = await mermaid.mermaidAPI.getDiagramFromText(source);
  return {
    ok: true,
    layout: config?.layout ?? null,
    direction: db.getDirection(),
    title: db.getAccTitle(),
    description: db.getAccDescription(),
    classes: [...db.getClasses().keys()],
    vertices: [...db.getVertices().values()].map(({ id, text, classes }) => ({ id, classes, ...shown(text) })),
    edges: db.getEdges().map(({ start, end, stroke, type }) => ({ start, end, stroke, type })),
    subgraphs: db.getSubGraphs().map(({ id, title, nodes }) => ({ id, nodes, ...shown(title) })),
  };
}

async function parseOrFail(source) {
  try {
    return await parse(source);
  } catch (error) {
    return { ok: false, error: String(error?.message ?? error) };
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  const results = [];
  for (const source of JSON.parse(line)) results.push(await parseOrFail(source));
  console.log(JSON.stringify(results));
}
