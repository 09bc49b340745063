/** What panels know and may ask for: the page gives it to each of them once. */

import type { DetailsOfAll, Model } from "../data/model.ts";
import type { Sums } from "../draw/sums.ts";
import type { Shown } from "../graph/shown.ts";
import type { Selected, State } from "../state.ts";

export interface Page {
  readonly model: Model;
  /** Of the modules of the graph. */
  readonly sums: Sums;
  readonly state: State;
  readonly shown: Shown;
  /** Null until the second block has been read. */
  readonly details: DetailsOfAll | null;
  /** Selects, and shows it: opens what holds it where `opens`, and brings it into sight. */
  select(selected: Selected, opens?: boolean, isSeen?: boolean): void;
  change(part: Partial<State>): void;
  /** Opens or closes a scope of what is shown. */
  toggle(scope: number): void;
  say(words: string): void;
}
