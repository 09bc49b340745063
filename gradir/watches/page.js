"use strict";
(async () => {
  const packed = Uint8Array.from(atob(document.getElementById("gradir-watch").textContent), (c) => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  const data = await new Response(stream).json();
  const count = data.columns.length;
  const plots = [...document.querySelectorAll(".plot")];
  const items = [...document.querySelectorAll("li[data-column]")];
  const tip = document.querySelector("output");
  const words = { nan: "NaN", inf: "infinity", "-inf": "-infinity" };
  let column = Math.max(0, count - 1);
  let row = 0;
  let pinned = -1;

  const within = (value, most) => Math.max(0, Math.min(most, value));
  const percent = (part, whole) => `${(100 * part) / whole}%`;
  const rows = (plot) => data.heats[plot.dataset.key];

  function mark(kind, at) {
    for (const line of document.querySelectorAll(`.${kind}`)) {
      line.classList.toggle("on", at >= 0);
      line.setAttribute("x1", percent(at + 0.5, count));
      line.setAttribute("x2", percent(at + 0.5, count));
    }
  }

  function cell(plot) {
    for (const each of document.querySelectorAll(".cell.on")) each.classList.remove("on");
    const cells = rows(plot);
    if (!cells) return;
    const rect = plot.querySelector(".cell");
    rect.classList.add("on");
    rect.setAttribute("x", percent(column, count));
    rect.setAttribute("y", percent(row, cells.length));
    rect.setAttribute("width", percent(1, count));
    rect.setAttribute("height", percent(1, cells.length));
  }

  function valuesAt(plot) {
    const cells = rows(plot);
    if (!cells) return [data.columns[column], data.lines[plot.dataset.key][column]];
    const value = cells[row][column];
    return [data.modules[row], data.columns[column], value === null ? "no value" : (words[value] ?? String(value))];
  }

  function show(plot, x, y) {
    const lines = [...valuesAt(plot), ...(data.findings[column] ?? []).slice(0, 3)];
    if (rows(plot) && data.graphs[column]) lines.push("click or Enter: open its graph");
    const text = lines.join("\n");
    // What has not changed is not said again.
    if (tip.textContent !== text) tip.textContent = text;
    tip.hidden = false;
    const wide = document.documentElement.clientWidth - tip.offsetWidth - 8;
    tip.style.left = `${within(x + 14, wide)}px`;
    tip.style.top = `${y + 18 + tip.offsetHeight > innerHeight ? Math.max(0, y - tip.offsetHeight - 12) : y + 18}px`;
    mark("at", column);
    cell(plot);
  }

  function hide() {
    tip.hidden = true;
    mark("at", -1);
    for (const each of document.querySelectorAll(".cell.on")) each.classList.remove("on");
  }

  function pin(at) {
    pinned = at === pinned ? -1 : at;
    mark("pin", pinned);
    for (const item of items) item.classList.toggle("on", Number(item.dataset.column) === pinned);
  }

  function shown(plot) {
    const box = plot.getBoundingClientRect();
    const height = rows(plot) ? ((row + 0.5) * box.height) / rows(plot).length : 0;
    show(plot, box.left + ((column + 0.5) * box.width) / count, box.top + height);
  }

  function press(event, plot) {
    const last = (rows(plot) ?? [0]).length - 1;
    const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    const [right, down] = { ...moves, Home: [-count, 0], End: [count, 0] }[event.key] ?? [0, 0];
    if (event.key === "Escape") return hide();
    if (event.key === "Enter" || event.key === " ") {
      if (rows(plot) && data.graphs[column]) location.assign(data.graphs[column]);
      else pin(column);
    } else if ((!right && !down) || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    column = within(column + right, count - 1);
    row = within(row + down, last);
    shown(plot);
  }

  for (const plot of count ? plots : []) {
    plot.addEventListener("pointermove", (event) => {
      const box = plot.getBoundingClientRect();
      column = within(Math.floor(((event.clientX - box.left) / box.width) * count), count - 1);
      const cells = rows(plot);
      if (cells) row = within(Math.floor(((event.clientY - box.top) / box.height) * cells.length), cells.length - 1);
      show(plot, event.clientX, event.clientY);
    });
    plot.addEventListener("pointerleave", hide);
    plot.addEventListener("blur", hide);
    plot.addEventListener("click", (event) => event.target.closest("a") ?? pin(column));
    plot.addEventListener("keydown", (event) => press(event, plot));
    plot.addEventListener("focus", () => {
      row = within(row, (rows(plot) ?? [0]).length - 1);
      if (plot.matches(":focus-visible")) shown(plot);
    });
  }
  // The numbers are read.
  for (const plot of plots) plot.dataset.ready = "1";
  for (const item of count ? items : []) {
    item.querySelector("button").addEventListener("click", () => {
      pin(Number(item.dataset.column));
      const behavior = matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth";
      if (pinned >= 0) plots[0]?.scrollIntoView({ block: "nearest", behavior });
    });
  }
})();
