/** Everything that the file knows of what is selected. */

import { type Details, type Model, flag, roles, statuses } from "../data/model.ts";
import { statusWords } from "../draw/paint.ts";
import { bytesText, numberText } from "../draw/plain.ts";
import { pathOf } from "../draw/sums.ts";
import { type Groups, grouped } from "../graph/columns.ts";
import type { Trail } from "../state.ts";
import type { Page } from "./context.ts";
import { reason } from "./cuts.ts";
import { type Child, button, fill, h } from "./dom.ts";
import { badges, copy, facts, moduleButton, nodeButton, titleOf } from "./pieces.ts";

export interface DetailsPanel {
  readonly element: HTMLElement;
  show(): void;
}

const mostNeighbours = 40;

export function detailsPanel(page: Page): DetailsPanel {
  const element = h("div", { class: "details", tabindex: -1 });
  let readers: Groups | null = null;
  return {
    element,
    show() {
      const { selected } = page.state;
      if (selected.kind === "none") fill(element, ...ofGraph(page));
      else if (selected.kind === "node")
        fill(element, ...ofNode(page, selected.at, (readers ??= grouped(page.model.edges.from, page.model.nodes.count))));
      else if (selected.kind === "module") fill(element, ...ofModule(page, selected.at));
      else if (selected.kind === "cut") fill(element, ...ofCut(page, selected.at));
      else fill(element, ...ofChange(page, selected.at));
      element.scrollTop = 0;
    },
  };
}

function ofGraph({ model }: Page): Child[] {
  return [
    h("h2", {}, model.title || "Graph"),
    facts([
      ["kind", `${model.kind} graph${model.framework === "" ? "" : ` of ${model.framework}`}`],
      ["nodes", numberText(model.nodes.count)],
      ["edges", numberText(model.edges.count)],
      ["modules", numberText(model.scopes.count - 1)],
      ["parameters", numberText(model.scopes.parameters[0])],
      ["saved", bytesText(model.scopes.saved[0])],
      ["cuts", model.cuts.length > 0 ? numberText(model.cuts.length) : ""],
      ["changes", model.changes.length > 0 ? numberText(model.changes.length) : ""],
    ]),
    h("p", { class: "note" }, "Click a box for what the file knows of it, double-click a module to open it, press ? for the keys."),
  ];
}

function ofNode(page: Page, node: number, readers: Groups): Child[] {
  const { model } = page;
  const { nodes, texts, edges } = model;
  const details = page.details?.of(node) ?? null;
  const inputs = Array.from({ length: edges.first[node + 1] - edges.first[node] }, (_, at) => edges.first[node] + at);
  const consumers = readers.rows.subarray(readers.first[node], readers.first[node + 1]);
  const changes = model.changes.flatMap((change, at) => (change.nodes.includes(node) ? [at] : []));
  return [
    h("h2", {}, titleOf(model, node)),
    badges([
      details?.role ?? roles[nodes.role[node]],
      `${texts[nodes.dtype[node]]}${texts[nodes.shape[node]]}`,
      statusWords(nodes.status[node]),
      (nodes.flags[node] & flag.opaque) !== 0 ? "opaque" : "",
      (nodes.flags[node] & flag.output) !== 0 ? "output of the graph" : "",
    ]),
    (nodes.flags[node] & flag.failed) !== 0 &&
      h("p", { class: "failed" }, `\u2715 ${errorOf(details) || "This operation raised the error that ended the forward."}`),
    h(
      "div",
      { class: "copy" },
      h("code", {}, nodes.id(node)),
      button("Copy id", () => copy(page, nodes.id(node))),
    ),
    ...trailButtons(page),
    ...changes.flatMap((at) => changeFields(page, at)),
    ...(details === null ? [h("p", { class: "note" }, "Reading the details\u2026")] : known(page, details)),
    ...overlays(model, node),
    neighbours(
      page,
      "Inputs",
      inputs.map((edge) => [edges.from[edge], slotWords(model, edge), edges.status[edge]]),
    ),
    neighbours(
      page,
      "Consumers",
      [...consumers].map((edge) => [edges.to[edge], slotWords(model, edge), edges.status[edge]]),
    ),
    h("h3", {}, "Module"),
    moduleButton(page, nodes.scope[node]),
  ];
}

/** What the failed operation raised, as the file has it. */
function errorOf(details: Details | null): string {
  const said = details?.attributes.find(([key]) => key === "ext.failed")?.[1] ?? "";
  return said.replace(/^"|"$/g, "");
}

function known(page: Page, details: Details): Child[] {
  return [
    facts([
      ["names", details.names.join(", ")],
      ["native", details.native],
      ["source", details.source],
      ["view of", details.base],
    ]),
    details.attributes.length > 0 && h("h3", {}, "Attributes"),
    facts(details.attributes),
    details.outputs.length > 0 && h("h3", {}, "Outputs"),
    facts(details.outputs.map((output, at) => [String(at), output])),
    details.saved.length > 0 && h("h3", {}, "Saved for backward"),
    details.saved.length > 0 &&
      h(
        "table",
        {},
        h("thead", {}, h("tr", {}, ...["slot", "tensor, storage", "bytes"].map((words) => h("th", { scope: "col" }, words)))),
        h(
          "tbody",
          {},
          ...details.saved.map(({ slot, tensor, bytes, storage, state, origin }) =>
            h(
              "tr",
              {},
              h("th", { scope: "row" }, slot),
              h(
                "td",
                {},
                tensor,
                state === "" ? null : h("em", {}, ` ${state}`),
                h("br"),
                origin >= 0 ? nodeButton(page, origin, storage || page.model.nodes.id(origin)) : storage,
              ),
              h("td", { class: "number" }, bytes === null ? "unknown" : bytesText(bytes)),
            ),
          ),
        ),
      ),
  ];
}

function overlays(model: Model, node: number): Child[] {
  const said = model.channels.flatMap((channel) =>
    channel.said[node] > 0 ? [[channel.name, `${model.texts[channel.said[node]]}${channel.unit === "" ? "" : ` ${channel.unit}`}`] as const] : [],
  );
  return said.length === 0 ? [] : [h("h3", {}, "Overlay"), facts(said)];
}

function ofModule(page: Page, at: number): Child[] {
  const { model, sums, shown } = page;
  const scope = shown.scopes.of[at];
  const { scopes, texts } = model;
  const wide = statuses.length;
  const changed = statuses.flatMap((status, place) =>
    place > 0 && sums.byStatus[scope * wide + place] > 0 ? [`${sums.byStatus[scope * wide + place]} ${status}`] : [],
  );
  const parts = shown.scopes.parts[at];
  return [
    h("h2", {}, pathOf(model, scope) || "the whole graph"),
    badges([
      texts[scopes.className[scope]],
      shown.scopes.times[at] > 1 ? `\u00d7${shown.scopes.times[at]} equal layers` : "",
      parts > 1 ? `part ${shown.scopes.part[at] + 1} of ${parts}` : "",
    ]),
    h(
      "div",
      { class: "buttons" },
      button(page.state.opened.has(shown.scopes.drawn(at)) ? "Close" : "Open", () => page.toggle(at)),
      button("Copy path", () => copy(page, pathOf(model, scope))),
    ),
    facts([
      ["detail", texts[scopes.detail[scope]]],
      ["calls", numberText(scopes.calls[scope])],
      ["nodes", numberText(sums.nodes[scope])],
      ["parameters", numberText(scopes.parameters[scope])],
      ["own", scopes.own[scope] !== scopes.parameters[scope] ? numberText(scopes.own[scope]) : ""],
      ["trainable", scopes.trainable[scope] !== scopes.parameters[scope] ? numberText(scopes.trainable[scope]) : ""],
      ["saved", scopes.saved[scope] > 0 ? bytesText(scopes.saved[scope]) : ""],
      ["cuts", sums.cuts[scope] > 0 ? numberText(sums.cuts[scope]) : ""],
      ["changes", changed.join(", ")],
      ["equal to", scopes.alike[scope] !== scope ? pathOf(model, scopes.alike[scope]) : ""],
    ]),
    ...model.changes.flatMap((change, each) => (change.scopes.includes(scope) ? changeFields(page, each) : [])),
    h("h3", {}, "In"),
    scope === 0 ? null : moduleButton(page, scopes.parent[scope]),
  ];
}

function ofCut(page: Page, at: number): Child[] {
  const cut = page.model.cuts[at];
  return [
    h("h2", {}, `\u2298 ${reason(cut)}`),
    cut.text !== "" && h("p", {}, cut.text),
    cut.advice !== "" && h("p", { class: "advice" }, cut.advice),
    facts([
      ["source", cut.source],
      ["via", cut.via],
      ["meant", cut.meant],
    ]),
    cut.at >= 0 && h("h3", {}, "Stops at"),
    cut.at >= 0 && nodeButton(page, cut.at),
    cut.into >= 0 && h("h3", {}, cut.slot >= 0 ? `Before input ${cut.slot} of` : "Before"),
    cut.into >= 0 && nodeButton(page, cut.into),
    cut.scope > 0 && h("h3", {}, "In"),
    cut.scope > 0 && moduleButton(page, cut.scope),
    cut.names.length > 0 && h("h3", {}, `${numberText(cut.names.length)} behind it`),
    h("ul", {}, ...cut.names.slice(0, 500).map((name) => h("li", {}, name))),
  ];
}

function ofChange(page: Page, at: number): Child[] {
  const change = page.model.changes[at];
  return [
    h("h2", {}, `Change ${at + 1} of ${page.model.changes.length}`),
    badges([change.kind, change.group]),
    h("p", {}, change.text),
    ...changeFields(page, at),
    change.nodes.length > 0 && h("h3", {}, "Nodes"),
    h("ul", { class: "plainly" }, ...change.nodes.slice(0, mostNeighbours).map((node) => h("li", {}, nodeButton(page, node)))),
    change.nodes.length > mostNeighbours && h("p", { class: "note" }, `and ${numberText(change.nodes.length - mostNeighbours)} more`),
  ];
}

/** Both values of each field that differs. */
function changeFields({ model }: Page, at: number): Child[] {
  const { fields } = model.changes[at];
  if (fields.length === 0) return [];
  return [
    h(
      "table",
      { class: "fields" },
      h("thead", {}, h("tr", {}, ...["field", "before", "after"].map((words) => h("th", { scope: "col" }, words)))),
      h(
        "tbody",
        {},
        ...fields
          .slice(0, 200)
          .map(({ path, before, after }) =>
            h("tr", {}, h("th", { scope: "row" }, path), h("td", { class: "before" }, before), h("td", { class: "after" }, after)),
          ),
      ),
    ),
  ];
}

const trailWords: readonly (readonly [Trail, string])[] = [
  ["path", "Path to the loss"],
  ["ancestors", "Ancestors"],
  ["descendants", "Descendants"],
];

function trailButtons(page: Page): Child[] {
  const toPath = page.model.kind === "forward" ? "Path to the output" : "Path to the loss";
  return [
    h(
      "div",
      { class: "buttons", role: "group", "aria-label": "Follow" },
      ...trailWords.map(([trail, words]) =>
        button(trail === "path" ? toPath : words, () => page.change({ trail: page.state.trail === trail ? "" : trail }), {
          "aria-pressed": page.state.trail === trail ? "true" : "false",
        }),
      ),
    ),
  ];
}

function neighbours(page: Page, title: string, all: readonly (readonly [node: number, note: string, status: number])[]): Child {
  if (all.length === 0) return null;
  return h(
    "section",
    {},
    h("h3", {}, `${title} (${numberText(all.length)})`),
    h(
      "ul",
      { class: "plainly" },
      ...all
        .slice(0, mostNeighbours)
        .map(([node, note, status]) =>
          h("li", {}, nodeButton(page, node), h("span", { class: `note ${statuses[status]}` }, ` ${note} ${statusWords(status)}`)),
        ),
    ),
    all.length > mostNeighbours && h("p", { class: "note" }, `and ${numberText(all.length - mostNeighbours)} more`),
  );
}

function slotWords(model: Model, edge: number): string {
  const { slot, output, kind, kinds } = model.edges;
  const parts = [
    slot[edge] >= 0 ? `input ${slot[edge]}` : "",
    output[edge] > 0 ? `output ${output[edge]}` : "",
    kind[edge] > 0 ? kinds[kind[edge]] : "",
  ];
  return parts.filter((part) => part !== "").join(", ");
}
