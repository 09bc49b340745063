"""Draws the gallery: every example as a page and through DOT and Mermaid, light and dark, and what shows them.

python docs/gallery/build.py

It needs torch, transformers, Chromium with Playwright, and the npm packages of tests/node (make node). The drawings in
the repository are those of Graphviz's dot. Run it from the project's root.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from playwright.sync_api import Browser

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[1]
MERMAID = ROOT / "tests" / "node" / "node_modules" / "mermaid" / "dist" / "mermaid.min.js"

THEMES: Final = ("light", "dark")


HEAD = """\
# Gallery

The commands above each example make what is below them. A page is one file that opens from the disk: save it and open
it in a browser. Double-click a module to open it, and press `?` for the keys. [First sight](first-sight.md) shows how
sixteen pages open on a desktop and on a phone. `--to mermaid --fence` prints the block of a Mermaid picture.
"""


class Exhibit(NamedTuple):
    """One example: its title, its SPEC, and the options of ``gradir export``."""

    name: str
    title: str
    spec: str
    options: str = ""


EXHIBITS = (
    Exhibit("arithmetic", "Five operations", "arithmetic.py:product"),
    Exhibit("lstm-cell", "One step of an LSTM cell", "lstm_cell.py:step", "--drop accumulate_grad"),
    Exhibit("gradient-penalty", "Backward through a backward", "gradient_penalty.py:penalty", "--drop accumulate_grad"),
    Exhibit("mlp", "A multilayer perceptron", "mlp_critic.py:values", "--drop accumulate_grad"),
    Exhibit("resnet", "A residual network, folded to its blocks", "resnet.py:loss", "--depth 2"),
    Exhibit("unet", "A U-Net, folded to its blocks", "unet.py:loss", "--drop accumulate_grad --depth 2"),
    Exhibit("recurrent", "Fifty steps of one cell", "recurrent.py:loss", "--drop accumulate_grad --once"),
    Exhibit("mixture", "A mixture of 24 experts", "mixture.py:loss", "--drop accumulate_grad --once"),
    Exhibit(
        "gpt",
        "A GPT of twelve equal layers, shown once",
        "gpt.py:loss",
        "--drop accumulate_grad --hide-shape-ops --rollup",
    ),
    Exhibit("t5", "T5, folded to its stacks", "t5.py:loss", "--rollup --depth 3"),
)

LOST = Exhibit("lost", "A generator that gets no gradient", "gan.py:loss")
REVIEW = Exhibit("review", "A review: an adapter in one of twelve layers", "gpt.py:edited")


def gradir(*arguments: str, expected: int = 0, folder: Path = ROOT) -> None:
    """Run the command in a folder; it has to end with the expected status."""
    line = [sys.executable, "-m", "gradir", *arguments]
    if subprocess.run(line, cwd=folder, check=False).returncode != expected:  # noqa: S603 (its own program)
        raise SystemExit(f"failed: {shlex.join(line[2:])}")


def draw(exhibit: Exhibit, browser: Browser, folder: Path) -> str:
    """Draw one example; returns its section."""
    graph = folder / f"{exhibit.name}.gir"
    gradir("capture", f"examples/{exhibit.spec}", "-o", str(graph))
    options = shlex.split(exhibit.options)
    for theme in THEMES:
        picture = FOLDER / f"{exhibit.name}-{theme}.svg"
        look = ["-O", "legend=true", "-O", f"theme={theme}"]
        gradir("export", str(graph), "--to", "svg", *options, *look, "-o", str(picture))
    block = folder / f"{exhibit.name}.mmd"
    gradir("export", str(graph), "--to", "mermaid", *options, "-o", str(block))
    source = block.read_text(encoding="utf-8")
    photograph_mermaid(source, exhibit.name, browser, folder)
    page = FOLDER / "pages" / f"{exhibit.name}.html"
    gradir("export", str(graph), "--to", "html", "-O", f"title={exhibit.title}", "-o", str(page))
    photograph_page(page, browser)
    return section(exhibit)


def draw_lost(browser: Browser) -> str:
    """Draw the model whose gradient is lost; returns its section."""
    page = FOLDER / "pages" / f"{LOST.name}.html"
    gradir("export", LOST.spec, "--to", "html", "-o", str(page), folder=FOLDER)
    photograph_page(page, browser)
    return f"""
## {LOST.title}

    gradir explain {LOST.spec}
    gradir export {LOST.spec} --to html -o {LOST.name}.html

{link_picture(LOST.name)}
"""


def draw_review(browser: Browser, folder: Path) -> str:
    """Draw the review; returns its section."""
    files = []
    for name, spec in (("gpt", "gpt.py:loss"), (REVIEW.name, REVIEW.spec)):
        files.append(str(folder / f"{name}.gir"))
        gradir("capture", f"examples/{spec}", "-o", files[-1])
    page = FOLDER / "pages" / f"{REVIEW.name}.html"
    gradir("diff", *files, "--format", "html", "-o", str(page), expected=1)
    photograph_page(page, browser)
    return f"""
## {REVIEW.title}

    gradir capture examples/gpt.py:loss -o gpt.gir
    gradir capture examples/{REVIEW.spec} -o {REVIEW.name}.gir
    gradir diff gpt.gir {REVIEW.name}.gir --format html -o {REVIEW.name}.html

{link_picture(REVIEW.name)}
"""


def section(exhibit: Exhibit) -> str:
    """What is shown of one example."""
    options = f" {exhibit.options}" if exhibit.options else ""
    return f"""
## {exhibit.title}

    gradir capture examples/{exhibit.spec} -o {exhibit.name}.gir
    gradir export {exhibit.name}.gir --to html -O title={shlex.quote(exhibit.title)} -o {exhibit.name}.html
    gradir export {exhibit.name}.gir --to svg{options} -O legend=true -o {exhibit.name}.svg

{link_picture(exhibit.name)}

| DOT | Mermaid |
|---|---|
| {picture(exhibit.name, "svg")} | {picture(f"{exhibit.name}-mermaid", "png")} |
"""


def link_picture(name: str) -> str:
    """The picture of a page, which leads to it."""
    return f"""[The page](pages/{name}.html):

{picture(f"{name}-page", "png")}"""


def picture(name: str, suffix: str) -> str:
    """A picture that follows the reader's theme."""
    dark = f'<source media="(prefers-color-scheme: dark)" srcset="{name}-dark.{suffix}">'
    return f'<picture>{dark}<img src="{name}-light.{suffix}" alt="{name}"></picture>'


def quantize(picture: Path) -> None:
    """Leave a picture the colours that it needs: it has a third of the bytes."""
    from PIL import Image

    with Image.open(picture) as image:
        fewer = image.convert("RGB").quantize(64, dither=Image.Dither.NONE)
    fewer.save(picture, optimize=True)


def photograph_mermaid(source: str, name: str, browser: Browser, folder: Path) -> None:
    """Let Mermaid draw a block in both themes."""
    page = folder / "mermaid.html"
    page.write_text(
        f'<!doctype html><meta charset="utf-8"><script src="{MERMAID.as_uri()}"></script>', encoding="utf-8"
    )
    for theme in THEMES:
        with browser.new_page(viewport={"width": 1400, "height": 900}) as opened:
            opened.goto(page.as_uri())
            drawn = opened.evaluate(
                """async ([source, theme]) => {
                mermaid.initialize({startOnLoad: false, theme, flowchart: {useMaxWidth: false}});
                document.body.innerHTML = (await mermaid.render("drawn", source)).svg;
                document.body.style.background = theme === "dark" ? "#0d1117" : "#ffffff";
                document.body.style.margin = "0";
                return document.body.textContent;
            }""",
                [source, "dark" if theme == "dark" else "default"],
            )
            if "Syntax error" in drawn:
                raise SystemExit(f"Mermaid did not draw {name}")
            picture = FOLDER / f"{name}-mermaid-{theme}.png"
            opened.locator("#drawn").screenshot(path=picture)
            quantize(picture)


def photograph_page(page: Path, browser: Browser) -> None:
    """The first picture of a page in both themes."""
    for theme in THEMES:
        with browser.new_page(viewport={"width": 1280, "height": 800}, color_scheme=theme) as opened:
            opened.goto(page.as_uri())
            opened.wait_for_function("() => window.gradir?.timings.picture > 0")
            picture = FOLDER / f"{page.stem}-page-{theme}.png"
            opened.screenshot(path=picture)
            quantize(picture)


def chromium() -> str:
    """Return the path of the browser."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        raise SystemExit("the gallery needs Chromium")
    return found


def main() -> None:
    """Draw all and write what shows it."""
    from playwright.sync_api import sync_playwright

    program = chromium()
    (FOLDER / "pages").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as place, sync_playwright() as playwright:
        folder = Path(place)
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        sections = [draw_lost(browser), *(draw(exhibit, browser, folder) for exhibit in EXHIBITS)]
        sections.append(draw_review(browser, folder))
        browser.close()
    (FOLDER / "README.md").write_text(HEAD + "".join(sections), encoding="utf-8")


if __name__ == "__main__":
    main()
