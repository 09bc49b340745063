/** The text in boxes and over frames. */
import { type Model, flag, roles } from "../data/model.ts";
import { bytesText, plain, formatQuantity } from "../draw/plain.ts";
import { type Sums, sharedStatus, sumsOf } from "../draw/sums.ts";
import { rowsAt } from "../graph/columns.ts";
import type { Shown } from "../graph/shown.ts";
import type { Tree } from "./buckets.ts";
import { cutToWidth, font, textWidth } from "./widths.ts";

export interface Label {
  readonly lines: readonly string[];
  readonly width: number;
  readonly height: number;
}

const widest = 230;
const padding = { across: 10, down: 7 } as const;
const least = 56;
const mostInline = 3;
const mostShape = 120;

const functionRole = roles.indexOf("function");
const parameterRole = roles.indexOf("parameter");
const outputRole = roles.indexOf("output");

/** A box as wide as its lines, and so that a shape below it stands no further than half the gap beside it. */
function makeBox(lines: string[], shape = ""): Label {
  const cut = lines.filter((line) => line).map((line, place) => cutToWidth(line, widest, place === 0));
  const width = cut.reduce((most, line, place) => Math.max(most, textWidth(line, place === 0)), 0);
  return { lines: cut, width: Math.ceil(Math.max(least, width + 2 * padding.across, 2 * Math.min(mostShape, textWidth(shape)) - 12)), height: cut.length * font.line + 2 * padding.down };
}

/** The operation, the dtype and shape of its output, and its parameters; for a tensor its name first. */
export function nodeLabel(tree: Tree, node: number): Label {
  const { model, switches, instead } = tree.shown;
  const { texts, nodes, edges } = model;
  const inline = Array.from(rowsAt(tree.inline, node));
  const text = (column: Int32Array): string => texts[column[node]];
  const type = tensor(text(nodes.dtype), text(nodes.shape));
  const isFunction = nodes.role[node] === functionRole;
  const name = nameWithin(model, node, text(nodes.name));
  const was = model.was?.get(node);
  const title = isFunction ? (was ? `${was} \u2192 ` : "") + (text(nodes.op) || name) : name || text(nodes.op) || roles[nodes.role[node]];
  const lines = [title + (nodes.flags[node] & flag.opaque ? " (opaque)" : "")];
  if (isFunction && name && name !== title) lines.push(name);
  // An output shows the type of its input; it often has none itself.
  if (type && !(nodes.role[node] === outputRole && !text(nodes.shape)) && !(switches.layers && isFunction)) lines.push(type);
  // The shapes that did not match matter here.
  const into = nodes.flags[node] & flag.failed ? Array.from({ length: edges.first[node + 1] - edges.first[node] }, (_, at) => edges.from[edges.first[node] + at]) : [];
  const given = into.map((from) => `${inline.includes(instead[from]) ? lastOf(model, instead[from]) : ""} ${texts[nodes.shape[from]]}`.trim());
  const more = given.length ? given : inline.map((parameter) => parameterText(model, parameter));
  return makeBox([...lines, ...wrapWords(more)], switches.layers && !given.length ? shapeOf(tree, [node]) : "");
}

/** The shape of the outputs of some nodes, with its dtype if that is not the usual one. */
function shapeOf({ shown: { model: { texts, nodes } }, dtype }: Tree, found: readonly number[]): string {
  const all = new Set(found.map((node) => (node < 0 ? "" : `${nodes.dtype[node] === dtype ? "" : `${texts[nodes.dtype[node]]} `}${texts[nodes.shape[node]]}`)));
  const [first] = all;
  return first + (all.size > 1 ? " …" : "");
}

/** The text on a line; a parameter that goes to another module is written in its own. */
export function shapeOn(tree: Tree, wires: readonly number[]): string {
  const { model, wires: all } = tree.shown;
  const told = wires.filter((wire) => model.nodes.role[all.from[wire]] !== parameterRole);
  const words = told.length ? shapeOf(tree, told.map((wire) => all.by[wire])) : "";
  return words === "[]" ? "" : cutToWidth(words, mostShape);
}

/** A name without the path of the module that holds it, which stands above. */
export function nameWithin({ scopes, nodes }: Model, node: number, name: string): string {
  const path = `${scopes.path(nodes.scope[node])}.`;
  return name.startsWith(path) ? name.slice(path.length) : name;
}

/** Words in as few lines as they fit in, beyond some only their number. */
function wrapWords(words: readonly string[]): string[] {
  const lines: string[] = [];
  for (const [place, word] of words.entries()) {
    const longer = lines.length ? `${lines[lines.length - 1]} · ${word}` : "";
    if (longer && textWidth(longer) <= widest) lines[lines.length - 1] = longer;
    else if (lines.length < mostInline) lines.push(word);
    else return [...lines, `+ ${words.length - place} more`];
  }
  return lines;
}

/** "weight [8, 4]": the last part of its name says enough in the box of the operation that takes it. */
function parameterText(model: Model, node: number): string {
  return `${lastOf(model, node)} ${model.texts[model.nodes.shape[node]]}`.trim();
}

function lastOf({ texts, nodes }: Model, node: number): string {
  return lastPart(texts[nodes.name[node]] || texts[nodes.op[node]]);
}

function lastPart(name: string): string {
  return plain(name.slice(name.lastIndexOf(".") + 1), 200);
}

export function tensor(dtype: string, shape: string): string {
  return `${dtype} ${shape}`.trim();
}

/** The label of a closed module: name and class, output, parameters and saved bytes; for a layer, its parameters one by one. */
export function scopeLabel(tree: Tree, scope: number): Label {
  const { shown, gives: givers, givesMore, nodes, own } = tree;
  const { model, scopes, switches } = shown;
  const gives = givers[scope];
  const isLost = shown.lost.has(scope);
  const of = scopes.of[scope];
  const lines = [caption(shown, scope)];
  if (switches.layers || isLost) {
    const parameters = isLost
      ? model.cuts.flatMap((cut) => (cut.scope === scopes.of[scope] && !cut.op && !cut.source ? cut.names.map((name) => `${lastPart(name)} ${cut.shape}`) : []))
      : Array.from(rowsAt(own, of), (node) => parameterText(model, node)).sort((one, other) => +one.startsWith("bias") - +other.startsWith("bias"));
    const all = model.scopes.parameters[of] * scopes.times[scope];
    const isRun = scopes.isRun(scope);
    if (isRun) lines.push(`${formatCount(nodes[scope])} nodes`);
    else if (isLayer(tree, scope)) lines.push(...wrapWords(parameters));
    else if (all && !scopes.part[scope]) lines.push(`${formatCount(all)} parameters`);
    if (model.scopes.calls[of] > 1 && tree.copies[of] === 1 && !isRun) lines.push(`${formatCount(model.scopes.calls[of])} calls`);
    if (isLost) lines.push("no gradient");
    return makeBox(lines, gives >= 0 ? shapeOf(tree, [gives]) : "");
  }
  if (gives >= 0) {
    const type = tensor(model.texts[model.nodes.dtype[gives]], model.texts[model.nodes.shape[gives]]);
    if (type) lines.push(type + (givesMore[scope] ? ", …" : ""));
  }
  if (scopes.isRun(scope)) lines.push(`${formatCount(nodes[scope])} nodes`);
  else if (!scopes.part[scope]) {
    // The file describes a module with all its parts, including those in steps.
    const all = scopes.parts[scope] > 1 || of !== scope ? " in all" : "";
    const said = ([["parameters", formatCount], ["saved", bytes]] as const).map(([what, text]) => {
      const amount = model.scopes[what][of] * scopes.times[scope];
      return amount ? `${text(amount)} ${what}${all}` : "";
    });
    lines.push(...wrapWords(said.filter((words) => words)));
  }
  return makeBox(lines);
}

/** Whether a module holds no other one. */
export function isLayer({ children, scopesFrom }: Tree, scope: number): boolean {
  return rowsAt(children, scope).every((item) => item < scopesFrom);
}

/** "attn: SelfAttention", "0–11: Block ×12", "relu: ReLU (2 of 3)", "fc: Linear (backward)". */
export function caption(shown: Shown, scope: number): string {
  const { model, scopes } = shown;
  if (scopes.isRun(scope)) return scopes.times[scope] > 1 ? scopes.name(scope) : `nodes ${scopes.name(scope)}`;
  const className = classOf(model, shown, scope);
  const name = scopes.parts[scope] > 1 ? scopes.name(scope).replace(/#\d+$/, "") : scopes.name(scope);
  const times = scopes.times[scope] > 1 ? ` ×${scopes.times[scope]}` : "";
  const part = scopes.parts[scope] > 1 ? ` (${partOf(shown, scope)})` : "";
  const both = name && className ? `${name}: ${className}` : name || className || model.title;
  return `${both}${times}${part}`;
}

/** Which part of its module it is: "2 of 3"; in a graph of both passes "forward" or "backward" where that tells it. */
export function partOf({ scopes: { part, parts, phases } }: Shown, scope: number): string {
  const isTold = parts[scope] === 2 && phases[0] > 1 && phases[scope] < 3;
  return isTold ? (phases[scope] > 1 ? "backward" : "forward") : `${part[scope] + 1} of ${parts[scope]}`;
}

const sums = new WeakMap<Shown, Sums>();

/** The class of a module; if it changed, the class in the first graph, or both. */
function classOf({ scopes, texts, was, classWas }: Model, shown: Shown, scope: number): string {
  const now = texts[scopes.className[shown.scopes.of[scope]]];
  const before = was && classWas?.get(shown.scopes.of[scope]);
  if (!before) return now;
  if (!sums.has(shown)) sums.set(shown, sumsOf(shown.model, shown));
  const status = sharedStatus(sums.get(shown)!, scope);
  return status === 2 ? before : status === 1 ? now : `${before} \u2192 ${now}`;
}

const large = ["", " k", " M", " G", " T"];

const short = (text: string): string => text.replace(".0", "");

/** "1.2 M" */
export function formatCount(value: number): string {
  return short(formatQuantity(value, large));
}

/** "34.5 MB" */
export function bytes(value: number): string {
  return short(bytesText(value));
}
