// What a page shows, told from `window.gradir`, which is what the page is made of: names, labels, places, states.
window.told = (() => {
  const page = () => window.gradir.page;
  const stage = () => page().stage;
  const statuses = ["same", "added", "removed", "changed", "renamed", "moved"];
  const roles = ["function", "leaf", "parameter", "buffer", "input", "constant", "output", "other"];
  const idOf = (node) => page().model.nodes.id(node);
  const keyOf = (scope) => page().shown.scopes.key(scope);
  const nameOf = ({ node, scope }) => (node >= 0 ? idOf(node) : keyOf(scope));
  const boxName = (at) => nameOf(stage().scene.boxes[at]);
  /** Pixels of the window, so that a test can click there. */
  const toWindow = (x, y) => {
    const { left, top } = stage().drawings[0].element.getBoundingClientRect();
    const { camera } = stage();
    return { x: left + (x - camera.x) * camera.k, y: top + (y - camera.y) * camera.k };
  };
  return {
    get title() {
      return page().model.title;
    },
    get kind() {
      return page().model.kind;
    },
    get boxes() {
      const { scene, looks, lit } = stage();
      return scene.boxes.map((box, at) => ({
        name: nameOf(box),
        isModule: box.node < 0,
        label: [...box.label],
        times: box.times,
        role: box.node < 0 ? "module" : roles[page().model.nodes.role[box.node]],
        status: statuses[looks.status[at]],
        holds: statuses.filter((_, status) => ((looks.holds[at] >> status) & 1) === 1),
        failed: looks.failed[at] === 1,
        fill: looks.fill[at],
        lit: lit === null ? null : lit[at] > 0,
        isShared: lit !== null && lit[at] === 2,
        isLost: looks.failed[at] === 2,
        x: box.x,
        y: box.y,
        width: box.width,
        height: box.height,
      }));
    },
    get frames() {
      return stage().scene.frames.map(({ scope, depth, x, y, width, height }) => ({ name: keyOf(scope), depth, x, y, width, height }));
    },
    get edges() {
      return stage().scene.lines.map(({ from, to, weight, marked, status, words }) => ({
        from: boxName(from),
        to: boxName(to),
        weight,
        marked,
        words,
        status: statuses[status],
      }));
    },
    get stubs() {
      const { stubs, boxes, frames } = stage().scene;
      const places = [...boxes, ...frames, { node: -1, scope: 0 }];
      return stubs.map(({ cut, box, above, x, y }) => ({ cut, box: nameOf(places[box]), above, x, y }));
    },
    get selection() {
      const { kind, at } = page().state.selected;
      return { kind, name: kind === "none" ? "" : kind === "node" ? idOf(at) : kind === "module" ? keyOf(at) : String(at) };
    },
    get opened() {
      return [...page().state.opened].map(keyOf).sort();
    },
    get colour() {
      return page().state.colour;
    },
    get switches() {
      return { ...page().state.switches };
    },
    get trail() {
      return page().state.trail;
    },
    get sides() {
      return page().state.sides;
    },
    /** What the colours can say; the page shows what of it is drawn. */
    get legend() {
      return stage().looks.legend.map(({ sign, words }) => ({ sign, words }));
    },
    get hits() {
      return window.gradir.finder.hits.map(nameOf);
    },
    get view() {
      const { width, height } = stage().drawings[0].size;
      return { ...stage().camera, width, height };
    },
    /** Whole paintings so far, and the milliseconds of the last one. */
    get painted() {
      return { ...stage().drawings[0].painted };
    },
    /** Whether the pointer is on something to select. */
    get pointed() {
      return stage().drawings[0].element.style.cursor === "pointer";
    },
    get timings() {
      return { ...window.gradir.timings };
    },
    /** The middle of a box or a frame's caption in the window, null where it is not drawn. */
    place(name) {
      const { boxes, frames } = stage().scene;
      const box = boxes.find((each) => nameOf(each) === name);
      if (box) return toWindow(box.x + box.width / 2, box.y + box.height / 2);
      const frame = frames.find(({ scope }) => keyOf(scope) === name);
      if (!frame) return null;
      const corner = toWindow(frame.x, frame.y);
      return { x: corner.x + 24, y: corner.y + 10 };
    },
    placeOfStub(cut) {
      const stub = stage().scene.stubs.find((each) => each.cut === cut);
      return stub ? toWindow(stub.x, stub.y + (stub.above ? -10 : 10)) : null;
    },
  };
})();
