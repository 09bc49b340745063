/** Prints the view in the colours of the light theme, as large as the sheet. */

import { canvasOf } from "./draw/exports.ts";
import { marksOf } from "./draw/stage.ts";
import { themeOf } from "./draw/theme.ts";
import type { Page } from "./panels/context.ts";

export function printing(page: Page): void {
  const root = document.documentElement;
  addEventListener("beforeprint", () => {
    root.classList.add("paper");
    const { shown, places, drawings } = page.stage;
    const theme = themeOf(root);
    for (const { painting, camera, size, element } of drawings) {
      if (painting === null) continue;
      const canvas = canvasOf({ ...painting, theme }, camera, size, marksOf(shown, places, page.state.selected));
      canvas.className = "print";
      element.append(canvas);
    }
  });
  addEventListener("afterprint", () => {
    root.classList.remove("paper");
    for (const canvas of document.querySelectorAll("canvas.print")) canvas.remove();
  });
}
