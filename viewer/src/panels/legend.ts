/** What the colours and signs of the drawing say, of what is on. */

import type { Looks } from "../draw/looks.ts";
import { fill, h } from "./dom.ts";

export interface Legend {
  readonly element: HTMLElement;
  show(title: string, looks: Looks, extra: readonly (readonly [className: string, words: string])[]): void;
}

export function legend(): Legend {
  const body = h("ul", {});
  const summary = h("summary", {}, "Legend");
  const element = h("details", { class: "legend", open: innerWidth > 900 }, summary, body);
  return {
    element,
    show(title, looks, extra) {
      fill(summary, `Colours: ${title}`);
      fill(
        body,
        ...looks.legend.map(({ token, sign, words }) => {
          const swatch = h("span", { class: "swatch", "aria-hidden": "true" }, sign);
          swatch.style.background = `var(--${token})`;
          return h("li", {}, swatch, words);
        }),
        ...extra.map(([className, words]) => h("li", {}, h("span", { class: `swatch ${className}`, "aria-hidden": "true" }), words)),
      );
    },
  };
}
