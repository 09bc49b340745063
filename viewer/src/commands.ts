/** Everything that a key does, in one table: keys and buttons do it, the help tells it. */

import { allOpened, openUpTo } from "./opening.ts";
import type { Page } from "./panels/context.ts";
import { copy } from "./panels/pieces.ts";
import { savePicture } from "./saving.ts";
import { nothing, switches, trails } from "./state.ts";
import { walkByArrow } from "./walking.ts";

/** The first of its keys (`KeyboardEvent.key`, separated by blanks) is shown. It `isOn` where there is anything to do it with. */
export type Command = readonly [keys: string, words: string, run: (key: string, isShift: boolean) => void, isOn?: boolean];
export type Commands = Readonly<Record<string, readonly Command[]>>;

/** The panels around the drawing. */
export interface Surroundings {
  find(): void;
  help(): void;
  /** Shows one of the lists and goes to it. */
  tab(name: string): void;
  toggleSide(side: "left" | "right"): void;
}

export function commands(page: Page, around: Surroundings): Commands {
  const { model, stage, colours } = page;
  const isDiff = model.changes.length > 0;
  const next = (by: number) => (): void => {
    const { kind, at } = page.state.selected;
    const { length } = model.changes;
    page.select({ kind: "change", at: kind === "change" ? (at + by + length) % length : by > 0 ? 0 : length - 1 });
  };
  const save = (kind: "svg" | "png") => () => void savePicture(stage, page.state.selected, kind).then((name) => page.say(`Saved ${name}`));
  const tab = (name: string) => () => around.tab(name);
  return {
    Find: [
      ["/", "search", around.find],
      ["t", "outline tree", tab("outline")],
      ["m", "table of modules", tab("modules")],
      ["u", "cuts and parameters without gradient", tab("cuts"), model.cuts.length > 0],
    ],
    Changes: [
      ["v", "list of changes", tab("changes"), isDiff],
      ["n", "next change", next(1), isDiff],
      ["p", "previous change", next(-1), isDiff],
      ["b", "before and after side by side", () => page.change({ sides: !page.state.sides }), isDiff],
    ],
    Move: [
      ["ArrowUp", "to an input", walkByArrow(page, 0, -1)],
      ["ArrowDown", "to a consumer", walkByArrow(page, 0, 1)],
      ["ArrowLeft", "to the box at the left", walkByArrow(page, -1, 0)],
      ["ArrowRight", "to the box at the right", walkByArrow(page, 1, 0)],
      ["Shift+arrow", "pan", () => undefined],
      ["+ =", "zoom in", () => stage.zoom(1.25)],
      ["-", "zoom out", () => stage.zoom(0.8)],
      ["f", "fit the whole drawing", () => stage.fit()],
      ["z", "zoom to the selected box", () => stage.fit(page.state.selected)],
    ],
    "Open and close": [
      ["Enter Space", "open or close the selected module", () => toggleSelected(page)],
      ["o", "open all around the selected box", () => page.select(page.state.selected)],
      ["e", "open all", () => page.change({ opened: allOpened(page.shown) })],
      ["0 c", "close all", () => page.change({ opened: new Set() })],
      ["1 2 3 4 5 6 7 8 9", "open to that depth", (key) => page.change({ opened: openUpTo(page.shown, Number(key)) })],
    ],
    "Follow from the selected box": trails.map(([trail, key]) => [
      key,
      trail !== "path" ? trail : model.kind === "forward" ? "path to the output" : "path to the loss",
      () => page.change({ trail: page.state.trail === trail ? "" : trail }),
    ]),
    Show: [
      ["w", "next way to colour", () => {
        const at = colours.findIndex(([name]) => name === page.state.colour);
        const [colour, words] = colours[(at + 1) % colours.length];
        page.change({ colour });
        page.say(`Coloured by ${words}`);
      }],
      ...switches.map(([, name, key, words]): Command => [
        key,
        words,
        () => {
          const isOn = !page.state.switches[name];
          // Among layers shape operations say nothing, among operations they are some.
          page.change({ switches: { ...page.state.switches, ...(name === "layers" && { hideRearranging: isOn }), [name]: isOn } });
        },
      ]),
    ],
    Save: [
      ["s", "visible part as SVG", save("svg")],
      ["S", "visible part as PNG", save("png")],
      ["k", "copy a link to this view", () => {
        // The frame of a notebook has no address that others could open.
        const isAddress = location.protocol !== "about:";
        if (isAddress) copy(page, page.link());
        page.say(isAddress ? "Copied a link to this view" : "A view in a notebook has no link");
      }],
    ],
    Page: [
      ["[", "lists", () => around.toggleSide("left")],
      ["]", "details", () => around.toggleSide("right")],
      ["Escape", "stop following, then select nothing", () => (page.state.trail === "" ? page.select(nothing) : page.change({ trail: "" }))],
      ["?", "this help", around.help],
    ],
  };
}

function toggleSelected(page: Page): void {
  const { selected } = page.state;
  if (selected.kind === "module") page.toggle(selected.at);
  else page.select(selected);
}
