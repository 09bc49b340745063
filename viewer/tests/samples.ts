/** Models to try things on: a builder, and the graphs whose pictures and times matter. */
import { flag, roles, statuses } from "../src/data/model.ts";
import type { Change, Cut, Model } from "../src/data/model.ts";

type Role = (typeof roles)[number];

export interface Extra {
  readonly role?: Role;
  readonly shape?: string;
  readonly dtype?: string;
  readonly name?: string;
  readonly flags?: number;
  readonly status?: (typeof statuses)[number];
}

/** Nodes one after the other, and modules as they are named. */
export class Sample {
  private readonly texts = new Map<string, number>([["", 0]]);
  private readonly scopes: { parent: number; name: number; className: number; alike: number }[] = [{ parent: -1, name: 0, className: 0, alike: 0 }];
  private readonly scopeOf = new Map<string, number>([["", 0]]);
  private readonly nodes: { scope: number; op: number; inputs: readonly number[]; extra: Extra; id: string }[] = [];
  readonly cuts: Cut[] = [];

  constructor(readonly title: string) {}

  private text(words: string): number {
    let place = this.texts.get(words);
    if (place === undefined) this.texts.set(words, (place = this.texts.size));
    return place;
  }

  /** The scope of a path; modules around it are made as needed. */
  scope(path: string, className = "", alike?: string): number {
    let known = this.scopeOf.get(path);
    if (known === undefined) {
      const dot = path.lastIndexOf(".");
      const parent = this.scope(dot < 0 ? "" : path.slice(0, dot));
      known = this.scopes.length;
      this.scopes.push({ parent, name: this.text(path.slice(dot + 1)), className: 0, alike: known });
      this.scopeOf.set(path, known);
    }
    if (className) this.scopes[known].className = this.text(className);
    if (alike !== undefined) this.scopes[known].alike = this.scope(alike);
    return known;
  }

  add(op: string, inputs: readonly number[], scope = "", extra: Extra = {}): number {
    this.nodes.push({ scope: this.scope(scope), op: this.text(op), inputs, extra, id: `${scope}/${op}:${this.nodes.length}` });
    return this.nodes.length - 1;
  }

  parameter(name: string, shape: string): number {
    const dot = name.lastIndexOf(".");
    return this.add("parameter", [], dot < 0 ? "" : name.slice(0, dot), { role: "parameter", name, shape });
  }

  /** What an exporter says of equal layers: those that match the first one node by node. */
  private equal(): { alike: number[]; stands: number[] } {
    const alike = this.scopes.map((_, scope) => scope);
    const stands = this.nodes.map((_, node) => node);
    const within = (layer: number): number[] =>
      stands.filter((node) => {
        let { scope } = this.nodes[node];
        while (scope > layer) scope = this.scopes[scope].parent;
        return scope === layer;
      });
    const words = (node: number): string => [this.nodes[node].op, this.nodes[node].extra.role, this.nodes[node].extra.shape].join();
    for (const first of new Set(this.scopes.map((scope) => scope.alike))) {
      const layers = this.scopes.flatMap((scope, own) => (scope.alike === first && own !== first ? [own] : []));
      const own = within(first);
      const members = layers.map(within);
      if (members.some((nodes) => nodes.map(words).join() !== own.map(words).join())) continue;
      layers.forEach((layer, place) => {
        members[place].forEach((node, at) => {
          stands[node] = own[at];
          for (let [one, other] = [this.nodes[node].scope, this.nodes[own[at]].scope]; one > layer; [one, other] = [this.scopes[one].parent, this.scopes[other].parent]) alike[one] = other;
        });
        alike[layer] = first;
      });
    }
    return { alike, stands };
  }

  done(changes: readonly Change[] = []): Model {
    const { nodes, scopes } = this;
    const column = (values: readonly number[]): Int32Array => Int32Array.from(values);
    const all = nodes.map(({ extra }) => extra);
    const [from, to, slot]: number[][] = [[], [], []];
    const first = new Int32Array(nodes.length + 1);
    nodes.forEach(({ inputs }, node) => {
      inputs.forEach((input, place) => {
        if (input < 0) return;
        from.push(input);
        to.push(node);
        slot.push(place);
      });
      first[node + 1] = from.length;
    });
    const byId = new Map(nodes.map(({ id }, node) => [id, node]));
    const shape = column(all.map((extra) => this.text(extra.shape ?? "[8, 64]")));
    const dtype = column(all.map((extra) => this.text(extra.dtype ?? "float32")));
    const name = column(all.map((extra) => this.text(extra.name ?? "")));
    const { alike, stands } = this.equal();
    const paths = [...this.scopeOf.keys()];
    const scope = column(nodes.map((node) => node.scope));
    const zeros = (): Float64Array => new Float64Array(scopes.length);
    return {
      title: this.title,
      kind: "autograd",
      framework: "pytorch",
      sides: [],
      figures: [],
      texts: [...this.texts.keys()],
      scopes: {
        count: scopes.length,
        parent: column(scopes.map(({ parent }) => parent)),
        name: column(scopes.map((scope) => scope.name)),
        className: column(scopes.map(({ className }) => className)),
        detail: new Int32Array(scopes.length),
        calls: Float64Array.from(scopes, ({ className }) => (className && this.texts.get("ModuleList") !== className ? 1 : 0)),
        parameters: zeros().fill(65_792),
        own: zeros(),
        trainable: zeros(),
        saved: zeros().fill(34_500),
        alike: column(alike),
        path: (scope) => paths[scope],
      },
      steps: [],
      nodes: {
        count: nodes.length,
        scope,
        stands: column(stands),
        home: scope,
        role: Uint8Array.from(all, (extra) => roles.indexOf(extra.role ?? "function")),
        op: column(nodes.map(({ op }) => op)),
        name,
        dtype,
        shape,
        saved: new Float64Array(nodes.length),
        flags: Uint8Array.from(all, (extra) => extra.flags ?? 0),
        status: Uint8Array.from(all, (extra) => statuses.indexOf(extra.status ?? "same")),
        outputs: new Int32Array(nodes.length),
        id: (node) => nodes[node].id,
        find: (id) => byId.get(id) ?? -1,
      },
      edges: {
        count: from.length,
        from: column(from),
        to: column(to),
        slot: column(slot),
        output: new Int32Array(from.length),
        kind: new Uint8Array(from.length),
        kinds: ["data"],
        first,
        status: new Uint8Array(from.length),
      },
      cuts: this.cuts,
      lost: [[], []],
      had: null,
      verdict: null,
      channels: [],
      changes,
    };
  }
}

/** What a linear layer does in an autograd graph. */
function linear(sample: Sample, path: string, value: number, accumulate = true): number {
  sample.scope(path, "Linear");
  const given = (name: string, shape: string): number => {
    const parameter = sample.parameter(`${path}.${name}`, shape);
    return accumulate ? sample.add("accumulate_grad", [parameter], path, { flags: flag.accumulates, shape }) : parameter;
  };
  const bias = given("bias", "[64]");
  const weight = sample.add("t", [given("weight", "[64, 64]")], path, { flags: flag.rearranges, shape: "[64, 64]" });
  return sample.add("addmm", [bias, value, weight], path);
}

function norm(sample: Sample, path: string, value: number): number {
  sample.scope(path, "LayerNorm");
  return sample.add("layer_norm", [value, sample.parameter(`${path}.weight`, "[64]"), sample.parameter(`${path}.bias`, "[64]")], path);
}

/** One block of a transformer: 33 nodes. */
function block(sample: Sample, path: string, value: number, mask: number): number {
  const normed = norm(sample, `${path}.ln_1`, value);
  sample.scope(`${path}.attn`, "SelfAttention");
  const parts = ["q", "k", "v"].map((name) => {
    const view = sample.add("view", [linear(sample, `${path}.attn.${name}`, normed)], `${path}.attn`, { flags: flag.rearranges });
    return sample.add("transpose", [view], `${path}.attn`, { flags: flag.rearranges });
  });
  const scores = sample.add("bmm", [parts[0], parts[1]], `${path}.attn`);
  const masked = sample.add("add", [scores, mask], `${path}.attn`);
  const soft = sample.add("softmax", [masked], `${path}.attn`);
  const mixed = sample.add("bmm", [soft, parts[2]], `${path}.attn`);
  const out = linear(sample, `${path}.attn.o`, mixed);
  const middle = sample.add("add", [value, out], path);
  sample.scope(`${path}.mlp`, "MLP");
  const up = linear(sample, `${path}.mlp.fc`, norm(sample, `${path}.ln_2`, middle));
  const down = linear(sample, `${path}.mlp.proj`, sample.add("gelu", [up], `${path}.mlp`));
  return sample.add("add", [middle, down], path);
}

/** A stack of transformer blocks with about so many nodes; alike says that they are equal. */
export function transformer(nodes: number, alike = true): Model {
  const sample = new Sample("transformer");
  const mask = sample.add("mask", [], "", { role: "buffer", name: "mask", shape: "[64, 64]" });
  sample.scope("wte", "Embedding");
  let value = sample.add("embedding", [sample.parameter("wte.weight", "[50257, 64]")], "wte");
  sample.scope("h", "ModuleList");
  for (let layer = 0; layer * 45 < nodes; layer++) {
    sample.scope(`h.${layer}`, "Block", alike ? "h.0" : undefined);
    value = block(sample, `h.${layer}`, value, mask);
  }
  value = linear(sample, "lm_head", norm(sample, "ln_f", value));
  sample.add("output", [sample.add("nll_loss", [value], "")], "", { role: "output", name: "loss", shape: "[]", flags: flag.output });
  return sample.done();
}

/** Siblings that all take one weight. */
export function siblings(count: number): Model {
  const sample = new Sample("siblings");
  const weight = sample.parameter("weight", "[64, 64]");
  for (let number = 0; number < count; number++) sample.add("mm", [weight]);
  return sample.done();
}

export function chain(count: number): Model {
  const sample = new Sample("chain");
  let value = sample.add("input", [], "", { role: "input", name: "x" });
  for (let number = 0; number < count; number++) value = sample.add(["sin", "exp", "tanh"][number % 3], [value]);
  return sample.done();
}

export function unet(depth = 4): Model {
  const sample = new Sample("unet");
  let value = sample.add("input", [], "", { role: "input", name: "image" });
  const double = (path: string, from: number): number => {
    sample.scope(path, "DoubleConv");
    for (const step of ["0", "1"]) {
      const weights = ["weight", "bias"].map((name) => sample.parameter(`${path}.conv${step}.${name}`, "[64, 64, 3, 3]"));
      sample.scope(`${path}.conv${step}`, "Conv2d");
      from = sample.add("convolution", [from, ...weights], `${path}.conv${step}`, { shape: "[1, 64, 32, 32]" });
      sample.scope(`${path}.relu`, "ReLU");
      from = sample.add("relu", [from], `${path}.relu`, { shape: "[1, 64, 32, 32]" });
    }
    return from;
  };
  const kept: number[] = [];
  for (let level = 0; level < depth; level++) {
    kept.push((value = double(`down.${level}`, value)));
    value = sample.add("max_pool2d", [value], "pool", { shape: "[1, 64, 16, 16]" });
  }
  value = double("middle", value);
  for (let level = depth - 1; level >= 0; level--) {
    const up = sample.add("upsample", [value], `up.${level}`);
    value = double(`up.${level}.conv`, sample.add("cat", [up, kept[level]], `up.${level}`));
  }
  sample.add("output", [value], "", { role: "output", name: "y", flags: flag.output });
  return sample.done();
}

/** A cell called again and again: one module that the flow enters 50 times. */
export function rnn(steps = 50): Model {
  const sample = new Sample("rnn");
  sample.scope("cell", "RNNCell");
  const names = ["weight_ih", "bias_ih", "weight_hh", "bias_hh"];
  const [wi, bi, wh, bh] = names.map((name) => sample.parameter(`cell.${name}`, "[64, 64]"));
  const x = sample.add("input", [], "", { role: "input", name: "x" });
  let state = sample.add("zeros", [], "", { role: "constant", name: "h0" });
  for (let step = 0; step < steps; step++) {
    const own = sample.add("select", [x], "", { flags: flag.rearranges });
    const input = sample.add("addmm", [bi, own, wi], "cell");
    const hidden = sample.add("addmm", [bh, state, wh], "cell");
    state = sample.add("tanh", [sample.add("add", [input, hidden], "cell")], "cell");
  }
  sample.add("output", [sample.add("sum", [state])], "", { role: "output", name: "loss", flags: flag.output });
  return sample.done();
}

/** A mixture of experts: many modules side by side between a gate and a sum, which a residual passes. */
export function experts(count = 64): Model {
  const sample = new Sample("experts");
  const x = sample.add("input", [], "", { role: "input", name: "x" });
  const gate = sample.add("softmax", [linear(sample, "moe.gate", x, false)], "moe");
  const outs = Array.from({ length: count }, (_, expert) => {
    sample.scope(`moe.experts.${expert}`, "Expert");
    const up = linear(sample, `moe.experts.${expert}.up`, x, false);
    return sample.add("mul", [linear(sample, `moe.experts.${expert}.down`, sample.add("silu", [up], `moe.experts.${expert}`), false), gate], "moe");
  });
  sample.scope("moe", "MoE");
  sample.scope("moe.experts", "ModuleList");
  const sum = sample.add("stack", outs, "moe");
  sample.add("output", [sample.add("add", [x, sum])], "", { role: "output", name: "y", flags: flag.output });
  return sample.done();
}

/** Numbers between 0 and 1, the same for the same seed (mulberry32). */
export function seeded(seed: number): () => number {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let mixed = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
}
