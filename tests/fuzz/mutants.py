"""Reads many mutants of good documents, and does with each what there is to do with a file::

    python tests/fuzz/mutants.py 100000 --kinds msgpack diff --start 0

It needs what the tests need, and no torch. For each kind it prints how many mutants were tried, refused and read, and
every finding with the seed of its first mutant; ``--show msgpack:16`` writes that mutant to standard output. The exit
status is 1 where there is a finding. A mutant is the same wherever the Python is.
"""

from __future__ import annotations

import argparse
import signal
import sys
import traceback
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import NoReturn

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]

from mutant_checks import check_mutant, quietly  # noqa: E402
from mutation import KINDS, mutant  # noqa: E402

SECONDS = 60
"""What takes longer hangs, however slow the machine is: each takes some milliseconds."""


def run(kind: str, seeds: range) -> Counter[str]:
    """Try the mutants of a kind; the findings, each by what and where it was, with how often."""
    findings: Counter[str] = Counter()
    first: dict[str, str] = {}
    read = 0
    for number, seed in enumerate(seeds, 1):
        signal.alarm(SECONDS)
        try:
            read += check_mutant(mutant(kind, seed), seed)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            named = place(error)
            findings[named] += 1
            if named not in first:
                first[named] = f"{kind}:{seed}: {type(error).__name__}: {error}"[:300]
                print(f"{named}: {first[named]!r}", file=sys.stderr, flush=True)
        signal.alarm(0)
        if number % 10_000 == 0:
            print(f"{kind}: {number:,} tried, {sum(findings.values()):,} findings", file=sys.stderr, flush=True)
    refused = len(seeds) - read - sum(findings.values())
    print(f"{kind}: {len(seeds):,} tried, {refused:,} refused, {read:,} read, {sum(findings.values()):,} findings")
    for named, count in findings.most_common():
        print(f"  {count:,} times {named}\n    {first[named]!r}")
    sys.stdout.flush()
    return findings


def place(error: BaseException) -> str:
    """What was raised and where, in gradir or else in the check."""
    frames = traceback.extract_tb(error.__traceback__)
    last = next((frame for frame in reversed(frames) if "/tests/" not in frame.filename), frames[-1])
    if isinstance(error, AssertionError):
        last = frames[-1]
    return f"{type(error).__name__} at {Path(last.filename).name}:{last.lineno}"


def hung(signum: int, frame: FrameType | None) -> NoReturn:
    """Ends a mutant that takes too long."""
    raise TimeoutError(f"not done after {SECONDS} seconds")


def main() -> int:
    """Parse the command line and run; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("count", type=int, nargs="?", default=1000, help="how many mutants of each kind")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS, help="which kinds")
    parser.add_argument("--start", type=int, default=0, help="the first seed")
    parser.add_argument("--show", metavar="KIND:SEED", help="write one mutant instead, and what is wrong with it")
    options = parser.parse_args()
    signal.signal(signal.SIGALRM, hung)
    if options.show:
        kind, _, seed = options.show.partition(":")
        sys.stdout.buffer.write(mutant(kind, int(seed)).data)
        sys.stdout.flush()
        with quietly():
            check_mutant(mutant(kind, int(seed)), int(seed))
        return 0
    with quietly():
        found = [run(kind, range(options.start, options.start + options.count)) for kind in options.kinds]
    return 1 if any(found) else 0


if __name__ == "__main__":
    sys.exit(main())
