/** Starts the page: reads its data and draws, then loads the rest. */

import { readDetails } from "./data/details.ts";
import { readModel } from "./data/read.ts";
import { search } from "./graph/search.ts";
import { h } from "./panels/dom.ts";
import { printing } from "./printing.ts";
import { probe, timings } from "./probe.ts";
import { surroundings } from "./surroundings.ts";

async function start(): Promise<void> {
  const model = await readModel(document);
  timings.read = performance.now();
  // A frame may load before it is visible, and the layout depends on its size.
  while (innerWidth * innerHeight === 0) await new Promise(requestAnimationFrame);
  const { page, finder, showLists, showDetails } = surroundings(model);
  const { stage } = page;
  stage.resize();
  page.go(location.hash);
  new ResizeObserver(() => page.resize()).observe(stage.element);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => stage.recolour());
  printing(page);
  probe({ "page": page, "finder": finder });
  timings.composed = stage.composed;
  await new Promise((painted) => requestAnimationFrame(() => setTimeout(painted)));
  timings.picture = performance.now();
  showLists();
  // Screen readers announce changes, not the first content of a page.
  if (model.verdict) page.say(model.verdict[1]);
  page.details = await readDetails(document, model);
  showDetails();
  timings.details = performance.now();
  // The first search makes an index: better now than under the fingers of who types.
  (window.requestIdleCallback ?? setTimeout)(() => search(model, page.details, " index"));
}

start().catch((error: unknown) => {
  const words = error instanceof Error ? error.message : String(error);
  document.body.append(h("main.trouble", { role: "alert" }, h("h1", "This page cannot be drawn"), h("p", words)));
});
