// Answers each line of standard input, a JSON list of texts, with a line: the JSON list of what a headless Cytoscape.js
// makes of each text. That is its graph data, nodes and edges, how many nodes some selectors find, and what it warned of.
import { createInterface } from "node:readline";
import cytoscape from "cytoscape";

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

for await (const line of createInterface({ input: process.stdin })) {
  console.log(JSON.stringify(JSON.parse(line).map(made)));
}
