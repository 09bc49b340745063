/** `window.told`: what a page shows, told from `window.gradir`. The build gives it the short names of the page; those in quotes are for tests. */
import type { Camera } from "../src/draw/camera.ts";
import type { Token } from "../src/draw/theme.ts";
import { roles, statuses } from "../src/data/model.ts";
import type { Finder } from "../src/panels/finder.ts";
import type { timings } from "../src/probe.ts";
import type { Surroundings } from "../src/surroundings.ts";

interface Handed {
  readonly "page": Surroundings["page"];
  readonly "finder": Finder;
  readonly "timings": typeof timings;
}
/** Of a box, which has both, or of a hit: one of both is -1. */
interface Named {
  readonly node: number;
  readonly scope: number;
}

const handed = (): Handed => (window as unknown as { readonly "gradir": Handed })["gradir"];
const page = () => handed()["page"];
const stage = () => page().stage;
const idOf = (node: number): string => page().model.nodes.id(node);
const keyOf = (scope: number): string => page().shown.scopes.key(scope);
const nameOf = ({ node, scope }: Named): string => (node >= 0 ? idOf(node) : keyOf(scope));
const boxName = (at: number): string => nameOf(stage().scene.boxes[at]);
/** Pixels of the window, so that a test can click there. */
const toWindow = (x: number, y: number) => {
  const { left, top } = stage().drawings[0].element.getBoundingClientRect();
  const { camera } = stage();
  return { "x": left + (x - camera.x) * camera.k, "y": top + (y - camera.y) * camera.k };
};

const told = {
  get "title"() {
    return page().model.title;
  },
  get "kind"() {
    return page().model.kind;
  },
  get "boxes"() {
    const { scene, looks, lit } = stage();
    return scene.boxes.map((box, at) => ({
      "name": nameOf(box),
      "isModule": box.node < 0,
      "label": [...box.label],
      "times": box.times,
      "role": box.node < 0 ? "module" : roles[page().model.nodes.role[box.node]],
      "status": statuses[looks.status[at]],
      "holds": statuses.filter((_, status) => ((looks.holds[at] >> status) & 1) === 1),
      "failed": looks.failed[at] === 1,
      "fill": looks.fill[at],
      "lit": lit === null ? null : lit[at] > 0,
      "isShared": lit !== null && lit[at] === 2,
      "isLost": looks.failed[at] === 2,
      "x": box.x,
      "y": box.y,
      "width": box.width,
      "height": box.height,
    }));
  },
  get "frames"() {
    return stage().scene.frames.map(({ scope, depth, caption, x, y, width, height }) => ({
      "name": keyOf(scope),
      "caption": caption,
      "depth": depth,
      "x": x,
      "y": y,
      "width": width,
      "height": height,
    }));
  },
  get "edges"() {
    return stage().scene.lines.map(({ from, to, weight, marked, status, words, way }) => ({
      "from": boxName(from),
      "to": boxName(to),
      "weight": weight,
      "marked": marked,
      "words": words,
      "status": statuses[status],
      "way": [...way],
    }));
  },
  get "stubs"() {
    const { stubs, boxes, frames } = stage().scene;
    const places: readonly Named[] = [...boxes, ...frames.map(({ scope }) => ({ node: -1, scope })), { node: -1, scope: 0 }];
    return stubs.map(({ cut, box, above, x, y }) => ({ "cut": cut, "box": nameOf(places[box]), "above": above, "x": x, "y": y }));
  },
  get "selection"() {
    const { kind, at } = page().state.selected;
    return { "kind": kind, "name": kind === "none" ? "" : kind === "node" ? idOf(at) : kind === "module" ? keyOf(at) : String(at) };
  },
  get "opened"() {
    return [...page().state.opened].map(keyOf).sort();
  },
  get "colour"() {
    return page().state.colour;
  },
  get "switches"() {
    return { ...page().state.switches };
  },
  get "trail"() {
    return page().state.trail;
  },
  get "sides"() {
    return page().state.sides;
  },
  /** What the colours can say; the page shows what of it is drawn. */
  get "legend"() {
    return stage().looks.legend.map(({ sign, words }) => ({ "sign": sign, "words": words }));
  },
  get "hits"() {
    return handed()["finder"].hits.map(nameOf);
  },
  get "view"() {
    const { width, height } = stage().drawings[0].size;
    const { x, y, k } = stage().camera;
    return { "x": x, "y": y, "k": k, "width": width, "height": height };
  },
  /** Whole paintings so far, and the milliseconds of the last one. */
  get "painted"() {
    const { count, milliseconds } = stage().drawings[0].painted;
    return { "count": count, "milliseconds": milliseconds };
  },
  /** Whether the pointer is on something to select. */
  get "pointed"() {
    return stage().drawings[0].element.style.cursor === "pointer";
  },
  /** By drawing the statuses that it hides, as bits, and the words of its boxes that are not those of the scene. */
  get "drawings"() {
    return stage().drawings.map(({ painting }) => ({
      "hidden": painting?.hidden,
      "words": stage().scene.boxes.flatMap((box) => {
        const lines = painting?.words.get(box);
        return lines ? [{ "width": box.width, "label": box.label, "lines": lines }] : [];
      }),
    }));
  },
  get "timings"() {
    return { ...handed()["timings"] };
  },
  /** The middle of a box or a frame's caption in the window, null where it is not drawn. */
  "place"(name: string) {
    const { boxes, frames } = stage().scene;
    const box = boxes.find((each) => nameOf(each) === name);
    if (box) return toWindow(box.x + box.width / 2, box.y + box.height / 2);
    const frame = frames.find(({ scope }) => keyOf(scope) === name);
    if (!frame) return null;
    const corner = toWindow(frame.x, frame.y);
    return { "x": corner["x"] + 24, "y": corner["y"] + 10 };
  },
  "placeOfStub"(cut: number) {
    const stub = stage().scene.stubs.find((each) => each.cut === cut);
    return stub ? toWindow(stub.x, stub.y + (stub.above ? -10 : 10)) : null;
  },
  "theme": (token: Token) => stage().drawings[0].painting?.theme(token),
  "toggle": (name: string) => page().toggle(page().shown.scopes.find(name)),
  "pan": (dx: number, dy: number) => stage().pan(dx, dy),
  "move": ({ "x": x, "y": y, "k": k }: Camera) => stage().move({ x, y, k }),
  "recolour": () => stage().recolour(),
};
Object.assign(window, { "told": told });
