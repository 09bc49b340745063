/** Everything that the file contains about the selection. */

import { type Details, type Model, flag, roles, statuses } from "../data/model.ts";
import { statusWords } from "../draw/paint.ts";
import { bytesText, numberText } from "../draw/plain.ts";
import { rowsAt } from "../graph/columns.ts";
import { consumers } from "../graph/walks.ts";
import { modulesDrawnFor, setOpen } from "../opening.ts";
import { partOf } from "../scene/labels.ts";
import { trails } from "../state.ts";
import type { Page } from "./context.ts";
import { type Child, button, fill, h, set } from "./dom.ts";
import { reason } from "./entries.ts";
import { editorLink } from "./editor.ts";
import { badges, section, copy, facts, moduleButton, nodeButton, several, table, titleOf, typeOf } from "./pieces.ts";
import { rankings } from "./rankings.ts";

export interface DetailsPanel {
  readonly element: HTMLElement;
  show(): void;
}

const mostNeighbours = 40;

export function detailsPanel(page: Page): DetailsPanel {
  const element = h("div.details", { tabindex: -1 });
  const of = { none: graphDetails, node: nodeDetails, module: moduleDetails, cut: cutDetails, change: changeDetails };
  return {
    element,
    show() {
      const { kind, at } = page.state.selected;
      fill(element, of[kind](page, at));
      element.scrollTop = 0;
    },
  };
}

function graphDetails(page: Page): Child {
  const { model } = page;
  const { kind, framework, figures, sides, verdict } = model;
  const rows = figures.map(([name, ...amounts]) => [name, ...amounts.map(/^saved/.test(name) ? bytesText : numberText)]);
  return [
    h("h2", model.title),
    h("p", `${kind} graph${framework === "" ? "" : ` of ${framework}`}`),
    verdict ? h("p", verdict[1]) : null,
    sides.length > 0 ? h("div.sides", table(["count", ...sides], rows)) : facts(rows.map(([name, amount]) => [name, amount] as const)),
    h("p.note", "Click a box for its details, double-click a module to open it, press ? for the keys."),
    page.details && rankings(page, page.details),
  ];
}

function nodeDetails(page: Page, node: number): Child {
  const { model } = page;
  const { nodes, edges } = model;
  const details = page.details?.of(node) ?? null;
  const is = (bit: number): boolean => (nodes.flags[node] & bit) !== 0;
  const inputs = range(edges.first[node], edges.first[node + 1]);
  return [
    h("h2", titleOf(model, node)),
    badges(
      details?.role ?? roles[nodes.role[node]],
      typeOf(model, node),
      statusWords(nodes.status[node]),
      is(flag.opaque) ? "opaque" : "",
      is(flag.output) ? "output of the graph" : "",
    ),
    is(flag.failed) && h("p.failed", `\u2715 ${errorOf(details) || "This operation raised the error."}`),
    h(
      "div.copy",
      h("code", nodes.id(node)),
      button("Copy id", () => copy(page, nodes.id(node))),
    ),
    h("div.buttons", { role: "group", "aria-label": "Follow" }, trails.map(([trail, key]) => {
      const tool = page.tool(key);
      set(tool, { "aria-pressed": `${page.state.trail === trail}` });
      return tool;
    })),
    changeFields(model, (change) => change.nodes.includes(node)),
    details === null ? h("p.note", "Reading the details\u2026") : knownFields(page, details),
    section(
      "Overlay",
      facts(model.channels.map(({ name, said }) => [name, model.texts[said[node]]] as const)),
    ),
    neighbours(page, "Inputs", inputs, edges.from, (at) => range(edges.first[at], edges.first[at + 1])),
    neighbours(page, "Consumers", [...rowsAt(consumers(model), node)], edges.to, (at) => rowsAt(consumers(model), at)),
    section("Module", moduleButton(page, nodes.scope[node])),
  ];
}

const failure = "ext.failed";

/** The error of the failed operation, as in the file. */
function errorOf(details: Details | null): string {
  const said = details?.attributes.find(([key]) => key === failure)?.[1] ?? "";
  return said.replace(/^"|"$/g, "");
}

function knownFields(page: Page, { names, native, source, line, base, attributes, outputs, saved }: Details): Child {
  return [
    facts({ "names": names.join(", "), "native": native, "source": source, "view of": base }),
    line !== "" && h("pre", line),
    source !== "" && editorLink(page.model.title, source),
    section("Attributes", facts(attributes.filter(([key]) => key !== failure))),
    section("Outputs", facts(outputs.map((output, at) => [String(at), output] as const))),
    section(
      "Saved for backward",
      table(
        ["slot", "tensor, storage", "bytes"],
        saved.map(({ slot, tensor, bytes, storage, state, origin }) => [
          slot,
          [
            tensor,
            state !== "" && h("em", ` ${state}`),
            h("br"),
            origin >= 0 ? nodeButton(page, origin, storage || page.model.nodes.id(origin)) : storage,
          ],
          bytes === null ? "unknown" : bytesText(bytes),
        ]),
      ),
    ),
  ];
}

function moduleDetails(page: Page, at: number): Child {
  const { model, sums, shown } = page;
  const { of, times, parts } = shown.scopes;
  const scope = of[at];
  const { scopes, texts } = model;
  const { calls, parameters, own, trainable, saved, alike: first } = scopes;
  const counts = sums.byStatus.subarray(scope * statuses.length);
  const changed = statuses.flatMap((status, place) => (place > 0 && counts[place] > 0 ? [`${counts[place]} ${status}`] : []));
  const word = page.state.opened.has(shown.scopes.drawn(at)) ? "Close" : "Open";
  const others = modulesDrawnFor(shown, (own) => scopes.className[own] === scopes.className[scope]);
  return [
    h("h2", model.scopes.path(scope) || "the whole graph"),
    badges(
      texts[scopes.className[scope]],
      times[at] > 1 ? `\u00d7${times[at]} equal layers` : "",
      parts[at] > 1 ? `part: ${partOf(shown, at)}` : "",
    ),
    h(
      "div.buttons",
      button(word, () => page.toggle(at)),
      others.length > 1 && button(`${word} all ${texts[scopes.className[scope]]}`, () => page.change({ opened: setOpen(page.state.opened, shown.scopes.parent, others, word === "Open") })),
      button("Copy path", () => copy(page, model.scopes.path(scope))),
    ),
    facts({
      "settings": texts[scopes.detail[scope]],
      "calls": calls[scope],
      "nodes": sums.nodes[scope],
      "parameters": parameters[scope],
      "own parameters": own[scope] === parameters[scope] ? "" : own[scope],
      "trainable parameters": trainable[scope] === parameters[scope] ? "" : trainable[scope],
      "saved": saved[scope] && bytesText(saved[scope]),
      "cuts": sums.cuts[scope],
      "changes": changed.join(", "),
      "equal to": first[scope] === scope ? "" : model.scopes.path(first[scope]),
    }),
    changeFields(model, (change) => change.scopes.includes(scope)),
    scope > 0 && section("In", moduleButton(page, scopes.parent[scope])),
  ];
}

function cutDetails(page: Page, at: number): Child {
  const { text, advice, source, via, meant, at: node, into, slot, scope, names } = page.model.cuts[at];
  return [
    h("h2", `\u2298 ${reason(page.model.cuts[at])}`),
    text !== "" && h("p", text),
    advice !== "" && h("p.advice", advice),
    facts({ "source": source, "via": via, "meant": meant }),
    section("Stops at", node >= 0 && nodeButton(page, node)),
    section(slot >= 0 ? `Before input ${slot} of` : "Before", into >= 0 && nodeButton(page, into)),
    section("In", scope > 0 && moduleButton(page, scope)),
    section(`${numberText(names.length)} behind it`, several(names, 500, (name) => name)),
  ];
}

function changeDetails(page: Page, at: number): Child {
  const { changes } = page.model;
  const { kind, group, text, nodes } = changes[at];
  return [
    h("h2", `Change ${at + 1} of ${changes.length}`),
    // A module that came or went is a group of its own.
    badges(kind, group === text ? "" : group),
    h("p", text),
    changeFields(page.model, (_, each) => each === at),
    section("Nodes", several(nodes, mostNeighbours, (node) => nodeButton(page, node))),
  ];
}

/** The labels of the fields of a module. */
const fieldWords: Readonly<Record<string, string>> = { detail: "settings", own: "own parameters", total: "parameters", trainable: "trainable parameters" };

/** Both values of each field that differs. */
function changeFields({ changes }: Model, isWanted: (change: Model["changes"][number], at: number) => boolean): Child {
  return changes
    .filter(isWanted)
    .map(({ fields }) => {
      const rows = fields.slice(0, 200).map(([path, before, after]) => [fieldWords[path] ?? path, before, after]);
      return h("div.fields", table(["field", "before", "after"], rows));
    });
}

function range(first: number, end: number): number[] {
  return Array.from({ length: end - first }, (_, at) => first + at);
}

/** The nodes at the ends of edges. If accumulators are not drawn, the node after one is listed in its place. */
function neighbours(page: Page, title: string, all: readonly number[], ends: Int32Array, behind: (node: number) => Iterable<number>): Child {
  const { slot, output, kind, kinds, status } = page.model.edges;
  const isHidden = (edge: number): boolean => page.state.switches.dropAccumulators && (page.model.nodes.flags[ends[edge]] & flag.accumulates) !== 0;
  const edges = all.flatMap((edge) => (isHidden(edge) ? [...behind(ends[edge])] : [edge]));
  return section(
    `${title} (${numberText(edges.length)})`,
    several(edges, mostNeighbours, (edge) => {
      const words = [title === "Inputs" && typeOf(page.model, ends[edge]), slot[edge] >= 0 && `input ${slot[edge]}`, output[edge] > 0 && `output ${output[edge]}`, kind[edge] > 0 && kinds[kind[edge]]];
      const note = words.filter((word) => word).join(", ");
      return [nodeButton(page, ends[edge]), h("span", { class: `note ${statuses[status[edge]]}` }, ` ${note} ${statusWords(status[edge])}`)];
    }),
  );
}
