/** `window.gradir`: what the page shows, as numbers and texts to read. Nothing in it can be set. */

import type { Stage } from "./draw/stage.ts";
import { roles, statuses } from "./data/model.ts";
import type { Finder } from "./panels/finder.ts";
import type { State } from "./state.ts";

export interface Timings {
  /** Milliseconds from the start of the page to the first picture, and of what it took. */
  picture: number;
  read: number;
  scene: number;
  /** Of the last opening and closing, from the click to the picture. */
  opened: number;
}

export function probe(stage: Stage, state: () => State, finder: Finder, timings: Timings): object {
  const idOf = (node: number): string => stage.shown.model.nodes.id(node);
  const nameOf = (box: number): string => {
    const { node, scope } = stage.scene.boxes[box];
    return node >= 0 ? idOf(node) : stage.shown.scopes.key(scope);
  };
  /** Pixels of the window, so that a test can click there. */
  const toWindow = (x: number, y: number): { x: number; y: number } => {
    const { left, top } = stage.drawings[0].element.getBoundingClientRect();
    const { camera } = stage;
    return { x: left + (x - camera.x) * camera.k, y: top + (y - camera.y) * camera.k };
  };
  const answers = {
    get title() {
      return stage.shown.model.title;
    },
    get kind() {
      return stage.shown.model.kind;
    },
    get boxes() {
      return stage.scene.boxes.map((box, at) => ({
        name: nameOf(at),
        isModule: box.node < 0,
        label: [...box.label],
        times: box.times,
        role: box.node < 0 ? "module" : roles[stage.shown.model.nodes.role[box.node]],
        status: statuses[stage.looks.status[at]],
        holds: statuses.filter((_, status) => ((stage.looks.holds[at] >> status) & 1) === 1),
        failed: stage.looks.failed[at] === 1,
        fill: stage.looks.fill[at],
        lit: stage.lit === null ? null : stage.lit[at] === 1,
        x: box.x,
        y: box.y,
        width: box.width,
        height: box.height,
      }));
    },
    get frames() {
      return stage.scene.frames.map(({ scope, depth, x, y, width, height }) => ({
        name: stage.shown.scopes.key(scope),
        depth,
        x,
        y,
        width,
        height,
      }));
    },
    get edges() {
      return stage.scene.lines.map(({ from, to, weight, marked, status }) => ({
        from: nameOf(from),
        to: nameOf(to),
        weight,
        marked,
        status: statuses[status],
      }));
    },
    get stubs() {
      return stage.scene.stubs.map(({ cut, box, above, x, y }) => ({ cut, box: nameOf(box), above, x, y }));
    },
    get selection() {
      const { selected } = state();
      if (selected.kind === "none") return { kind: "none", name: "" };
      const name =
        selected.kind === "node" ? idOf(selected.at) : selected.kind === "module" ? stage.shown.scopes.key(selected.at) : String(selected.at);
      return { kind: selected.kind, name };
    },
    get opened() {
      return [...state().opened].map((scope) => stage.shown.scopes.key(scope)).sort();
    },
    get colour() {
      return state().colour;
    },
    get switches() {
      return { ...state().switches };
    },
    get trail() {
      return state().trail;
    },
    get sides() {
      return state().sides;
    },
    get legend() {
      return stage.looks.legend.map(({ sign, words }) => ({ sign, words }));
    },
    get hits() {
      return finder.hits.map((hit) => (hit.node >= 0 ? idOf(hit.node) : stage.shown.scopes.key(hit.scope)));
    },
    get view() {
      const { width, height } = stage.drawings[0].size;
      return { ...stage.camera, width, height };
    },
    /** Whole paintings so far, and the milliseconds of the last one. */
    get painted() {
      return { ...stage.drawings[0].painted };
    },
    get timings() {
      return { ...timings, search: finder.milliseconds };
    },
    /** The middle of a box or a frame's caption in the window, null where it is not drawn. */
    place(name: string) {
      const at = stage.scene.boxes.findIndex((_, box) => nameOf(box) === name);
      if (at >= 0) {
        const { x, y, width, height } = stage.scene.boxes[at];
        return toWindow(x + width / 2, y + height / 2);
      }
      const frame = stage.scene.frames.find(({ scope }) => stage.shown.scopes.key(scope) === name);
      if (frame === undefined) return null;
      const corner = toWindow(frame.x, frame.y);
      return { x: corner.x + 24, y: corner.y + 10 };
    },
    placeOfStub(cut: number) {
      const stub = stage.scene.stubs.find((each) => each.cut === cut);
      return stub === undefined ? null : toWindow(stub.x, stub.y + (stub.above ? -10 : 10));
    },
  };
  return Object.freeze(answers);
}
