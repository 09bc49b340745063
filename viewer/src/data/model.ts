import type { Packed } from "./block.ts";

/**
 * One graph in columns. A node, a scope and an edge are numbers: their places in the columns.
 *
 * Nodes are in the order of the file, inputs before consumers. Scope 0 is the root, and a scope stands after its parent.
 */
export interface Model {
  readonly title: string;
  /** The kind of the graph: "autograd" or "forward". */
  readonly kind: string;
  readonly framework: string;
  /** The names of both graphs of a diff; the kinds of things in them, and the count of each in the graph or in each of both. */
  readonly sides: readonly string[];
  readonly figures: readonly (readonly [name: string, ...amounts: number[]])[];
  /** Every text of the columns, each once; text 0 is empty. */
  readonly texts: readonly string[];
  readonly scopes: Scopes;
  readonly steps: readonly StepScope[];
  readonly nodes: Nodes;
  readonly edges: Edges;
  readonly cuts: readonly Cut[];
  /** Modules without a node in which a parameter gets no gradient, and by cut the one whose value it keeps from a node. */
  readonly lost: readonly [scopes: readonly number[], lines: readonly (readonly [scope: number, into: number])[]];
  readonly channels: readonly Channel[];
  /** Texts about the whole graph, and what a click on each selects. */
  readonly verdict: readonly [look: string, words: string, kind?: "cut" | "node", at?: number] | null;
  /** The changes of a diff in the order of its report, empty for one graph. */
  readonly changes: readonly Change[];
  /** For each changed node its operation before; the values of modules in the first graph. Both absent for one graph. */
  readonly was?: ReadonlyMap<number, string> | undefined;
  /** By module whose class changed the class that it had. */
  readonly classWas?: ReadonlyMap<number, string>;
  readonly had: readonly [parameters: Packed, saved: Packed] | null;
}

export interface Scopes {
  readonly count: number;
  /** The scope that holds it; -1 of the root. */
  readonly parent: Int32Array;
  /** The last part of its path, a text. */
  readonly name: Int32Array;
  readonly className: Int32Array;
  /** The module's own description, a text. */
  readonly detail: Int32Array;
  readonly calls: Float64Array;
  /** Elements of all parameters in it, each once; those of its own; those that require grad. */
  readonly parameters: Float64Array;
  readonly own: Float64Array;
  readonly trainable: Float64Array;
  /** Bytes of the storages that operations in it keep for backward, each once. */
  readonly saved: Float64Array;
  /** The scope that is drawn for it where equal layers are rolled up, itself for most. */
  readonly alike: Int32Array;
  /** "encoder.layer.0", empty of the root. */
  path(scope: number): string;
}

/**
 * The frame around a repeated step, or around the part of a module in one: the scope that contains it, counting
 * on after all scopes; the scope that it is part of, or that holds all of the step; the name of a step, a text; how many it stands for.
 */
export type StepScope = readonly [parent: number, of: number, name: number, times: number];

export const roles = ["function", "leaf", "parameter", "buffer", "input", "constant", "output", "other"] as const;

/** Bits of `Nodes.flags`. */
export const flag = {
  /** Only rearranges elements (view, transpose, …). */
  rearranges: 1,
  /** Accumulates a gradient into a leaf. */
  accumulates: 2,
  /** Hides its operations (a custom Function, a compiled part). */
  opaque: 4,
  /** Raised the error that ended the forward. */
  failed: 8,
  /** An output of the graph. */
  output: 16,
  /** Runs in the backward, in a graph of both passes. */
  backward: 32,
} as const;

export const statuses = ["same", "added", "removed", "changed", "renamed", "moved"] as const;

export interface Nodes {
  readonly count: number;
  readonly scope: Int32Array;
  /** A place in `roles`. */
  readonly role: Uint8Array | Int32Array;
  /** Texts: the operation, the name to show, the dtype and the shape of the output to show. */
  readonly op: Int32Array;
  readonly name: Int32Array;
  readonly dtype: Int32Array;
  readonly shape: Int32Array;
  /** Bytes of the storages that it keeps for backward. */
  readonly saved: Float64Array;
  readonly flags: Uint8Array | Int32Array;
  /** A place in `statuses`. */
  readonly status: Uint8Array | Int32Array;
  /** A place in the outputs of the second block. */
  readonly outputs: Int32Array;
  /** The node that stands for it where equal layers and steps are rolled up, itself for most; and the scope where it is drawn then. */
  readonly stands: Int32Array;
  readonly home: Int32Array;
  id(node: number): string;
  /** The node of an id, -1 where there is none. */
  find(id: string): number;
}

export interface Edges {
  readonly count: number;
  /** Sorted by consumer, then by input slot. */
  readonly from: Int32Array;
  readonly to: Int32Array;
  readonly slot: Int32Array;
  readonly output: Int32Array;
  /** A place in `kinds`. */
  readonly kind: Uint8Array | Int32Array;
  readonly kinds: readonly string[];
  /** The edges into node n are first[n] up to first[n + 1]. */
  readonly first: Int32Array;
  /** "same", "added" or "removed", as places in `statuses`. */
  readonly status: Uint8Array | Int32Array;
}

export interface Cut {
  readonly kind: string;
  readonly op: string;
  readonly names: readonly string[];
  readonly scope: number;
  /** "file:line in function", and the same of the library below it; empty where unknown. */
  readonly source: string;
  readonly via: string;
  readonly meant: string;
  /** Nodes, -1 where the graph has none, and the input slot, -1 where it is not sure. */
  readonly at: number;
  readonly into: number;
  /** That of the tensor; empty where unknown. */
  readonly shape: string;
  readonly slot: number;
  /** Of one that came or went with a diff the place of that in `statuses`. */
  readonly status?: number;
  /** One sentence on the event and one with advice; empty if there is none. */
  readonly text: string;
  readonly advice: string;
}

/** A channel of an overlay: by node a number (NaN if none) or a word, and its look. */
export interface Channel {
  readonly name: string;
  /** The look of each node, a place in `looks`; 0 where nothing is said. */
  readonly look: Uint8Array | Int32Array;
  readonly looks: readonly string[];
  /** The text for each node. */
  readonly said: Int32Array;
  /** The entries of a legend, the look with its words. */
  readonly legend: readonly (readonly [look: number, words: string])[];
}

export interface Change {
  /** A word of `statuses`. */
  readonly kind: string;
  /** The heading that it stands below: a module, several that changed alike, or "(whole graph)". */
  readonly group: string;
  readonly text: string;
  readonly nodes: readonly number[];
  /** The modules that it is about by itself: those that came, went, or have another class. */
  readonly scopes: readonly number[];
  /** The changed field, with both values as texts. */
  readonly fields: readonly (readonly [path: string, before: string, after: string])[];
}

/** Everything a file knows of one node, made on demand from the second block of a page. */
export interface Details {
  readonly id: string;
  /** The role as the file has it, also one that `roles` lacks. */
  readonly role: string;
  readonly native: string;
  readonly names: readonly string[];
  /** "file:line in function", and the text of that line; or nothing. */
  readonly source: string;
  readonly line: string;
  readonly attributes: readonly (readonly [key: string, value: string])[];
  readonly outputs: readonly string[];
  readonly saved: readonly {
    readonly slot: string;
    readonly tensor: string;
    /** Nothing where the size is not known. */
    readonly bytes: number | null;
    /** The name of a storage that other slots save too; empty if only this slot does. */
    readonly storage: string;
    /** Empty where it is simply held. */
    readonly state: string;
    /** The node that made it, -1 where that is not known. */
    readonly origin: number;
  }[];
  readonly base: string;
}

/** Details of any node, and the columns that a search reads. */
export interface DetailsOfAll {
  of(node: number): Details;
  /** Source lines ("net.py:41"), and by node the place of its own. */
  readonly sources: readonly string[];
  readonly sourceOf: Int32Array;
}
