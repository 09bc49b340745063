/** The legend of the colours and signs that the drawing uses. */

import { statuses } from "../data/model.ts";
import type { Stage } from "../draw/stage.ts";
import { fill, h } from "./dom.ts";

export interface Legend {
  readonly element: HTMLDetailsElement;
  show(title: string, stage: Stage): void;
}

export function legend(): Legend {
  const body = h("ul");
  const summary = h("summary", "Legend");
  const element = h("details.legend", { open: innerWidth > 1100 }, summary, body);
  return {
    element,
    show(title, { looks, shown, scene: { boxes, lines, stubs } }) {
      const drawn = new Set<string>(looks.fill);
      for (const { status } of lines) drawn.add(statuses[status]);
      for (const held of looks.holds) statuses.forEach((status, at) => (held >> at) & 1 && drawn.add(status));
      // A value flows along most lines; the legend names the others.
      const kinds = new Set(lines.flatMap(({ kind }) => (kind > 0 ? [shown.model.edges.kinds[kind]] : [])));
      const signs: readonly (readonly [isDrawn: boolean, className: string, words: string])[] = [
        [looks.failed.includes(1), "failing", "the operation that failed"],
        [stubs.length > 0, "cutting", "a cut: no gradient flows on"],
        [boxes.some((box) => box.times > 1), "times", "equal ones, drawn once"],
        [looks.holds.some((held) => held > 0), "striped", "changes inside"],
        [lines.some((line) => line.marked), "wedge", "a longer line: select its box to see it"],
        [kinds.size > 0, "dotted", [...kinds].join(", ")],
      ];
      fill(summary, `Colours: ${title}`);
      fill(
        body,
        // A scale is told whole, anything else as far as it is drawn.
        looks.legend.map(({ token, sign, words }) => {
          const swatch = h("span.swatch", { "aria-hidden": "true" }, sign);
          const isScale = token.startsWith("scale");
          if (isScale) swatch.classList.add("scale");
          else swatch.style.background = `var(--${token})`;
          return (drawn.has(token) || isScale || token.startsWith("look")) && h("li", swatch, words);
        }),
        signs.map(([isDrawn, className, words]) => isDrawn && h("li", h("span", { class: `swatch ${className}`, "aria-hidden": "true" }), words)),
      );
    },
  };
}
