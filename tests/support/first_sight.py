"""The smallest word that a page shows when it opens, on a desktop and on a phone."""

from __future__ import annotations

from typing import Final

from browser import Opened

DESKTOP: Final = {"width": 1280, "height": 800}
PHONE: Final = {"width": 390, "height": 844}
LEAST: Final = 11
"""Pixels of the smallest word at first sight."""

_WORDS: Final = r"""
() => new Promise((done) => {
  const found = [];
  const pen = CanvasRenderingContext2D.prototype;
  const real = pen.fillText;
  pen.fillText = function (words, ...rest) {
    const size = parseFloat(/([\d.]+)px/.exec(this.font)[1]);
    if (/\w\w/.test(words)) found.push([size * this.getTransform().a / devicePixelRatio, words]);
    return real.call(this, words, ...rest);
  };
  told.recolour();
  requestAnimationFrame(() => requestAnimationFrame(() => {
    pen.fillText = real;
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    for (let text = texts.nextNode(); text; text = texts.nextNode()) {
      if (!/\w\w/.test(text.data) || !text.parentElement.checkVisibility()) continue;
      found.push([parseFloat(getComputedStyle(text.parentElement).fontSize), text.data]);
    }
    done(found);
  }));
})
"""


def assert_readable(page: Opened) -> None:
    """Expect that a page that was just opened has no word that is too small, and no box below the legend."""
    assert not _is_hidden(page), "by the legend"
    words = page.page.evaluate(_WORDS)
    assert len(words) > 10
    assert min(words)[0] >= LEAST, sorted(words)[:5]


def _is_hidden(page: Opened) -> bool:
    """Whether the opened legend lies over a box."""
    if page.page.locator(".legend").get_attribute("open") is None:
        return False
    cover, drawn, view = (
        page.page.locator(".legend").bounding_box(),
        page.page.locator(".drawing").bounding_box(),
        page.ask("view"),
    )
    left, top = view["x"] + (cover["x"] - drawn["x"]) / view["k"], view["y"] + (cover["y"] - drawn["y"]) / view["k"]
    right, bottom = left + cover["width"] / view["k"], top + cover["height"] / view["k"]
    return any(
        each["x"] < right
        and left < each["x"] + each["width"]
        and each["y"] < bottom
        and top < each["y"] + each["height"]
        for each in page.ask("boxes")
    )
