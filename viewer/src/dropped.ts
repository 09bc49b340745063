/** An overlay or a watched training that is dropped on the page: read here, and sent nowhere. */

import type { Channel, Model } from "./data/model.ts";
import { numberText, plain } from "./draw/plain.ts";
import type { Page } from "./panels/context.ts";

const mostBytes = 50_000_000;
const mostChannels = 20;
const looks = ["", "quiet", "good", "caution", "alarm", "step"];

/** The values of a channel: by node a number or a word, and the looks of words. */
interface Said {
  readonly name: string;
  readonly values: ReadonlyMap<number, unknown>;
  readonly looks?: unknown;
}

export function dropping(page: Page, tell: (words: string) => void): void {
  addEventListener("dragover", (event) => event.preventDefault());
  addEventListener("drop", (event) => {
    event.preventDefault();
    const file = event.dataTransfer?.files[0];
    if (file)
      read(page, file).then(tell, (error: unknown) => tell(`${plain(file.name, 80)}: ${error instanceof SyntaxError ? "not JSON" : (error as Error).message}`));
  });
}

/** Adds the channels of a file as colourings and shows the first; returns a message about it. */
async function read(page: Page, file: File): Promise<string> {
  if (file.size > mostBytes) throw new Error(`larger than ${numberText(mostBytes / 1e6)} MB`);
  const text = await file.text();
  // Of a watch each line is a record.
  const found = /^\s*\{[^\n]*"gir-watch"/.test(text) ? readWatch(page.model, text) : readOverlay(page.model, JSON.parse(text));
  const names = found.map((said) => {
    const channel = channelOf(page.model, said, file.name);
    (page.model.channels as Channel[]).push(channel);
    page.colours.push([`overlay:${channel.name}`, plain(channel.name, 40)]);
    return channel.name;
  });
  page.change({ colour: `overlay:${names[0]}` });
  return `Coloured by ${plain(names[0], 80)}`;
}

function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null;
}

function readOverlay(model: Model, document: unknown): Said[] {
  if (!isRecord(document) || document["format"] !== "gir-overlay" || !/^1\./.test(String(document["version"])) || !Array.isArray(document["channels"]))
    throw new Error("neither an overlay of gradir explain nor a watch.jsonl");
  return document["channels"].slice(0, mostChannels).map((channel: unknown) => {
    if (!isRecord(channel) || !isRecord(channel["values"])) throw new Error("a broken overlay");
    const ids = Object.entries(channel["values"]);
    const values = new Map(ids.map(([id, value]) => [model.nodes.find(id), value]));
    if (values.has(-1)) throw new Error("of another graph: it names nodes that this one lacks");
    const unit = channel["unit"] ? ` (${String(channel["unit"])})` : "";
    return { name: String(channel["name"]) + unit, values, looks: channel["looks"] };
  });
}

/** Of the last step the norm of the gradients of each module, and how far its update moved it. */
function readWatch(model: Model, text: string): Said[] {
  let paths: unknown[] = [];
  let step: Readonly<Record<string, unknown>> = {};
  for (const line of text.split("\n")) {
    const record: unknown = line.trim() === "" ? null : JSON.parse(line);
    if (!isRecord(record)) continue;
    if (record["type"] === "modules" && Array.isArray(record["paths"])) paths = record["paths"];
    if (record["type"] === "step" && Array.isArray(record["norms"]) && record["norms"].length > 0) step = record;
  }
  const { scopes, nodes } = model;
  const places = new Map(Array.from(scopes.name, (_, scope) => [scopes.path(scope), scope]));
  const order = new Map(paths.map((path, at) => [places.get(String(path)), at]));
  if (order.size === 0 || order.has(undefined)) throw new Error("of another model: it names modules that this one lacks");
  return ["norms", "ratios"].map((key, which) => {
    const amounts = Array.isArray(step[key]) ? step[key] : [];
    const values = new Map(Array.from(nodes.scope, (scope, node) => [node, amounts[order.get(scope) ?? -1]]));
    return { name: `${["gradient norm", "update ratio"][which]}, step ${String(step["number"])}`, values };
  });
}

function channelOf(model: Model, { name, values, looks: named }: Said, file: string): Channel {
  const texts = model.texts as string[];
  const places = new Map<string, number>();
  const look = new Uint8Array(model.nodes.count);
  const said = new Int32Array(model.nodes.count);
  const legend = new Map<string, number>();
  for (const [node, value] of values) {
    if (typeof value !== "string" && !Number.isFinite(value)) continue;
    const text = typeof value === "string" ? value.slice(0, 80) : String(Number((value as number).toPrecision(3)));
    if (!places.has(text)) places.set(text, texts.push(text) - 1);
    said[node] = places.get(text)!;
    look[node] = typeof value === "string" ? Math.max(1, looks.indexOf(String(isRecord(named) ? named[value] : ""))) : looks.length - 1;
    legend.set(typeof value === "string" ? text : "", look[node]);
  }
  const isTaken = (wanted: string): boolean => model.channels.some((channel) => channel.name === wanted);
  let unique = `${name.slice(0, 120)}, ${file.slice(0, 80)}`;
  while (isTaken(unique)) unique += "'";
  return { name: unique, look, looks, said, legend: [...legend].map(([words, place]) => [place, words] as const) };
}
