// Answers each line of standard input, a JSON list of texts, with a line: the JSON list of what the worker of Model
// Explorer's viewer makes of each text, which is where the viewer makes its graph of a file. That is its operations with
// their edges, its layers, what it says of the graph's groups, how many nodes have a place once all layers are open,
// and its errors.
// The argument is the viewer's folder.
import fs from "node:fs";
import path from "node:path";
import { createInterface } from "node:readline";
import vm from "node:vm";

// The values of the viewer's own enumerations.
const PROCESS = 0;
const PROCESSED = 1;
const EXPAND = 2;
const EXPANDED = 3;
const PROGRESS = 8;
const OPERATION = 0;

const folder = process.argv[2];

// A worker has these beside the language itself. Only the widths of texts are made up: they need a browser's fonts.
const posted = [];
let handle = null;
class OffscreenCanvas {
  getContext() {
    return { measureText: (text) => ({ width: 6 * text.length }) };
  }
}
const worker = vm.createContext({
  OffscreenCanvas,
  console,
  addEventListener: (type, listener) => {
    if (type === "message") handle = listener;
  },
  postMessage: (message) => posted.push(message),
});
// What a browser's worker would import by itself.
const files = ["static_files/worker_deps.js", fs.readdirSync(folder).find((name) => /^worker-.*\.js$/.test(name))];
vm.runInContext("var self = globalThis; function importScripts() {}", worker);
for (const file of files) {
  vm.runInContext(fs.readFileSync(path.join(folder, file), "utf8"), worker, { filename: file });
}

function answer(request, kind) {
  posted.length = 0;
  handle({
    data: { paneId: "pane", rendererId: "pane", showOnNodeItemTypes: {}, nodeDataProviderRuns: {}, config: {}, ...request },
  });
  const errors = posted.filter(({ eventType, error }) => eventType === PROGRESS && error).map(({ error }) => error);
  return { graph: posted.find(({ eventType }) => eventType === kind)?.modelGraph, errors };
}

function operation({ id, label, namespace, attrs, incomingEdges, inputsMetadata, outputsMetadata }) {
  return {
    id,
    label,
    namespace,
    attrs: attrs ?? {},
    edges: (incomingEdges ?? []).map((edge) => [edge.sourceNodeId, edge.sourceNodeOutputId, edge.targetNodeInputId]),
    inputs: inputsMetadata ?? {},
    outputs: outputsMetadata ?? {},
  };
}

function made(graph) {
  const loaded = answer(
    { eventType: PROCESS, graph, groupNodeChildrenCountThreshold: 1_000_000, keepLayersWithASingleChild: true, initialLayout: true },
    PROCESSED,
  );
  const nodes = loaded.graph.nodes;
  const operations = nodes.filter(({ nodeType }) => nodeType === OPERATION);
  const layers = nodes.filter(({ nodeType }) => nodeType !== OPERATION);
  const found = {
    operations: operations.map(operation),
    layers: layers.map(({ id }) => id.replace(/___group___$/, "")),
    groups: loaded.graph.groupNodeAttributes ?? {},
  };
  // Without layers there is nothing to open, and the viewer would forget the places.
  const opening = { eventType: EXPAND, modelGraphId: graph.id, expand: true, all: true };
  const opened = layers.length > 0 ? answer(opening, EXPANDED) : { graph: loaded.graph, errors: [] };
  const placed = opened.graph.nodes.filter(({ x, y, width }) => [x, y, width].every(Number.isFinite)).length;
  return { ...found, placed, errors: [...loaded.errors, ...opened.errors] };
}

for await (const line of createInterface({ input: process.stdin })) {
  const collections = JSON.parse(line).map((text) => JSON.parse(text));
  console.log(JSON.stringify(collections.map(({ graphs }) => graphs.map(made))));
}
