/** What panels know and may ask for: the page gives it to each of them once. */

import type { DetailsOfAll, Model } from "../data/model.ts";
import type { Stage } from "../draw/stage.ts";
import type { Sums } from "../draw/sums.ts";
import type { Shown } from "../graph/shown.ts";
import type { Selected, State } from "../state.ts";

export interface Page {
  readonly model: Model;
  /** Of the modules of the graph. */
  readonly sums: Sums;
  readonly stage: Stage;
  /** What one can colour by. */
  readonly colours: (readonly [name: string, words: string])[];
  readonly state: State;
  readonly shown: Shown;
  /** Null until the second block has been read. */
  details: DetailsOfAll | null;
  /** Selects, opens what holds it and brings it into sight; nothing moves where it `isSeen`. */
  select(selected: Selected, isSeen?: boolean): void;
  change(part: Partial<State>): void;
  /** Opens or closes a scope of what is shown. */
  toggle(scope: number): void;
  /** The address of what is seen now. */
  link(): string;
  say(words: string): void;
  /** Searches as if the reader had typed it. */
  find(words: string): void;
  /** A button that does what a key does, with the words of the help where no others are given. */
  tool(key: string, words?: string): HTMLButtonElement;
}
