/** The data and actions of the page that each panel gets once. */

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
  /** The colourings to choose from. */
  readonly colours: (readonly [name: string, words: string])[];
  readonly state: State;
  readonly shown: Shown;
  /** Null until the second block has been read. */
  details: DetailsOfAll | null;
  /** Selects, opens the modules around it and brings it into sight; nothing moves if it `isSeen`. */
  select(selected: Selected, isSeen?: boolean): void;
  change(part: Partial<State>): void;
  /** Opens or closes a shown scope. */
  toggle(scope: number): void;
  /** The address of the current view. */
  link(): string;
  say(words: string): void;
  /** Searches as if the reader had typed it. */
  find(words: string): void;
  /** A button with the action of a key, and the text of the help unless another is given. */
  tool(key: string, words?: string): HTMLButtonElement;
}
