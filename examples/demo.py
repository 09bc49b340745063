"""A tour of gradir on a real model: capture, look, export, draw, change, compare, and a page to click through.

    python examples/demo.py [DIRECTORY]

Every command is printed before it runs, so that it can be copied.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

MODEL = Path(__file__).resolve().with_name("gpt.py")
EXPORTS = {
    "html": "model.html",
    "mermaid": "model.mmd",
    "dot": "model.dot",
    "svg": "model.svg",
    "tree": "model.tree.txt",
    "plain": "model.txt",
}
DIFFERENT = 1


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Capture a GPT-2-like model, export it, draw it, diff it.")
    parser.add_argument("directory", nargs="?", type=Path, default=Path("demo"), help="where the files go [demo]")
    directory: Path = parser.parse_args(arguments).directory
    directory.mkdir(parents=True, exist_ok=True)
    model, edited = directory / "model.gir", directory / "edited.gir"
    exports = {exporter: directory / name for exporter, name in EXPORTS.items()}
    review = directory / "review.html"

    heading("Capture the graph behind the loss of a GPT-2-like model")
    gradir("capture", spec("loss"), "-o", model)
    gradir("info", model)

    heading("Export it")
    for exporter, file in exports.items():
        gradir("export", model, "--to", exporter, "-o", file)

    heading("Put an adapter into layer 3, and see what changed")
    gradir("capture", spec("edited"), "-o", edited)
    gradir("diff", model, edited, expected=DIFFERENT)

    gradir("diff", model, edited, "--format", "html", "-o", review, expected=DIFFERENT)

    heading("Written")
    show_sizes([model, *exports.values(), edited, review])

    heading("Try next")
    show_next(model, exports["mermaid"])

    heading("Open in a browser, offline")
    for page in (exports["html"], review):
        print(f"  {page.resolve().as_uri()}")


def heading(text: str) -> None:
    print(f"\n--- {text} ---", flush=True)


def spec(attribute: str) -> str:
    try:
        return f"{os.path.relpath(MODEL)}:{attribute}"
    except ValueError:  # Windows: on another drive than the working directory
        return f"{MODEL}:{attribute}"


def gradir(*arguments: str | Path, expected: int = 0) -> None:
    words = [os.fspath(argument) for argument in arguments]
    print(f"\n$ {shlex.join(['gradir', *words])}", flush=True)
    status = subprocess.run([sys.executable, "-m", "gradir", *words], check=False).returncode
    if status != expected:
        sys.exit(f"demo: the last command ended with status {status}, not {expected}")


def show_sizes(files: list[Path]) -> None:
    width = max(len(os.fspath(file)) for file in files)
    for file in files:
        print(f"  {os.fspath(file):<{width}}  {file.stat().st_size:>9,} bytes")


def show_next(model: Path, diagram: Path) -> None:
    if shutil.which("gradir") is None:
        script = Path(sys.executable).with_name("gradir")
        print(f"  (gradir is not on your PATH; call it as {script}, or activate its environment)")
    file = shlex.quote(os.fspath(model))
    print(f"  see {diagram} as a picture\n    paste it into a ```mermaid block of a comment or README on GitHub")
    commands = {
        "one box for each layer": f"gradir export {file} --to tree --depth 2",
        "every format and its options": "gradir exporters",
        "your own loss, from a function that returns it, or (model, loss)": "gradir capture train.py:loss -o mine.gir",
        "a module, run on random input": f"gradir capture {shlex.quote(spec('GPT'))} --input 'int64[2,16]' -o mine.gir",
    }
    for purpose, command in commands.items():
        print(f"  {purpose}\n    {command}")


if __name__ == "__main__":
    main()
