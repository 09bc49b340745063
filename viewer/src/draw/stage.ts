/** The whole drawing: the scene of the open modules, in one view or in two, with the map. */

import type { Model } from "../data/model.ts";
import { statuses } from "../data/model.ts";
import { type Shown, chooseShown as shownOf } from "../graph/shown.ts";
import { h } from "../panels/dom.ts";
import { Composer } from "../scene/compose.ts";
import type { Rectangle, Scene } from "../scene/scene.ts";
import type { Selected, State } from "../state.ts";
import { openChanged } from "../opening.ts";
import { wordsOf } from "./before.ts";
import { type Camera, type Size, centreOn, fitAll, fitToRead, margin, overlap, panBy, readable, visibleArea, within, zoomAt } from "./camera.ts";
import { type Drawing, drawing } from "./drawing.ts";
import { type Colouring, type Looks, colouring, looksOf } from "./looks.ts";
import { minimap } from "./minimap.ts";
import { type Marks, noMarks } from "./over.ts";
import { mostWords } from "./paint.ts";
import { type Painting, type Places, placesOf } from "./painting.ts";
import { type Sums, sumsOf } from "./sums.ts";
import { type Theme, themeOf } from "./theme.ts";
import { litBoxes } from "./trail.ts";

export interface Stage {
  readonly element: HTMLElement;
  readonly map: HTMLElement;
  readonly drawings: readonly Drawing[];
  readonly shown: Shown;
  readonly scene: Scene;
  readonly places: Places;
  readonly looks: Looks;
  readonly lit: Uint8Array | null;
  readonly camera: Camera;
  /** Milliseconds of the last scene. */
  readonly composed: number;
  firstOpened(): Set<number>;
  /** Follows a state; `anchor` is a scope that stays where it is on the screen. */
  follow(state: State, anchor: number): void;
  select(selected: Selected): void;
  point(marks: Marks): void;
  /** Brings the selection into sight. */
  reveal(selected: Selected): void;
  fit(selected?: Selected): void;
  /** The whole drawing, or its beginning where nothing of the whole could be read. */
  begin(): void;
  zoom(factor: number, x?: number, y?: number): void;
  pan(dx: number, dy: number): void;
  move(camera: Camera): void;
  /** Whether it has another size now. */
  resize(): boolean;
  recolour(): void;
}

const before = 1 << statuses.indexOf("added");
const after = 1 << statuses.indexOf("removed");
/** The scale of the smallest text that a drawing is fitted with: a larger drawing runs off the view. */
const least = 0.5;
export function stage(model: Model, initial: State, modelSums: Sums, onMove: () => void): Stage {
  const element = h("div.stage");
  let state = initial;
  let shown = shownOf(model, state.switches);
  let composer = new Composer(shown);
  let sums = sumsOf(model, shown);
  const coloured = (): Colouring => colouring(model, modelSums, state.colour, state.switches.rollUp);
  let colours = coloured();
  let theme: Theme = themeOf(document.documentElement);
  let scene: Scene = { width: 0, height: 0, across: false, frames: [], boxes: [], lines: [], stubs: [], boxOf: () => -1, boxOfScope: () => -1 };
  let places = placesOf(scene);
  let looks = looksOf(shown, sums, colours, scene);
  let lit: Uint8Array | null = null;
  let selectedMarks = noMarks;
  let pointed = noMarks;
  let composed = 0;
  /** The paintings by hidden kind, made when a side is first painted. */
  let words: Record<number, Painting["words"]> = {};

  const moved = (camera: Camera): void => {
    for (const each of drawings) if (each.camera !== camera) each.move(camera);
    map.look(visibleArea(camera, first().size));
    onMove();
  };
  let drawings: Drawing[] = [drawing(moved)];
  const first = (): Drawing => drawings[0];
  const map = minimap((x, y) => moved(centreOn({ x, y, width: 0, height: 0 }, first().size, first().camera.k)));
  element.append(first().element);

  const compose = (): void => {
    const start = performance.now();
    scene = composer.scene(state.opened);
    composed = performance.now() - start;
    places = placesOf(scene);
    words = {};
    // The marks belong to places of the scene before.
    pointed = noMarks;
  };
  const painting = (hidden: number): Painting => ({ shown, places, looks, theme, hidden, lit, words: (words[hidden] ??= hidden ? wordsOf(shown, scene, hidden === before) : new Map()) });
  const present = (): void => {
    drawings.forEach((each, at) => each.show(painting(drawings.length === 1 ? 0 : at === 0 ? before : after)));
    map.show(painting(0));
    map.look(visibleArea(first().camera, first().size));
  };
  const light = (): void => {
    lit = litBoxes(shown, scene, state.selected, state.trail);
  };
  const mark = (): void => drawings.forEach((each) => each.mark(selectedMarks, pointed));
  const arrange = (): void => {
    const wanted = state.sides ? 2 : 1;
    if (drawings.length === wanted) return;
    if (wanted === 2) drawings.push(drawing(moved));
    else drawings.pop();
    element.replaceChildren(...drawings.map((each) => each.element));
    element.classList.toggle("sides", wanted === 2);
    drawings.forEach((each) => each.resize());
    moved(first().camera);
  };
  const rectangleOf = (scope: number): Rectangle | null => {
    const frame = places.frameOf.get(scope);
    if (frame !== undefined) return scene.frames[frame];
    const box = scene.boxOfScope(scope);
    return box < 0 ? null : scene.boxes[box];
  };
  /** The legend at the left of the bottom and the map at the right of it, in pixels of the view. */
  const legendOf = (): HTMLDetailsElement => element.parentElement!.querySelector(".legend")!;
  const covers = (): Rectangle[] =>
    [legendOf(), map.element].map(({ offsetLeft, offsetTop, offsetWidth, offsetHeight }) => ({
      // Of two views both show the same.
      x: offsetLeft % first().size.width,
      y: offsetTop - first().element.offsetTop,
      width: offsetWidth,
      height: offsetHeight,
    }));
  const isClear = ({ x, y, k }: Camera, isFree: (covered: Rectangle) => boolean, all = covers()): boolean =>
    all.every((cover) => isFree({ x: x + cover.x / k, y: y + cover.y / k, width: cover.width / k, height: cover.height / k }));
  /** The camera of the largest scale, for the view or the room beside or above the panels, with `isFree` under each panel. */
  const clear = (aimed: (size: Size) => Camera, isFree: (covered: Rectangle) => boolean): Camera => {
    const { width, height } = first().size;
    const [legend, over] = covers();
    const cameras = [0, legend.x + legend.width].flatMap((left) =>
      [width, over.x].flatMap((right) =>
        [height, legend.y, over.y].map((bottom) => {
          const camera = aimed({ width: right - left, height: bottom });
          return { ...camera, x: camera.x - left / camera.k };
        }),
      ),
    );
    cameras.sort((one, other) => other.k - one.k);
    return cameras.find((camera) => isClear(camera, isFree)) ?? cameras[0];
  };
  /** With the words at cuts, which stand beside the boxes. */
  const everything = (): Rectangle => ({ x: 0, y: 0, width: scene.stubs.reduce((most, { x }) => Math.max(most, x + mostWords), scene.width), height: scene.height });
  const isEmpty = (covered: Rectangle): boolean => places.boxes.inside(covered).length === 0;
  const whole = (): Camera => clear((size) => fitToRead(everything(), size, undefined, least), isEmpty);
  const placeOf = (marks: Marks): Rectangle | null => {
    if (marks.box >= 0) return scene.boxes[marks.box];
    if (marks.frame >= 0) return scene.frames[marks.frame];
    if (marks.stub < 0) return null;
    const { x, y } = scene.stubs[marks.stub];
    return { x: x - 20, y: y - 30, width: 40, height: 60 };
  };

  /** Moved just enough to bring a module without gradient into sight, since the verdict names it. */
  const withLost = (camera: Camera): Camera => {
    const box = scene.boxes[looks.failed.indexOf(2)];
    if (!box) return camera;
    const { width, height } = visibleArea(camera, first().size);
    const near = (at: number, view: number, start: number, length: number): number => Math.min(start - margin, Math.max(at, start + length + margin - view));
    return { ...camera, x: near(camera.x, width, box.x, box.width), y: near(camera.y, height, box.y, box.height) };
  };

  const self: Stage = {
    element,
    map: map.element,
    get drawings() {
      return drawings;
    },
    get shown() {
      return shown;
    },
    get scene() {
      return scene;
    },
    get places() {
      return places;
    },
    get looks() {
      return looks;
    },
    get lit() {
      return lit;
    },
    get camera() {
      return first().camera;
    },
    get composed() {
      return composed;
    },
    firstOpened() {
      const { width, height } = first().size;
      return sums.differs ? openChanged(shown, sums) : composer.firstOpened(width / readable, height / readable);
    },
    follow(next, anchor) {
      const last = state;
      state = next;
      const from = anchor >= 0 ? rectangleOf(anchor) : null;
      if (next.switches !== last.switches) {
        shown = shownOf(model, next.switches);
        composer = new Composer(shown);
        sums = sumsOf(model, shown);
      }
      if (next.colour !== last.colour || next.switches !== last.switches) colours = coloured();
      if (next.opened !== last.opened || next.switches !== last.switches || scene.width === 0) compose();
      looks = looksOf(shown, sums, colours, scene);
      light();
      selectedMarks = marksOf(shown, places, next.selected);
      arrange();
      const to = from === null ? null : rectangleOf(anchor);
      if (from !== null && to !== null) {
        const { camera } = first();
        moved({ x: camera.x + to.x - from.x, y: camera.y + to.y - from.y, k: camera.k });
      }
      present();
      mark();
    },
    select(selected) {
      const wasLit = lit;
      state = { ...state, selected };
      selectedMarks = marksOf(shown, places, selected);
      light();
      if (lit !== null || wasLit !== null) present();
      mark();
    },
    point(marks) {
      if (String(Object.values(marks)) === String(Object.values(pointed))) return;
      pointed = marks;
      mark();
    },
    reveal(selected) {
      const place = placeOf(marksOf(shown, places, selected));
      if (place === null) return;
      const { camera, size } = first();
      const window = visibleArea(camera, size);
      const k = Math.max(readable, camera.k);
      const isLarge = place.width * k > size.width * 0.9 || place.height * k > size.height * 0.9;
      const isFree = (covered: Rectangle): boolean => !overlap(place, covered);
      if (camera.k >= readable * 0.99 && within(place, window) && (isLarge || isClear(camera, isFree))) return;
      first().fly(isLarge ? fitToRead(place, size, k) : clear((part) => centreOn(place, part, k), isFree));
    },
    fit(selected) {
      const place = selected === undefined ? null : placeOf(marksOf(shown, places, selected));
      first().fly(place === null ? whole() : fitAll(place, first().size, 60));
    },
    begin() {
      const { size } = first();
      const camera = whole();
      // A review lists first what its verdict is about.
      const change = model.changes.length > 0 && placeOf(marksOf(shown, places, { kind: "change", at: 0 }));
      const top = change || scene.boxes[0];
      const start = fitToRead(everything(), size);
      if (camera.k >= readable || !top) first().move(camera);
      else {
        const { x, y } = centreOn(top, size, readable);
        // The box in the middle, as far as that leaves nothing empty beside the drawing.
        const seen = { ...start, x: Math.max(start.x, Math.min(x, scene.width - size.width / readable)) };
        first().move(change ? { ...seen, y: Math.max(start.y, y) } : withLost(seen));
      }
      // Where the drawing runs off the view, the legend gives way to it.
      if (!isClear(first().camera, isEmpty, covers().slice(0, 1))) legendOf().open = false;
    },
    zoom(factor, x = first().size.width / 2, y = first().size.height / 2) {
      first().move(zoomAt(first().camera, factor, x, y));
    },
    pan(dx, dy) {
      first().move(panBy(first().camera, dx, dy));
    },
    move(camera) {
      first().move(camera);
    },
    resize() {
      const isNew = drawings.filter((each) => each.resize()).length > 0;
      map.look(visibleArea(first().camera, first().size));
      return isNew;
    },
    recolour() {
      theme = themeOf(document.documentElement);
      present();
    },
  };
  return self;
}

/** The place that shows the selection: its box, its frame, its stub, or the closed module that hides it. */
export function marksOf(shown: Shown, places: Places, selected: Selected): Marks {
  const { scene, frameOf } = places;
  const { model } = shown;
  if (selected.kind === "none") return noMarks;
  if (selected.kind === "node") return { ...noMarks, box: scene.boxOf(selected.at) };
  if (selected.kind === "module") return moduleMarks(selected.at);
  if (selected.kind === "cut") {
    const stub = scene.stubs.findIndex(({ cut }) => cut === selected.at);
    const { at, into, scope } = model.cuts[selected.at];
    if (stub >= 0) return { ...noMarks, stub };
    const node = into >= 0 ? into : at;
    return { ...noMarks, box: node >= 0 ? scene.boxOf(node) : scene.boxOfScope(scope) };
  }
  const { nodes, scopes } = model.changes[selected.at];
  if (scopes.length > 0) return moduleMarks(scopes[0]);
  return nodes.length > 0 ? { ...noMarks, box: scene.boxOf(nodes[0]) } : noMarks;

  function moduleMarks(scope: number): Marks {
    const drawn = shown.scopes.drawn(scope);
    const frame = frameOf.get(drawn);
    return frame === undefined ? { ...noMarks, box: scene.boxOfScope(drawn) } : { ...noMarks, frame };
  }
}
