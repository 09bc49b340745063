"""Makes a page to click of every example and of every edit of docs/reviewing.md, for the site.

python docs/live_pages.py FOLDER [NAME ...]

It needs torch and transformers. The examples of JAX need JAX, flax and equinox, here or in the environment whose Python
``GRADIR_JAX_PYTHON`` names, and are left out without them. Run from the project's root. FOLDER gets the pages and
``live.json``, which lists them. With names, SPECs of examples or edits, it gets these alone.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import gradir
from gradir.cli import main as gradir_main

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"
# The options that a SPEC needs, by its name.
SHOWN_WITH = {
    "mlp_critic.py:Critic": ("--input", "float32[4,3]", "--input", "float32[4,2]"),
    "gpt.py:GPT": ("--input", "int64[2,16]"),
    "resnet.py:ResNet": ("--input", "float32[2,3,32,32]"),
    "llama.py:loss": ("--fake",),
    "jax_mlp.py:score": ("--input", "float32[16]", "--input", "float32[4,16]"),
    **{f"jax_modules.py:{kind}": ("--input", "float32[8,4]") for kind in ("Linen", "Nnx")},
    "jax_modules.py:Equinox": ("--input", "float32[4]"),
}
JAX_PYTHON = os.environ.get("GRADIR_JAX_PYTHON")
# What has no graph, to show what is said of it.
WITHOUT_A_GRAPH = frozenset({"policy.py:sampled"})


def specs() -> Iterator[tuple[str, str]]:
    """Every SPEC of the table in examples/README.md, with what it shows."""
    text = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    for names, told in re.findall(r"^\| (`\w+\.py:.*?) \| (.*?) \|$", text, re.MULTILINE):
        file = ""
        for given in re.findall(r"`([^`]+)`", names):
            file = given.partition(":")[0] or file
            yield f"{file}:{given.partition(':')[2]}", told


def examples(folder: Path, names: Collection[str]) -> Iterator[dict[str, Any]]:
    """A page of every example that can be captured here."""
    has_jax = bool(JAX_PYTHON) or all(importlib.util.find_spec(name) for name in ("jax", "flax", "equinox"))
    for spec, told in specs():
        if (names and spec not in names) or spec in WITHOUT_A_GRAPH or (spec.startswith("jax_") and not has_jax):
            continue
        name = re.sub(r"\W+", "-", spec.replace(".py:", "-")).lower()
        options = SHOWN_WITH.get(spec, ())
        graph = folder / f"{name}.gir"
        line = ("capture", f"examples/{spec}", *options, "-o", str(graph))
        if spec.startswith("jax_") and JAX_PYTHON:
            subprocess.run([JAX_PYTHON, "-m", "gradir", *line], check=True)  # noqa: S603 (who builds the site names it)
        else:
            _gradir(*line)
        _gradir("export", str(graph), "-O", f"title={spec}", "-o", str(folder / f"{name}.html"))
        yield {"page": f"{name}.html", "spec": spec, "told": told, "nodes": len(gradir.load(graph).nodes)}
        graph.unlink()


def reviews(folder: Path, names: Collection[str]) -> Iterator[dict[str, Any]]:
    """A page of every edit of docs/reviewing.md, with the first line of its report."""
    sys.path[:0] = [str(ROOT / "tests" / name) for name in ("support", "verification")]
    from real_changes import CHANGES, pair

    for name in CHANGES:
        if names and name not in names:
            continue
        found = gradir.diff(*pair(name))
        (folder / f"{name}.html").write_text(found.to("html"), encoding="utf-8")
        yield {"page": f"{name}.html", "name": name, "told": found.to("text").partition("\n")[0]}


def _gradir(*arguments: str) -> None:
    if gradir_main(arguments) != 0:
        raise SystemExit(f"failed: gradir {' '.join(arguments)}")


def main() -> None:
    """Make all pages anew."""
    folder, names = Path(sys.argv[1]).resolve(), sys.argv[2:]
    listed = {}
    for kind, pages in (("examples", examples), ("reviews", reviews)):
        place = folder / kind
        place.mkdir(parents=True, exist_ok=True)
        for old in place.glob("*.html"):
            old.unlink()
        listed[kind] = list(pages(place, names))
    (folder / "live.json").write_text(json.dumps(listed, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
