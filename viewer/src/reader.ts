/** The one state of the page, and all that changes it: the actions of a reader, and the link that restores it. */

import { type Model, flag } from "./data/model.ts";
import { colourings } from "./draw/looks.ts";
import { stage as stageOf } from "./draw/stage.ts";
import { sumsOf } from "./draw/sums.ts";
import { eyeOf, memory } from "./memory.ts";
import { scopesAround, toggleScope } from "./opening.ts";
import type { Page } from "./panels/context.ts";
import { timings } from "./probe.ts";
import { caption } from "./scene/labels.ts";
import { type State, carryOver, hashOf, nothing, stateOf, readSwitches, switchesOf } from "./state.ts";
import { boxesWords, trailWords } from "./words.ts";

export interface Reader extends Omit<Page, "tool" | "find"> {
  /** Goes to the view of a link, to the first one where it is empty. */
  go(hash: string): void;
  /** Follows the size of the window; a view that nobody has touched begins again in it. */
  resize(): void;
}

/** Of a graph with more nodes equal layers and steps are drawn once at first. */
const large = 150;
/** All that the drawing depends on. */
const drawnBy = ({ opened, colour, switches, trail, sides }: State) => [opened, colour, switches, trail, sides];

/** `onChange` gets the state that was. */
export function reader(model: Model, onChange: (last: State) => void, say: (words: string) => void): Reader {
  const sums = sumsOf(model);
  const colours = colourings(model, sums);
  const first: State = {
    selected: nothing,
    opened: new Set(),
    colour: colours[0][0],
    // A review is of operations: a change is one of them.
    switches: readSwitches((word, byDefault) => (word === "rollup" ? model.nodes.count > large : byDefault && !(model.changes.length > 0 && /layers|shapes/.test(word)))),
    trail: "",
    sides: false,
  };
  const failed = model.nodes.flags.findIndex((bits) => (bits & flag.failed) !== 0);
  let state = first;
  let link = "";
  let isTouched = false;
  const past = memory(go);
  const stage = stageOf(model, state, sums, () => past.look(stage.camera));

  function apply(next: State, anchor = -1): void {
    const last = state;
    state = next;
    const before = drawnBy(last);
    if (drawnBy(next).some((each, at) => each !== before[at])) stage.follow(next, anchor);
    else stage.select(next.selected);
    past.step(hashOf(state, model, stage.shown.scopes));
    past.look(stage.camera);
    onChange(last);
  }
  /** Open scopes have numbers that the switches change: they are carried over by path. */
  function renumbered(next: State): State {
    const before = stage.shown.scopes;
    stage.follow({ ...next, opened: new Set(), selected: nothing }, -1);
    const now = stage.shown.scopes;
    const { kind, at } = next.selected;
    const found = kind === "module" ? now.find(before.key(at)) : at;
    let opened = carryOver(next.opened, before, now);
    if (next.switches.layers !== state.switches.layers) {
      // Operations are seen in the modules around them, layers are closed.
      const holders = new Set(now.parent);
      opened = next.switches.layers ? new Set([...opened].filter((scope) => holders.has(scope))) : new Set([...opened, ...stage.firstOpened()]);
    }
    return { ...next, opened, selected: found < 0 ? nothing : { kind, at: found } };
  }
  function go(hash: string): void {
    const last = state;
    link = hash;
    const switches = switchesOf(hash, first.switches);
    // A link has all of the view, but switches that stay need no new drawing.
    const isSame = JSON.stringify(switches) === JSON.stringify(state.switches);
    state = { ...first, switches: isSame ? state.switches : switches };
    if (!isSame) stage.follow(state, -1);
    const asked = stateOf(hash, model, stage.shown.scopes, { ...state, opened: stage.firstOpened() });
    // Requests of a link to another graph are left out.
    const colour = colours.some(([name]) => name === asked.colour) ? asked.colour : first.colour;
    state = { ...asked, switches: state.switches, colour, sides: asked.sides && model.changes.length > 0 };
    if (hash === "" && failed >= 0) {
      // Who opens the graph of a forward that raised wants to see where.
      const selected = { kind: "node", at: failed } as const;
      state = { ...state, selected, opened: new Set([...state.opened, ...scopesAround(stage.shown, selected)]) };
    }
    stage.follow(state, -1);
    // Before the drawing finds its place, which leaves room for the legend.
    onChange(last);
    const eye = eyeOf(hash);
    if (eye !== null) stage.move(eye);
    else {
      stage.begin();
      stage.reveal(state.selected);
    }
  }
  // Input before the first picture is not for the drawing.
  for (const kind of ["pointerdown", "wheel", "keydown", "click"])
    addEventListener(kind, () => (isTouched ||= stage.drawings[0].size.width > 0), true);
  return {
    model,
    sums,
    stage,
    colours,
    details: null,
    get state() {
      return state;
    },
    get shown() {
      return stage.shown;
    },
    go,
    link: () => past.link(hashOf(state, model, stage.shown.scopes), stage.camera),
    resize() {
      if (stage.resize() && !isTouched) go(link);
    },
    say,
    select(selected, isSeen = false) {
      const inner = isSeen ? [] : scopesAround(stage.shown, selected).filter((scope) => !state.opened.has(scope));
      apply({ ...state, selected, opened: inner.length > 0 ? new Set([...state.opened, ...inner]) : state.opened });
      if (!isSeen) stage.reveal(selected);
    },
    change(part) {
      const next = { ...state, ...part };
      apply(part.switches === undefined ? next : renumbered(next));
      if (part.switches !== undefined || part.opened !== undefined) {
        if (part.switches === undefined) stage.fit();
        else stage.begin();
        say(boxesWords(stage));
      }
      if (part.trail !== undefined) say(trailWords(state, stage));
    },
    toggle(wanted) {
      const began = performance.now();
      const scope = stage.shown.scopes.drawn(wanted);
      apply({ ...state, opened: toggleScope(state.opened, scope) }, scope);
      stage.reveal({ kind: "module", at: scope });
      say(`${caption(stage.shown, scope)} ${state.opened.has(scope) ? "opened" : "closed"}`);
      requestAnimationFrame(() => setTimeout(() => (timings.opening = performance.now() - began)));
    },
  };
}
