/** A block of the page: JSON, compressed and in base64, so that no text in it can be markup. */

export async function readBlock(root: Document, id: string): Promise<unknown> {
  const element = root.getElementById(id);
  if (element === null) {
    throw new Error(`the page has no block ${id}: the file is incomplete`);
  }
  return unpack(element.textContent ?? "");
}

export async function unpack(text: string): Promise<unknown> {
  const stream = new Blob([bytes(text.trim())]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text()) as unknown;
}

function bytes(text: string): Uint8Array<ArrayBuffer> {
  const signs = atob(text);
  const found = new Uint8Array(signs.length);
  for (let at = 0; at < signs.length; at++) found[at] = signs.charCodeAt(at);
  return found;
}

/** A column as a block has it: the numbers, or the one number that all of them are. */
export type Packed = number | readonly number[];

/** Fills a column with its numbers. */
export function fill<T extends Int32Array | Float64Array>(column: T, packed: Packed): T {
  if (typeof packed === "number") return column.fill(packed) as T;
  column.set(packed);
  return column;
}

export function column(count: number, packed: Packed): Int32Array {
  return fill(new Int32Array(count), packed);
}

/** Makes numbers of their differences, in place. */
export function sumUp(column: Int32Array): Int32Array {
  for (let at = 1; at < column.length; at++) column[at] += column[at - 1];
  return column;
}
