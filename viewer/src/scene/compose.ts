/** The scene of a graph with some modules open. Layouts of scopes are cached, so opening one lays out only that one and those around it. */
import type { Shown } from "../graph/shown.ts";
import type { Box, Layout } from "../layout/layered.ts";
import { placeAll } from "../layout/placed.ts";
import { turnBox } from "../layout/turned.ts";
import { treeOf } from "./buckets.ts";
import type { Tree } from "./buckets.ts";
import { drawTree } from "./emit.ts";
import { firstOpened } from "./first.ts";
import { caption } from "./labels.ts";
import { planOf } from "./plans.ts";
import type { Plan } from "./plans.ts";
import type { Scene } from "./scene.ts";
import { textWidth } from "./widths.ts";

/** Padding of a frame around its contents; its caption stands in the padding at the top. */
export const room = { side: 14, top: 28, bottom: 16 } as const;

/** From rank to rank; across a shape stands between them. */
const gap = { down: 32, across: 88 } as const;

/** An opened scope at its size. */
export interface Opened {
  readonly plan: Plan;
  readonly layout: Layout;
  /** By place the opened scopes in it. */
  readonly inner: ReadonlyMap<number, Opened>;
  /** The size of its frame, and where its layout begins in it. */
  readonly width: number;
  readonly height: number;
  readonly left: number;
  readonly top: number;
}

export class Composer {
  private readonly tree: Tree;
  private readonly plans = new Map<number, Plan>();
  private readonly kept = new Map<number, Opened>();

  constructor(readonly shown: Shown) {
    this.tree = treeOf(shown);
  }

  /** The scene with these scopes open, the root among them in any case; those in a closed one wait for it to open. */
  scene(opened: ReadonlySet<number>): Scene {
    // A module without visible contents, such as a layer that gets no gradient, stays a box.
    const { first } = this.tree.children;
    const held = new Set([...opened].filter((scope) => first[scope + 1] > first[scope]));
    return drawTree(this.tree, this.open(held), held);
  }

  /** The modules to open at first in a window of this size. */
  firstOpened(width: number, height: number): Set<number> {
    return firstOpened(this.tree, (opened) => this.open(opened), width, height);
  }

  private plan(scope: number): Plan {
    let plan = this.plans.get(scope);
    if (!plan) {
      const around = scope === 0 ? undefined : this.plans.get(this.shown.scopes.parent[scope]);
      this.plans.set(scope, (plan = planOf(this.tree, scope, around)));
    }
    return plan;
  }

  /** Lays out the root and every scope that is seen to be open, inner ones first. */
  private open(opened: ReadonlySet<number>): Opened {
    const { scopesFrom } = this.tree;
    const order: number[] = [0];
    for (let next = 0; next < order.length; next++) {
      for (const item of this.plan(order[next]).items) {
        if (item >= scopesFrom && opened.has(item - scopesFrom)) order.push(item - scopesFrom);
      }
    }
    let made: Opened | undefined;
    for (const scope of order.reverse()) {
      made = this.layout(scope, opened);
      this.kept.set(scope, made);
    }
    return made!;
  }

  private layout(scope: number, opened: ReadonlySet<number>): Opened {
    const plan = this.plan(scope);
    const { scopesFrom } = this.tree;
    const inner = new Map<number, Opened>();
    plan.items.forEach((item, place) => {
      if (item >= scopesFrom && opened.has(item - scopesFrom)) inner.set(place, this.kept.get(item - scopesFrom)!);
    });
    const before = this.kept.get(scope);
    if (before && before.inner.size === inner.size && [...inner].every(([place, one]) => before.inner.get(place) === one)) return before;
    const { across } = this.shown.switches;
    const boxes: Box[] = plan.labels.map((label, place) => inner.get(place) ?? (across ? turnBox(label) : label));
    for (const border of plan.ports) boxes.push({ width: 2, height: 0, border });
    const lines = plan.lines.map((line, number) => {
      const fromAt = portAt(inner.get(line.from), number);
      const toAt = portAt(inner.get(line.to), number);
      return fromAt || toAt ? { ...line, fromAt, toAt } : line;
    });
    const layout = placeAll(plan.arranged, boxes, lines, across ? gap.across : gap.down);
    const words = scope === 0 ? 0 : textWidth(caption(this.shown, scope), true) + 2 * room.side + 16;
    // A frame that is turned has its caption at the top all the same.
    const [start, end, ahead, behind] = across ? [room.top, room.bottom, room.side, room.side] : [room.side, room.side, room.top, room.bottom];
    const width = Math.max(layout.width + start + end, across ? 0 : Math.min(words, 320));
    const height = Math.max(layout.height + ahead + behind, across ? Math.min(words, 320) : 0);
    return { plan, layout, inner, width, height, left: across ? start : (width - layout.width) / 2, top: across ? (height - layout.height) / 2 : ahead };
  }
}

/** How far right of the middle of an opened scope a line of the scope around passes its border. */
function portAt(opened: Opened | undefined, line: number): number {
  const port = opened?.plan.portOf.get(line);
  return opened && port !== undefined ? opened.left + opened.layout.x[port] + 1 - opened.width / 2 : 0;
}
