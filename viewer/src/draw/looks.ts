/** The look of each box of a scene for the chosen colouring, and its legend. */

import { type Model, flag, roles, statuses } from "../data/model.ts";
import type { Shown } from "../graph/shown.ts";
import type { Scene } from "../scene/scene.ts";
import { bytesText, plain } from "./plain.ts";
import { type Sums, sharedStatus } from "./sums.ts";
import { type Token, lookSign, lookToken } from "./theme.ts";

export interface LegendEntry {
  readonly token: Token;
  readonly sign: string;
  readonly words: string;
}

export interface Looks {
  readonly fill: readonly Token[];
  readonly sign: readonly string[];
  /** The status of each box; of a closed module the one that all in it share, else 0. */
  readonly status: Uint8Array;
  /** A bit for each status that a closed module holds. */
  readonly holds: Uint8Array;
  /** 1 where the forward failed, 2 of a module that is drawn for the parameters that get no gradient. */
  readonly failed: Uint8Array;
  /** The status of each frame that all in it share, else 0. */
  readonly frames: Uint8Array;
  readonly legend: readonly LegendEntry[];
}

/** The looks of nodes and scopes, made once for each colouring, before any scene. */
export interface Colouring {
  readonly name: string;
  /** Of a box, with the parameters that are written in it. */
  node(node: number, inline: readonly number[]): readonly [Token, string];
  /** Of a closed module, or of so many equal ones. */
  scope(scope: number, times: number): readonly [Token, string];
  readonly legend: readonly LegendEntry[];
}

export const statusSigns = ["", "+", "\u2212", "~", ">", "^"] as const;
export const roleSigns: Readonly<Record<string, string>> = {
  leaf: "\u25cf",
  parameter: "\u25cf",
  buffer: "\u25a0",
  input: "\u2193",
  constant: "\u25c6",
  output: "\u25ce",
  function: "",
  other: "",
};

/** The names that one can colour by, with their words. */
export function colourings(model: Model, sums: Sums): (readonly [name: string, words: string])[] {
  return [
    ...(sums.differs ? [["changes", "changes"] as const] : []),
    // Who gives an overlay wants to see it.
    ...model.channels.map((channel) => [`overlay:${channel.name}`, plain(channel.name, 40)] as const),
    ["class", "class"],
    ["role", "role"],
    ["saved", "bytes saved"],
  ];
}

/** Where equal layers and steps are drawn once, `isRolled`, the first of them stands for all. */
export function colouring(model: Model, sums: Sums, name: string, isRolled = false): Colouring {
  if (name === "changes") return colourByChanges(model, sums);
  if (name === "role") return colourByRole(model);
  if (name === "saved") return colourBySaved(model);
  const channel = model.channels.findIndex((each) => `overlay:${each.name}` === name);
  return channel >= 0 ? colourByChannel(model, channel, isRolled) : colourByClass(model);
}

function colourByRole(model: Model): Colouring {
  const look = roles.map((role) => [`role-${role}` as Token, roleSigns[role]] as const);
  const entries = roles.flatMap((role, at) => (model.nodes.role.includes(at) ? [{ token: look[at][0], sign: look[at][1], words: role }] : []));
  return {
    name: "role",
    node: (node) => look[model.nodes.role[node]] ?? look[0],
    scope: () => ["module", ""],
    legend: [...entries, { token: "module", sign: "", words: "closed module" }],
  };
}

function colourByChanges(model: Model, sums: Sums): Colouring {
  const look = statuses.map((status, at) => [status === "same" ? "plain" : (status as Token), statusSigns[at]] as const);
  return {
    name: "changes",
    node: (node) => look[model.nodes.status[node]],
    scope: (scope) => (sharedStatus(sums, scope) > 0 ? look[sharedStatus(sums, scope)] : ["module", ""]),
    legend: look.map(([token, sign], at) => ({ token, sign, words: statuses[at] + (/added|removed/.test(statuses[at]) ? `: only in ${plain(model.sides[2 - at] ?? "", 60)}` : "") })),
  };
}

const tint = (number: number | string) => `tint-${number}` as Token;
/** Patterns of class names, each with its own look; the tint of lost gradients is not among them. */
const families: readonly (readonly [name: RegExp, look: Token])[] = [
  [/^$|^(Sequential|Module(List|Dict))$/, "module"],
  [/norm/i, tint(6)],
  [/attention|attn/i, tint(3)],
  [/mlp|feedforward|ffn/i, tint(1)],
  [/embed/i, tint(4)],
  [/linear|Conv1D$/i, tint(0)],
  [/conv/i, tint(7)],
  [/lstm|gru|rnn/i, tint(4)],
  [/elu|sigmoid|tanh|swish|silu|softmax|activation/i, tint(2)],
  [/drop|pool|flatten|identity/i, "plain"],
];
const otherTints = "12347";

/** The same for a name in every graph. */
export function lookOfClass(name: string): Token {
  let sum = 0;
  for (const letter of name) sum = (sum * 31 + letter.charCodeAt(0)) % 99;
  return families.find(([family]) => family.test(name))?.[1] ?? tint(otherTints[sum % otherTints.length]);
}

/** Colours modules by their class, and everything else by its role. */
function colourByClass(model: Model): Colouring {
  const { className } = model.scopes;
  return { ...colourByRole(model), name: "class", scope: (scope) => [lookOfClass(model.texts[className[scope]]), ""] };
}

function colourBySaved(model: Model): Colouring {
  const { nodes, scopes } = model;
  const scale = scaleOf([...nodes.saved, ...scopes.saved.subarray(1)].filter((bytes) => bytes > 0), bytesText);
  const look = (bytes: number): readonly [Token, string] => [bytes > 0 ? scale.token(scale.part(bytes)) : "look-quiet", ""];
  return {
    name: "saved",
    node: (node) => look(nodes.saved[node]),
    scope: (scope, times) => look(scopes.saved[scope] * times),
    legend: [{ token: "look-quiet", sign: "", words: "nothing saved" }, ...scale.legend],
  };
}

/** Numbers as colours without steps, by magnitude where all are above zero; of one number the colour is that of the middle. */
function scaleOf(numbers: readonly number[], textOf: (value: number) => string) {
  const [lowest, most] = numbers.reduce(([low, high], each) => [Math.min(low, each), Math.max(high, each)], [Infinity, -Infinity]);
  const by = lowest > 0 ? Math.log : Number;
  // One number close to zero would leave all others one colour.
  const least = lowest > 0 ? Math.max(lowest, Number((most / 1e4).toPrecision(3))) : lowest;
  const token = (part: number): Token => `scale-${Math.round(part * 40)}`;
  const words = least < most ? `${lowest < least ? "\u2264 " : ""}${textOf(least)} to ${textOf(most)}` : textOf(least);
  return {
    token,
    part: (value: number): number => (least < most ? Math.max(0, Math.min(1, (by(value) - by(least)) / (by(most) - by(least)))) : 0.5),
    legend: numbers.length > 0 ? [{ token: token(0.5), sign: "", words }] : [],
  };
}

/** How much a look asks to be seen; numbers are between. */
const levels = ["", "quiet", "good", "step", "", "caution", "alarm"];
const stepLevel = levels.indexOf("step");

function colourByChannel(model: Model, at: number, isRolled: boolean): Colouring {
  const { name, look, looks, said, legend } = model.channels[at];
  const { stands, scope: holder } = model.nodes;
  const { count, parent, alike } = model.scopes;
  const isStep = (each: number): boolean => /^step/.test(looks[each]);
  const numberOf = (node: number): number => Number(model.texts[said[node]].replace("at most ", ""));
  const scale = scaleOf([...look.keys()].filter((node) => isStep(look[node])).map(numberOf), String);
  const level = Float64Array.from(look, (each, node) => (isStep(each) ? stepLevel + scale.part(numberOf(node)) : Math.max(0, levels.indexOf(looks[each]))));
  const seen = level.slice();
  const worst = new Float64Array(count);
  // A box for several nodes has the most urgent of their looks.
  level.forEach((each, node) => {
    if (isRolled) seen[stands[node]] = Math.max(seen[stands[node]], each);
    worst[holder[node]] = Math.max(worst[holder[node]], each);
  });
  for (let scope = count - 1; scope > 0; scope--)
    for (const other of [isRolled ? alike[scope] : scope, parent[scope]]) worst[other] = Math.max(worst[other], worst[scope]);
  const shown = (grade: number): readonly [Token, string] => {
    if (grade >= stepLevel && grade <= stepLevel + 1) return [scale.token(grade - stepLevel), ""];
    return grade === 0 ? ["plain", ""] : [lookToken(levels[grade]), lookSign(levels[grade])];
  };
  return {
    name: `overlay:${name}`,
    node: (node, inline) => shown(inline.reduce((most, each) => Math.max(most, seen[each]), seen[node])),
    scope: (scope) => shown(worst[scope]),
    legend: [
      ...legend.flatMap(([each, words]) => (isStep(each) ? [] : [{ token: lookToken(looks[each]), sign: lookSign(looks[each]), words: plain(words, 80) }])),
      ...scale.legend,
    ],
  };
}

/** `sums` are those by shown scope. */
export function looksOf(shown: Shown, sums: Sums, colours: Colouring, scene: Scene): Looks {
  const { model } = shown;
  const count = scene.boxes.length;
  const fill: Token[] = new Array<Token>(count);
  const sign: string[] = new Array<string>(count);
  const status = new Uint8Array(count);
  const holds = new Uint8Array(count);
  const failed = new Uint8Array(count);
  scene.boxes.forEach((box, at) => {
    [fill[at], sign[at]] = box.node >= 0 ? colours.node(box.node, box.inline) : colours.scope(shown.scopes.of[box.scope], shown.scopes.isRun(box.scope) ? 1 : box.times);
    status[at] = box.node >= 0 ? model.nodes.status[box.node] : sharedStatus(sums, box.scope);
    if (box.node < 0 && status[at] === 0) {
      for (let each = 1; each < statuses.length; each++) if (sums.byStatus[box.scope * statuses.length + each] > 0) holds[at] |= 1 << each;
    }
    if (status[at] > 0) sign[at] = statusSigns[status[at]];
    if (box.node >= 0 && (model.nodes.flags[box.node] & flag.failed) !== 0) failed[at] = 1;
    if (shown.lost.has(box.scope)) failed[at] = 2;
    if (failed[at]) fill[at] = "lost";
  });
  return {
    fill,
    sign,
    status,
    holds,
    failed,
    frames: Uint8Array.from(scene.frames, ({ scope }) => sharedStatus(sums, scope)),
    legend: colours.legend,
  };
}
