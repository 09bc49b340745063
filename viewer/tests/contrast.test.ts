// Text on every colour of the style sheet has a contrast of at least 4.5 : 1, in both themes, and is told apart by those who see fewer colours.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { tokens } from "../src/draw/theme.ts";

const sheet = readFileSync(new URL("../src/style/colours.css", import.meta.url), "utf8");
const [light, dark] = [...sheet.matchAll(/:root(?::not\(\.paper\))? \{([^}]*)\}/g)].map(
  ([, body]) => new Map([...body.matchAll(/--([\w-]+): (#[0-9a-f]{6});/g)].map(([, name, value]) => [name, value])),
);
const themes = [
  ["light", light],
  ["dark", dark],
] as const;

function channels(colour: string): number[] {
  return [1, 3, 5].map((at) => {
    const value = parseInt(colour.slice(at, at + 2), 16) / 255;
    return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  });
}

function luminance(colour: string): number {
  const [red, green, blue] = channels(colour);
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

function contrast(one: string, other: string): number {
  const [low, high] = [luminance(one), luminance(other)].sort((a, b) => a - b);
  return (high + 0.05) / (low + 0.05);
}

for (const [name, theme] of themes) {
  const of = (token: string): string => theme.get(token) ?? assert.fail(`${name} has no --${token}`);
  test(`${name} has every colour that the canvas asks for`, () => {
    assert.deepEqual(
      tokens.filter((token) => !theme.has(token)),
      [],
    );
  });
  test(`text on all that a box may be filled with has 4.5 : 1 in ${name}`, () => {
    const fills = tokens.filter((token) =>
      /^(role|look|tint)-|^(added|removed|changed|renamed|moved|module|plain|ground|panel|frame-a|frame-b)$/.test(token),
    );
    assert.ok(fills.length > 30);
    assert.deepEqual(
      fills.filter((token) => contrast(of("text"), of(token)) < 4.5),
      [],
    );
  });
  test(`quiet text, signs, cuts and links have 4.5 : 1 on what they stand on in ${name}`, () => {
    for (const ground of ["ground", "panel", "raised"]) {
      for (const token of ["quiet", "accent", "cut", "added-rim", "removed-rim", "changed-rim", "renamed-rim", "moved-rim"]) {
        assert.ok(contrast(of(token), of(ground)) >= 4.5, `--${token} on --${ground}: ${contrast(of(token), of(ground)).toFixed(2)}`);
      }
    }
    for (const frame of ["frame-a", "frame-b"])
      for (const token of ["cut", "quiet"]) assert.ok(contrast(of(token), of(frame)) >= 4.5, `--${token} on --${frame}`);
    assert.ok(contrast(of("on-accent"), of("accent")) >= 4.5);
  });
  test(`lines and rims have 3 : 1 on the ground in ${name}`, () => {
    for (const token of ["line", "rim", "accent"]) assert.ok(contrast(of(token), of("ground")) >= 3, token);
  });
  test(`frames of neighbouring depths differ, and from the ground, in ${name}`, () => {
    assert.equal(new Set(["frame-a", "frame-b", "ground"].map(of)).size, 3);
  });
}
