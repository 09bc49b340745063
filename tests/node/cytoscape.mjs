// Reads a JSON list of texts on standard input, hands each to a headless Cytoscape.js, and writes a JSON list of what that
// made of them: its graph data, nodes and edges, how many nodes some selectors find, and what it warned of.
import cytoscape from "cytoscape";

async function read(stream) {
  const chunks = [];
  for await (const chunk of stream) chunks.push(chunk);
  return Buffer.concat(chunks).toString("utf8");
}

const warnings = [];
console.warn = (...words) => warnings.push(words.join(" "));
console.error = console.warn;

function made(text) {
  warnings.length = 0;
  const cy = cytoscape({ headless: true, ...JSON.parse(text) });
  const found = {
    data: cy.data(),
    nodes: cy.nodes().map((node) => ({ data: node.data(), classes: node.classes(), isParent: node.isParent() })),
    edges: cy.edges().map((edge) => ({ data: edge.data(), classes: edge.classes() })),
    selected: Object.fromEntries(
      ["node.scope", "node.parameter", "node.function", "edge.view", "edge[output_nr > 0]"].map((selector) => [
        selector,
        cy.$(selector).length,
      ]),
    ),
    warnings: [...warnings],
  };
  cy.destroy();
  return found;
}

process.stdout.write(JSON.stringify(JSON.parse(await read(process.stdin)).map(made)));
