"""Draws the gallery: every example through DOT and Mermaid, light and dark, and the page that shows them.

python docs/gallery/build.py

It needs torch, Graphviz's dot, Chromium, and the npm packages of tests/node (make node). Run from the project's root.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[1]
MERMAID = ROOT / "tests" / "node" / "node_modules" / "mermaid" / "dist" / "mermaid.min.js"

HEAD = """\
# Gallery

Every picture here is made by the commands above it; `make gallery` draws them all again. The Mermaid blocks are text
that GitHub draws itself; beside DOT's they are shown as pictures too, as another page would.
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
    Exhibit(
        "gpt",
        "A GPT of twelve equal layers, shown once",
        "gpt.py:loss",
        "--drop accumulate_grad --hide-shape-ops --rollup",
    ),
)


def gradir(*arguments: str) -> None:
    """Run the command."""
    subprocess.run([sys.executable, "-m", "gradir", *arguments], cwd=ROOT, check=True)  # noqa: S603 (its own program)


def draw(exhibit: Exhibit, folder: Path) -> str:
    """Draw one example; returns its section of the page."""
    graph = folder / f"{exhibit.name}.gir"
    gradir("capture", f"examples/{exhibit.spec}", "-o", str(graph))
    options = shlex.split(exhibit.options)
    for theme in ("light", "dark"):
        picture = FOLDER / f"{exhibit.name}-{theme}.svg"
        look = ["-O", "legend=true", "-O", f"theme={theme}"]
        gradir("export", str(graph), "--to", "svg", *options, *look, "-o", str(picture))
    source = folder / f"{exhibit.name}.mmd"
    gradir("export", str(graph), "--to", "mermaid", *options, "-o", str(source))
    for theme in ("default", "dark"):
        picture = FOLDER / f"{exhibit.name}-mermaid-{'light' if theme == 'default' else theme}.png"
        photograph(source.read_text(encoding="utf-8"), theme, picture, folder)
    return section(exhibit, source.read_text(encoding="utf-8"))


def section(exhibit: Exhibit, source: str) -> str:
    """The page's section of one example."""
    options = f" {exhibit.options}" if exhibit.options else ""
    return f"""
## {exhibit.title}

    gradir capture examples/{exhibit.spec} -o {exhibit.name}.gir
    gradir export {exhibit.name}.gir --to svg{options} -O legend=true -o {exhibit.name}.svg
    gradir export {exhibit.name}.gir --to mermaid{options} --fence

| DOT | Mermaid |
|---|---|
| {picture(exhibit.name, "svg")} | {picture(f"{exhibit.name}-mermaid", "png")} |

<details><summary>The Mermaid block</summary>

```mermaid
{source}```

</details>
"""


def picture(name: str, suffix: str) -> str:
    """A picture that follows the reader's theme."""
    dark = f'<source media="(prefers-color-scheme: dark)" srcset="{name}-dark.{suffix}">'
    return f'<picture>{dark}<img src="{name}-light.{suffix}" alt="{name}"></picture>'


def photograph(source: str, theme: str, target: Path, folder: Path) -> None:
    """Let Chromium draw a Mermaid block."""
    ground = "#0d1117" if theme == "dark" else "#ffffff"
    page = folder / "page.html"
    page.write_text(
        f"""<!doctype html><meta charset="utf-8"><body style="margin:0;background:{ground}"><div id="picture"></div>
<script src="{MERMAID.as_uri()}"></script><script>
mermaid.initialize({{startOnLoad: false, theme: "{theme}", flowchart: {{useMaxWidth: false}}}});
mermaid.render("drawn", {json.dumps(source)}).then(({{svg}}) => {{
  document.getElementById("picture").innerHTML = svg;
}});
</script>""",
        encoding="utf-8",
    )
    dom = chromium(page, "--dump-dom").decode()
    size = re.search(r'<svg[^>]*? viewBox="[-\d.]+ [-\d.]+ ([\d.]+) ([\d.]+)"', dom)
    if size is None or "Syntax error" in dom:
        raise SystemExit(f"Mermaid did not draw {target.name}")
    width, height = (int(float(number)) + 1 for number in size.groups())
    chromium(page, f"--screenshot={target}", f"--window-size={max(width, 500)},{height}")


def chromium(page: Path, *arguments: str) -> bytes:
    """Run the browser without a window; returns what it prints."""
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        raise SystemExit("the gallery needs Chromium")
    line = [program, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--virtual-time-budget=20000"]
    line = [*line, *arguments, page.as_uri()]
    return subprocess.run(line, capture_output=True, check=True, timeout=120).stdout  # noqa: S603 (a page of its own)


def main() -> None:
    """Draw all and write the page."""
    with tempfile.TemporaryDirectory() as folder:
        sections = [draw(exhibit, Path(folder)) for exhibit in EXHIBITS]
    (FOLDER / "README.md").write_text(HEAD + "".join(sections), encoding="utf-8")


if __name__ == "__main__":
    main()
