/** Where the arrows lead on the drawing: up and down along the lines, to the side by place. */

import { linesAt } from "./draw/painting.ts";
import { type Stage, marksOf } from "./draw/stage.ts";
import type { Page } from "./panels/context.ts";
import type { SceneBox } from "./scene/scene.ts";
import { selectBox } from "./words.ts";

const step = 80;

export function walkByArrow(page: Page, dx: number, dy: number) {
  return (_: string, isShift: boolean): void => {
    const { stage } = page;
    if (isShift) stage.pan(-dx * step, -dy * step);
    else {
      const next = neighbour(stage, marksOf(stage.shown, stage.places, page.state.selected), dx, dy);
      if (next >= 0) page.select(selectBox(stage.scene.boxes[next]));
    }
  };
}

function neighbour(stage: Stage, { box: here, frame }: { readonly box: number; readonly frame: number }, dx: number, dy: number): number {
  const { boxes, frames, lines } = stage.scene;
  if (here < 0) {
    // Without a selection, start nearest to the middle of the view, in a frame if one is selected.
    const { width, height } = stage.drawings[0].size;
    const { x, y, k } = stage.camera;
    const at = frame >= 0 ? { x: middleOf(frames[frame]), y: frames[frame].y } : { x: x + width / 2 / k, y: y + height / 2 / k };
    return nearest([...boxes.keys()], (box) => Math.hypot(middleOf(boxes[box]) - at.x, boxes[box].y - at.y));
  }
  const { x, y, width, height } = boxes[here];
  const { across } = stage.scene;
  const along = across ? dx : dy;
  if (along !== 0) {
    const ends = [...linesAt(stage.places, here)].flatMap((at) => {
      const { from, to } = lines[at];
      return (along > 0 ? from : to) === here ? [along > 0 ? to : from] : [];
    });
    return nearest(ends, (box) => (across ? Math.abs(boxes[box].y - y) : Math.abs(middleOf(boxes[box]) - middleOf(boxes[here]))));
  }
  const band = across
    ? { x, y: dy > 0 ? y + height : 0, width, height: dy > 0 ? stage.scene.height - y - height : Math.max(0, y) }
    : { x: dx > 0 ? x + width : 0, y, width: dx > 0 ? stage.scene.width - x - width : Math.max(0, x), height };
  const far = (box: number): number => (boxes[box].x - x) * dx + (boxes[box].y - y) * dy;
  return nearest(
    stage.places.boxes.inside(band).filter((box) => far(box) > 0),
    far,
  );
}

function middleOf({ x, width }: Pick<SceneBox, "x" | "width">): number {
  return x + width / 2;
}

/** The first of those that are the least far, -1 of none. */
function nearest(all: readonly number[], far: (box: number) => number): number {
  let best = -1;
  let least = Infinity;
  for (const box of all) {
    const away = far(box);
    if (away < least) [best, least] = [box, away];
  }
  return best;
}
