/** What can be done by a key, in one list: the keys work from it, the help panel shows it. */

import { button, h } from "./dom.ts";

export interface Command {
  /** As `KeyboardEvent.key` has them; the first is shown. */
  readonly keys: readonly string[];
  readonly shown: string;
  readonly words: string;
  readonly group: string;
  run(event: KeyboardEvent): void;
  /** Whether there is anything to do it with; left out where always. */
  readonly isOn?: boolean;
}

export interface Commands {
  readonly dialog: HTMLDialogElement;
  open(): void;
}

export function commands(all: readonly Command[]): Commands {
  const byKey = new Map<string, Command>();
  for (const command of all) if (command.isOn !== false) for (const key of command.keys) byKey.set(key, command);
  const body = h("div", { class: "keys" });
  const dialog = h(
    "dialog",
    { class: "help", "aria-labelledby": "gradir-help" },
    h("h2", { id: "gradir-help" }, "Keys"),
    body,
    button("Close", () => dialog.close()),
  );
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || dialog.open) return;
    const target = event.target;
    if (target instanceof HTMLElement && target.matches("input, textarea, select")) return;
    // A button and the like have keys of their own.
    if (
      (event.key === "Enter" || event.key === " " || event.key.startsWith("Arrow")) &&
      target instanceof HTMLElement &&
      target.closest("button, a, summary, [role=tablist]")
    )
      return;
    const command = byKey.get(event.key);
    if (command === undefined) return;
    event.preventDefault();
    command.run(event);
  });
  const tell = (): void => {
    for (const group of new Set(all.map((command) => command.group))) {
      const rows = all.filter((command) => command.group === group && command.isOn !== false);
      if (rows.length > 0)
        body.append(
          h(
            "section",
            {},
            h("h3", {}, group),
            h("dl", {}, ...rows.flatMap(({ shown, words }) => [h("dt", {}, h("kbd", {}, shown)), h("dd", {}, words)])),
          ),
        );
    }
    body.append(
      h(
        "p",
        { class: "note" },
        "By mouse: drag to pan, wheel to zoom, click to select, double-click a module or click its + or \u2212 to open or close it.",
      ),
    );
  };
  return {
    dialog,
    open() {
      if (body.childElementCount === 0) tell();
      dialog.showModal();
    },
  };
}
