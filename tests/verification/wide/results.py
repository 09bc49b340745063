"""What is known of one architecture after it was looked at, and where that is kept between runs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import msgspec

__all__ = ["Kept", "Result", "fingerprint"]

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = "program"
"""The digest of what torch.export made, which a capture in another process can only equal if this does."""

PACKAGES = ("torch", "transformers", "timm", "torchvision", "numpy")


class Result(msgspec.Struct, omit_defaults=True):
    """One architecture: the numbers, what disagrees, or why it could not be built.

    ``choice`` is how it was built, ``digests`` are of the bytes of its graph, by format. ``failure`` is a word,
    ``detail`` what stands behind it.
    """

    family: str
    name: str
    class_name: str = ""
    choice: str = ""
    nodes: int = 0
    edges: int = 0
    reached: int = 0
    parameters: int = 0
    scopes: int = 0
    saved: int = 0
    digests: dict[str, str] = {}
    mismatches: list[str] = []
    failure: str = ""
    detail: str = ""

    @property
    def key(self) -> str:
        """What names the architecture among all."""
        return f"{self.family}/{self.name}"


def versions() -> dict[str, str]:
    """The releases that the numbers depend on, of the packages that are there."""
    installed = {package: find_spec(package) is not None for package in PACKAGES}
    return {package: metadata.version(package).partition("+")[0] for package in PACKAGES if installed[package]}


def fingerprint() -> str:
    """Of everything that a result depends on: gradir, this harness, and the releases of the packages."""
    digest = hashlib.sha256(repr(versions()).encode())
    for folder in ("gradir", "tests/support", "tests/verification"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            digest.update(path.relative_to(ROOT).as_posix().encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


class Kept:
    """The results so far, in a folder that git does not see; a later run goes on from there.

    Results of another state of gradir or of the harness are dropped, unless ``stale`` ones are wanted.
    """

    def __init__(self, folder: Path, *, fresh: bool = False, stale: bool = False) -> None:
        self._file = folder / "results.jsonl"
        self._mark = folder / "fingerprint"
        folder.mkdir(exist_ok=True)
        now = fingerprint()
        known = self._mark.read_text() if self._mark.exists() else ""
        if fresh or (known != now and not stale):
            self._file.unlink(missing_ok=True)
        if known != now:
            self._mark.write_text(now)
        lines = self._file.read_bytes().splitlines() if self._file.exists() else []
        self.results = {result.key: result for result in map(_decode, lines) if result is not None}

    def forget(self, keys: Iterable[str]) -> None:
        """Look at these again."""
        for key in keys:
            self.results.pop(key, None)

    def add(self, result: Result) -> None:
        """Keep a result, also if the run ends now."""
        self.results[result.key] = result
        with self._file.open("ab") as file:
            file.write(msgspec.json.encode(result) + b"\n")


def _decode(line: bytes) -> Result | None:
    try:
        return msgspec.json.decode(line, type=Result)
    except msgspec.DecodeError:
        # The run ended while this line was written.
        return None
