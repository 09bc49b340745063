/** A drawing from left to right is laid out from top to bottom, and turned: x for y. */

export function turnWay(way: Float64Array): Float64Array {
  return way.map((_, at) => way[at ^ 1]);
}

export function turnBox<Box extends { readonly width: number; readonly height: number; readonly x?: number; readonly y?: number }>(box: Box): Box {
  return { ...box, x: box.y, y: box.x, width: box.height, height: box.width };
}
