/** `window.gradir`: what the page is made of, so that tests and benchmarks can look at what it shows. */

/** Milliseconds from the start of the page to what was read, the first picture and the details; of the first scene, the last opening, the last search. */
export const timings = { "read": 0, "picture": 0, "details": 0, "composed": 0, "opening": 0, "searching": 0 };

export function probe(parts: object): void {
  Object.defineProperty(window, "gradir", { value: { "timings": timings, ...parts } });
}
