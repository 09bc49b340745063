/** A link that opens an editor at a source line. The page knows no folder: who reads says once where the files are. */

import { type Child, button, fill, h } from "./dom.ts";

const example = "vscode://file/FOLDER/{file}:{line}";

/** Nothing is linked before the reader has said where, for each title: the files of another's page may be anywhere. */
export function editorLink(title: string, source: string): Child {
  const found = /^(.+):(\d+)/.exec(source);
  if (!found) return null;
  const key = `gradir editor ${title}`;
  const element = h("p");
  const show = (): void => {
    const address = readOrStore(key);
    const to = address.replace("{file}", encodeURI(found[1].replace(/\p{Surrogate}/gu, "\ufffd"))).replace("{line}", found[2]);
    fill(
      element,
      address !== "" && [h("a", { href: to, title: to, target: "_blank", rel: "noreferrer" }, "Open in the editor"), " "],
      button(address === "" ? "Open in an editor\u2026" : "Change\u2026", () => {
        const said = prompt("Address that opens a file in your editor. Write the folder of your source files for FOLDER.", address || example);
        if (said !== null) readOrStore(key, /^(?!javascript|data)[a-z][\w+.-]*:/i.test(said) ? said : "");
        show();
      }),
    );
  };
  show();
  return element;
}

const said = new Map<string, string>();

/** Reads or writes a text that the browser remembers; a page in a frame remembers it until it is closed. */
function readOrStore(key: string, value?: string): string {
  if (value !== undefined) said.set(key, value);
  try {
    if (value !== undefined) localStorage.setItem(key, value);
    return localStorage.getItem(key) ?? "";
  } catch {
    return said.get(key) ?? "";
  }
}
