/** Rows of a table by a key, without an array for each key. */

export interface Groups {
  /** The rows of key k are rows[first[k]] up to rows[first[k + 1]], in ascending order. */
  readonly first: Int32Array;
  readonly rows: Int32Array;
}

/** The rows 0 to `keys.length` by their key; a row with a negative key is in no group. */
export function groupByKey(keys: ArrayLike<number>, groups: number, length = keys.length): Groups {
  const first = new Int32Array(groups + 1);
  for (let row = 0; row < length; row++) {
    const key = keys[row];
    if (key >= 0) first[key + 1]++;
  }
  for (let key = 0; key < groups; key++) first[key + 1] += first[key];
  const next = first.slice();
  const rows = new Int32Array(first[groups]);
  for (let row = 0; row < length; row++) {
    const key = keys[row];
    if (key >= 0) rows[next[key]++] = row;
  }
  return { first, rows };
}

/** The rows of a key. */
export function rowsAt({ first, rows }: Groups, key: number): Int32Array {
  return rows.subarray(first[key], first[key + 1]);
}

/** Returns the nodes in the order of the flow along the lines `out` of each to its heads, without those on a cycle or after one. */
export function flowOrder(out: Groups, heads: ArrayLike<number>): Int32Array {
  const waiting = new Int32Array(out.first.length - 1);
  for (const line of out.rows) waiting[heads[line]]++;
  const order = new Int32Array(waiting.length);
  let end = 0;
  waiting.forEach((lines, own) => {
    if (!lines) order[end++] = own;
  });
  for (let place = 0; place < end; place++) {
    for (let row = out.first[order[place]]; row < out.first[order[place] + 1]; row++) {
      const head = heads[out.rows[row]];
      if (!--waiting[head]) order[end++] = head;
    }
  }
  return order.subarray(0, end);
}

/** The last row that does not start behind a place, from row `low` on; one start more is the end. */
export function rowAt(starts: Int32Array, place: number, low = 0): number {
  let high = starts.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (starts[middle] <= place) low = middle;
    else high = middle;
  }
  return low;
}

/** The list of a key; an empty one that is kept from now on where there was none. */
export function listOf<Key, Value>(lists: Map<Key, Value[]>, key: Key): Value[] {
  let found = lists.get(key);
  if (!found) lists.set(key, (found = []));
  return found;
}

/** How deep each scope lies, 0 of the root; one may have a smaller number than a run that holds it. */
export function depths(parent: ArrayLike<number>): Int32Array {
  const depth = new Int32Array(parent.length).fill(-1);
  depth[0] = 0;
  const way: number[] = [];
  for (let scope = 0; scope < parent.length; scope++) {
    let above = scope;
    for (; depth[above] < 0; above = parent[above]) way.push(above);
    let known = depth[above];
    while (way.length) depth[way.pop()!] = ++known;
  }
  return depth;
}
