"""Takes the pictures of docs/gallery/first-sight.md: what a page shows when it opens, on a desktop and on a phone.

python docs/gallery/first_sight.py [NAME …]

It needs what build.py needs, and for the model of JAX the Python of GRADIR_JAX_PYTHON. Run it from the project's root.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from build import ROOT, chromium, gradir, quantize
from playwright.sync_api import sync_playwright

if TYPE_CHECKING:
    from playwright.sync_api import Browser

FOLDER = Path(__file__).parent / "first-sight"
WINDOWS: Final = {"": (1280, 800), "-phone": (390, 844)}
OWN = "docs/gallery/models.py"

PAGES: Final = {
    "mlp": ("A multilayer perceptron", "export examples/mlp_critic.py:values"),
    "resnet50": ("ResNet-50", f"export {OWN}:resnet50"),
    "gpt2": ("GPT-2", f"export {OWN}:gpt2"),
    "t5": ("T5", "export examples/t5.py:loss"),
    "unet": ("A U-Net", "export examples/unet.py:loss"),
    "lstm": ("Fifty steps of an LSTM cell", "export examples/recurrent.py:loss"),
    "mixture": ("A mixture of 24 experts", "export examples/mixture.py:loss"),
    "gan": ("A GAN, without recorded flow", "export gan.gir"),
    "gan-flow": ("The same GAN, with flow", "export examples/dcgan.py:discriminator_step --flow"),
    "shape-linear": ("A shape error in a linear layer", f"export {OWN}:flattened --graph forward"),
    "shape-attention": ("A shape error in attention", f"export {OWN}:attention --graph forward"),
    "detached": ("An encoder that is detached", f"export {OWN}:detached"),
    "jax": ("A GPT in JAX", "export examples/jax_gpt.py:loss"),
    "deep": ("140,000 nodes", f"export {OWN}:deep"),
    "diff-adapter": ("A review: an adapter in one layer", "diff examples/gpt.py:loss examples/gpt.py:edited"),
    "diff-activation": ("A review: another activation", "diff examples/gpt.py:loss examples/gpt.py:swapped"),
}
HEAD = """\
# At first sight

These pages open like this, on a desktop (1280 × 800) and on a phone (390 × 844). No word is smaller than 11 pixels.
`make gallery` takes the pictures, and the [gallery](README.md) has pages to open.

"""


def write(name: str, folder: Path) -> Path:
    """Write a page as its command does."""
    page = folder / f"{name}.html"
    program = (os.environ.get("GRADIR_JAX_PYTHON") or sys.executable) if name == "jax" else sys.executable
    command = PAGES[name][1].replace("gan.gir", str(folder / "gan.gir"))
    if name == "gan":
        spec = "examples/dcgan.py:discriminator_step"
        gradir("capture", spec, "-o", str(folder / "gan.gir"))
    options = ["--format" if command.startswith("diff") else "--to", "html", "-o", str(page)]
    # A forward that raises and graphs that differ have a status of their own.
    subprocess.run([program, "-m", "gradir", *command.split(), *options], cwd=ROOT, check=False)  # noqa: S603 (its own program)
    return page


def photograph(page: Path, browser: Browser) -> None:
    """Take the first picture in each window."""
    for suffix, (width, height) in WINDOWS.items():
        with browser.new_page(viewport={"width": width, "height": height}) as opened:
            opened.goto(page.as_uri())
            opened.wait_for_function("() => window.gradir?.timings.details > 0")
            picture = FOLDER / f"{page.stem}{suffix}.png"
            opened.screenshot(path=picture)
            quantize(picture)


def row(name: str) -> str:
    """Return the row of the table for a page."""
    title, command = PAGES[name]
    shown = " | ".join(
        f'<a href="first-sight/{name}{suffix}.png"><img src="first-sight/{name}{suffix}.png" alt="{name}" '
        f'width="{width}"></a>'
        for suffix, width in (("", 480), ("-phone", 146))
    )
    return f"| {title}<br>`gradir {command}` | {shown} |\n"


def main(names: list[str]) -> None:
    """Take the pictures of some pages, or of all."""
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as place, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        for name in names or PAGES:
            photograph(write(name, Path(place)), browser)
        browser.close()
    table = "| Model | Desktop | Phone |\n|---|---|---|\n" + "".join(map(row, PAGES))
    FOLDER.with_suffix(".md").write_text(HEAD + table, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
