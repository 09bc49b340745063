/** The drawing as data: every visible box, frame and line at its place, in one coordinate system. */

export interface Scene {
  readonly width: number;
  readonly height: number;
  /** Whether the flow runs from left to right. */
  readonly across: boolean;
  /** Opened modules, outer before inner. */
  readonly frames: readonly Frame[];
  readonly boxes: readonly SceneBox[];
  readonly lines: readonly SceneLine[];
  readonly stubs: readonly Stub[];
  /**
   * The box of any node: its own, that of the operation it is written in, of its representative, or of the closed module around it;
   * -1 where it has none.
   */
  boxOf(node: number): number;
  /** The box of a scope: its own while it is closed, or that of the closed module around it; -1 where it is open. */
  boxOfScope(scope: number): number;
}

export interface Rectangle {
  readonly x: number;
  readonly y: number;
  readonly width: number;
  readonly height: number;
}

export interface Frame extends Rectangle {
  readonly scope: number;
  readonly depth: number;
  /** "attn: SelfAttention", to be written at its top left. */
  readonly caption: string;
}

/** A node, or a closed module that stands for all in it (`scope` 0 or more and `node` -1), or equal modules drawn once. */
export interface SceneBox extends Rectangle {
  /** The node, -1 of a closed module. */
  readonly node: number;
  /** The closed module, -1 of a node. */
  readonly scope: number;
  /** How many equal modules it stands for, 1 for most. */
  readonly times: number;
  /** The lines of text in it, made by `scene/labels.ts`; the first is its title. */
  readonly label: readonly string[];
  /** The parameters that are written in it. */
  readonly inline: readonly number[];
  /** How many of the nodes in it a diff marks. */
  readonly changed: number;
}

/** Edges between two visible boxes, drawn as one. */
export interface SceneLine {
  /** Places in `Scene.boxes`. */
  readonly from: number;
  readonly to: number;
  readonly weight: number;
  readonly way: Float64Array;
  /** Only marks at both ends are drawn until it is selected. */
  readonly marked: boolean;
  readonly kind: number;
  /** The shape of the tensor on this line, if the line shows it. */
  words: string;
  /** The corner of the way that it stands at, and whether left of it. */
  at: number;
  isLeft: boolean;
  /** A place in `statuses`: that of all its edges, "changed" where they differ. */
  readonly status: number;
}

/** A dashed end at a box or a frame: a cut, by its place in `Model.cuts`. */
export interface Stub {
  readonly cut: number;
  /** A place in `Scene.boxes`, or after those in `Scene.frames`, or the one after these: the whole drawing. */
  readonly box: number;
  /** Whether the gradient would come in from above (an input slot) or the value leaves below. */
  readonly above: boolean;
  readonly x: number;
  readonly y: number;
}
