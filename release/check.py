"""Build what a release would publish, and try it as those who install it would: `make release-check`.

Nothing is published. What is wrong is one line that starts with ``wrong:``, and the exit status is 1.

    python release/check.py              # all of it: some minutes, most of them for torch and for the tests
    python release/check.py --no-torch --no-tests
    python release/check.py --tag v0.1.0 --keep dist
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
# What the files in the archives are dated: the first of January 2025, in seconds.
EPOCH: Final = "1735689600"

IN_WHEEL: Final = (
    "gradir/py.typed",
    "gradir/schemas/gir-1.0.schema.json",
    "gradir_exporters/py.typed",
    "gradir_exporters/_page/page.js",
    "gradir_exporters/_page/style.css",
)
IN_SDIST: Final = ("CHANGELOG.md", "LICENSE", "Makefile", "README.md", "tests/conftest.py", "viewer/src/page.ts")
PACKAGES: Final = ("gradir", "gradir_exporters")
NOT_IN_SDIST: Final = (".ci/", ".github/")

README_BLOCK: Final = re.compile(r"^```python\n(import gradir\n.*?)^```$", re.DOTALL | re.MULTILINE)
WITHOUT_TORCH: Final = (
    "gradir --version",
    "gradir debug",
    "gradir info loss.gir",
    "gradir validate --strict loss.gir",
    "gradir summary loss.gir",
    "gradir export loss.gir --to mermaid -o loss.mmd",
    "gradir export loss.gir --to html -o loss.html",
    "gradir diff loss.gir loss.gir",
)
WITH_TORCH: Final = (
    "gradir capture model.py:loss -o again.gir",
    "gradir view loss.gir",
    "gradir export loss.gir --to dot",
)


class WrongError(Exception):
    """Something that a release must not have."""


def members(archive: Path) -> list[str]:
    """The files of a wheel, or of an sdist below its folder, sorted."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            return sorted(name for name in wheel.namelist() if not name.endswith("/"))
    with tarfile.open(archive) as sdist:
        return sorted(member.name.partition("/")[2] for member in sdist.getmembers() if member.isfile())


def wrong_in_wheel(names: Sequence[str]) -> Iterator[str]:
    """What a wheel lacks, and what it should not have.

    >>> list(wrong_in_wheel(["gradir/__init__.py", *IN_WHEEL, "gradir-0.1.0.dist-info/METADATA", "tests/test_x.py"]))
    ['tests/test_x.py should not be in the wheel']
    """
    yield from (f"{name} is not in the wheel" for name in IN_WHEEL if name not in names)
    for name in names:
        top = name.partition("/")[0]
        is_code = top in PACKAGES and not re.search(r"(^|/)(tests|examples|__pycache__|node_modules)/", name)
        if not is_code and not top.endswith(".dist-info"):
            yield f"{name} should not be in the wheel"


def wrong_in_sdist(names: Sequence[str], tracked: Sequence[str] = ()) -> Iterator[str]:
    """What an sdist lacks, and what it should not have; beside what git tracks, where that is known.

    >>> list(wrong_in_sdist([*IN_SDIST, ".venv/pyvenv.cfg"]))
    ['.venv/pyvenv.cfg should not be in the sdist']
    >>> list(wrong_in_sdist([*IN_SDIST, "PKG-INFO", "notes.txt"], [*IN_SDIST, "a.py", ".github/x.yml"]))
    ['notes.txt is in the sdist, and git does not track it', 'a.py is not in the sdist']
    """
    if tracked:
        yield from (
            f"{name} is in the sdist, and git does not track it"
            for name in sorted({*names}.difference(tracked, {"PKG-INFO"}))
        )
        expected = {name for name in tracked if not name.startswith(NOT_IN_SDIST)}
        yield from (f"{name} is not in the sdist" for name in sorted(expected.difference(names, IN_SDIST)))
    yield from (f"{name} is not in the sdist" for name in IN_SDIST if name not in names)
    made = re.compile(r"(^|/)(\.venv[^/]*|node_modules|__pycache__|\.git|site|dist)/|\.pyc$")
    yield from (f"{name} should not be in the sdist" for name in names if made.search(name))


def wrong_for_tag(tag: str, version: str, changelog: str, fragments: Sequence[str]) -> Iterator[str]:
    """What is not ready to be published as what a tag says.

    >>> list(wrong_for_tag("v0.2.0", "0.1.0", "## [0.1.0]", ["README.md", "12.fixed.md"]))
    ['the tag v0.2.0 is of version 0.1.0', 'CHANGELOG.md has no part 0.2.0', 'changes/12.fixed.md is in no release yet']
    """
    number = tag.removeprefix("v")
    if number != version:
        yield f"the tag {tag} is of version {version}"
    if f"## [{number}]" not in changelog:
        yield f"CHANGELOG.md has no part {number}"
    yield from (f"changes/{name} is in no release yet" for name in sorted(fragments) if name != "README.md")


def run(command: Sequence[str | Path], folder: Path, **environment: str) -> str:
    """Run a command away from the clone; gives what it printed."""
    own = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "DISPLAY", "BROWSER"}}
    done = subprocess.run(
        [*map(str, command)], cwd=folder, env={**own, **environment}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise WrongError(f"{' '.join(map(str, command))}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def list_tracked() -> list[str]:
    """What git tracks; nothing where this is no clone."""
    if not (ROOT / ".git").exists():
        return []
    return run(["git", "ls-files", "-z"], ROOT).split("\0")[:-1]


def build(source: Path, folder: Path, **environment: str) -> list[Path]:
    """The sdist of a folder, and the wheel that is made of it."""
    folder.mkdir()
    run(
        [sys.executable, "-m", "build", "--outdir", folder, source],
        folder,
        # hatchling dates the files of an archive by this variable.
        SOURCE_DATE_EPOCH=EPOCH,
        PIP_DISABLE_PIP_VERSION_CHECK="1",
        **environment,
    )
    (sdist,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return [sdist, wheel]


def unpack(sdist: Path, folder: Path) -> Path:
    """The source in an sdist, as somebody has it whose files are for nobody else and of another day."""
    with tarfile.open(sdist) as packed:
        # It refuses links and names that lead out of the folder.
        packed.extractall(folder, filter="data")
    (source,) = folder.iterdir()
    # A clone has none, and hatchling puts one that is there in another place of the archive.
    (source / "PKG-INFO").unlink()
    for path in (source, *source.rglob("*")):
        path.chmod(path.stat().st_mode & 0o700)
        os.utime(path, (1e9, 1e9))
    return source


def environment(folder: Path, *packages: str | Path) -> Path:
    """A new virtual environment with some packages; gives the folder of its programs."""
    run([sys.executable, "-m", "venv", folder], folder.parent)
    programs = folder / ("Scripts" if os.name == "nt" else "bin")
    run([programs / "python", "-m", "pip", "install", "--quiet", "--upgrade", "pip>=25.1"], folder)
    run([programs / "python", "-m", "pip", "install", "--quiet", *packages], folder)
    return programs


def try_commands(programs: Path, folder: Path, commands: Sequence[str]) -> None:
    """Run commands of an environment in a folder."""
    for command in commands:
        name, *arguments = command.split()
        run([programs / name, *arguments], folder)


def sample(folder: Path) -> Path:
    """A .gir file of the tests, called as the README calls its own."""
    goldens = ROOT / "tests" / "goldens" / "json"
    chosen = min(goldens.glob("*.gir"), key=lambda path: (path.stat().st_size, path.name))
    target = folder / "loss.gir"
    target.write_bytes(chosen.read_bytes())
    return target


def try_with_torch(archive: Path, folder: Path) -> None:
    """What the README begins with, in an environment of its own and outside the clone."""
    folder.mkdir()
    programs = environment(folder / "torch", f"{archive}[torch]", "numpy")
    block = README_BLOCK.search((ROOT / "README.md").read_text(encoding="utf-8"))
    if block is None:
        raise WrongError("README.md has no first example any more")
    work = folder / "work"
    work.mkdir()
    (work / "first.py").write_text(block[1], encoding="utf-8")
    (work / "model.py").write_text(
        "import torch\n\n\ndef loss():\n    return torch.nn.Linear(4, 2)(torch.ones(1, 4)).sum()\n", encoding="utf-8"
    )
    run([programs / "python", "first.py"], work)
    try_commands(programs, work, (*WITHOUT_TORCH, *WITH_TORCH))
    # Some gigabytes, with some builds of torch.
    shutil.rmtree(folder)


def refuse(problems: Iterable[str]) -> None:
    """Tell of all problems at once, if there are any."""
    if found := [*problems]:
        raise WrongError("\nwrong: ".join(found))


def steps(options: argparse.Namespace, folder: Path) -> Iterator[str]:
    """Each step, told when it is done."""
    if options.tag is not None:
        from gradir.version import __version__

        changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
        refuse(wrong_for_tag(options.tag, __version__, changelog, [path.name for path in (ROOT / "changes").iterdir()]))
        yield f"{options.tag} is the version and has its part of CHANGELOG.md"
    sdist, wheel = build(ROOT, folder / "one")
    yield f"built {sdist.name} ({sdist.stat().st_size:,} bytes) and {wheel.name} ({wheel.stat().st_size:,} bytes)"
    source = unpack(sdist, folder / "source")
    elsewhere = build(source, folder / "two", TZ="Pacific/Kiritimati", LC_ALL="C", PYTHONHASHSEED="7")
    for before, again in zip((sdist, wheel), elsewhere, strict=True):
        if before.read_bytes() != again.read_bytes():
            raise WrongError(f"{before.name} has other bytes when it is built again")
    yield "built again from the sdist, with other modes, times, zone and locale: the same bytes"
    run([sys.executable, "-m", "twine", "check", "--strict", sdist, wheel], folder)
    yield "twine finds the metadata sound"
    refuse((*wrong_in_wheel(members(wheel)), *wrong_in_sdist(members(sdist), list_tracked())))
    yield f"{len(members(wheel)):,} files in the wheel, {len(members(sdist)):,} in the sdist, each where it should be"
    for what, archive in (("the wheel", wheel), ("the sdist", sdist)):
        work = folder / f"work-{archive.suffix[1:]}"
        work.mkdir()
        sample(work)
        programs = environment(folder / f"plain-{archive.suffix[1:]}", archive)
        try_commands(programs, work, WITHOUT_TORCH)
        yield f"{what} works without torch: {len(WITHOUT_TORCH)} commands"
        if not options.no_torch:
            try_with_torch(archive, folder / f"torch-{archive.suffix[1:]}")
            yield f"{what} works with torch: the README's first example and {len(WITH_TORCH)} commands more"
    if not options.no_tests:
        told = run(["make", "--no-print-directory", "test-core"], source).strip().splitlines()[-1]
        yield f"the tests of the sdist that need no torch: {told.strip('= ')}"
    if options.keep is not None:
        options.keep.mkdir(parents=True, exist_ok=True)
        for archive in (sdist, wheel):
            (options.keep / archive.name).write_bytes(archive.read_bytes())
        yield f"kept in {options.keep}"


def main() -> int:
    """Run every step; 1 where something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", metavar="FOLDER", type=Path, help="keep what was built there, if all is well")
    parser.add_argument(
        "--tag", metavar="TAG", help="see that version and changelog are those of a tag, such as v0.1.0"
    )
    parser.add_argument("--no-torch", action="store_true", help="do not install torch")
    parser.add_argument("--no-tests", action="store_true", help="do not run the tests of the sdist")
    with tempfile.TemporaryDirectory(prefix="gradir-release-") as folder:
        try:
            for told in steps(parser.parse_args(), Path(folder)):
                print(told, flush=True)
        except WrongError as error:
            print(f"wrong: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
