/** Listens to the keys of all commands, and tells them. */

import type { Command, Commands } from "../commands.ts";
import { isFramed } from "../draw/gestures.ts";
import { searchKeys } from "../graph/query.ts";
import { button, h } from "./dom.ts";

export interface Help {
  readonly dialog: HTMLDialogElement;
  /** The command of a key, if there is anything to do it with. */
  readonly byKey: ReadonlyMap<string, Command>;
  open(): void;
}

const arrows: Readonly<Record<string, string>> = { ArrowUp: "\u2191", ArrowDown: "\u2193", ArrowLeft: "\u2190", ArrowRight: "\u2192" };

export function help(all: Commands): Help {
  const groups = Object.entries(all).map(([title, group]) => [title, group.filter(([, , , isOn]) => isOn !== false)] as const);
  const byKey = new Map(groups.flatMap(([, group]) => group.flatMap((command) => command[0].split(" ").map((key) => [key, command] as const))));
  const body = h("div.keys");
  const dialog = h(
    "dialog.help",
    { "aria-labelledby": "gradir-help" },
    // Before the keys, so that the focused element is in sight.
    button("Close", () => dialog.close()),
    h("h2", { id: "gradir-help" }, "Keys"),
    body,
  );
  document.addEventListener("keydown", (event) => {
    const { target } = event;
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || dialog.open || !(target instanceof Element)) return;
    const key = event.key === " " ? "Space" : event.key;
    // A field, a button and the like have keys of their own.
    if (target.matches("input, textarea, select") || (/^(Enter|Space|Arrow.*)$/.test(key) && target.closest("button, a, summary"))) return;
    const command = byKey.get(key);
    if (command === undefined) return;
    event.preventDefault();
    command[2](key, event.shiftKey);
  });
  return {
    dialog,
    byKey,
    open() {
      if (body.childElementCount === 0) tell();
      dialog.showModal();
    },
  };

  function tell(): void {
    for (const [title, group] of groups) {
      const rows = group.map(([keys, words]) => {
        const [first, ...more] = keys.split(" ");
        return [h("dt", h("kbd", arrows[first] ?? (more.length > 1 ? `${first} \u2013 ${more.at(-1) ?? ""}` : first))), h("dd", words)];
      });
      if (rows.length > 0) body.append(h("section", h("h3", title), h("dl", rows)));
    }
    body.append(
      h(
        "section",
        h("h3", "Search"),
        h("p.note", `Finds all words. ${searchKeys.join(": ")}: search one field, as in op:mm in:layers.3. "max pool" is one word, h.*.attn all modules of that path, /add|mul/ a regular expression.`),
      ),
      h("p.note", `By mouse: drag to pan, ${isFramed ? "Ctrl and " : ""}wheel to zoom, click to select, double-click a module to open or close it.`),
    );
  }
}
