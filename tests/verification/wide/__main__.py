"""Compare every architecture with torch, and write docs/verification-wide.json, or verification-exported.json."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence

from wide.pool import results_of
from wide.record import document, record, totals
from wide.results import ROOT, Kept, Result
from wide.sample import SAMPLE
from wide.workers import Worker, two_workers

FOLDER = ROOT / ".verification-wide"
RECORD = ROOT / "docs" / "verification-wide.json"
_EXPORTED_RECORD = RECORD.with_name("verification-exported.json")
_ONE_IN = 4
"""Of transformers, as many are exported as of all others together."""


def main(words: Sequence[str]) -> int:
    """Exit status 1 where something disagrees."""
    options = _options(words)
    with two_workers() as workers:
        return _run(workers, options)


def _run(workers: list[Worker], options: argparse.Namespace) -> int:
    keys = _exportable(workers[0].keys()) if options.exported else workers[0].keys()
    kept = Kept(FOLDER / "exported" if options.exported else FOLDER, fresh=options.fresh, stale=options.stale)
    wanted = _choose(keys, kept, options)
    if options.again:
        kept.forget(wanted)
    todo = [key for key in wanted if key not in kept.results]
    if options.exported:
        # A run that is stopped has looked at as many as it can.
        todo.sort(key=_sizes().__getitem__)
    started = time.monotonic()
    tasks = ("exported", "exported again") if options.exported else ("compared", "digested")
    for done, result in enumerate(results_of(workers, todo, tasks), 1):
        kept.add(result)
        said = "; ".join(result.mismatches[:2]) or f"{result.nodes} nodes"
        if result.failure:
            said = f"not built ({result.failure}): {result.detail}"
        print(f"{done}/{len(todo)} {result.key}: {said}", file=sys.stderr, flush=True)
    print(f"{len(todo)} in {(time.monotonic() - started) / 60:.1f} minutes", file=sys.stderr)
    results = [kept.results[key] for key in keys if key in kept.results]
    missing = len(keys) - len(results)
    if options.partial or not missing:
        written = _EXPORTED_RECORD if options.exported else RECORD
        written.write_text(document(results, missing), encoding="utf-8")
        print("the table of docs/verification.md:", *totals([record(result) for result in results]), sep="\n")
    else:
        print(f"{missing} are missing: pass --partial to write the file without them", file=sys.stderr)
    chosen = set(wanted)
    wrong = [result for result in results if result.key in chosen and result.mismatches]
    for result in wrong:
        print(f"{result.key}: {len(result.mismatches)} mismatches: {'; '.join(result.mismatches[:3])}")
    return 1 if wrong else 0


def _options(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m wide", description=__doc__)
    parser.add_argument("--fresh", action="store_true", help="forget the results of earlier runs")
    parser.add_argument("--stale", action="store_true", help="keep results of another state of the code")
    parser.add_argument("--only", nargs="+", metavar="KEY", help="family/name, or a part of it, of those to look at")
    parser.add_argument("--again", choices=("wrong", "failed", "all"), help="look again at these of the chosen ones")
    parser.add_argument("--limit", type=int, metavar="N", help="look at so many at most")
    parser.add_argument("--exported", action="store_true", help="export some of them, and compare the programs")
    parser.add_argument("--sample", action="store_true", help="look at the sample of `make test` only")
    parser.add_argument("--partial", action="store_true", help="write the file even if some were not compared")
    return parser.parse_args(words)


def _choose(keys: list[str], kept: Kept, options: argparse.Namespace) -> list[str]:
    if options.sample:
        keys = [key for key in keys if key in SAMPLE]
    if options.only:
        keys = [key for key in keys if any(part in f"{key}/" for part in options.only)]
    if options.again in {"wrong", "failed"}:
        keys = [key for key in keys if key in kept.results and _is(options.again, kept.results[key])]
    return keys[: options.limit]


def _sizes() -> dict[str, int]:
    """Return how many nodes each model has that can be built."""
    known = json.loads(RECORD.read_text("utf-8"))["results"]
    return {f"{one['family']}/{one['name']}": one["nodes"] for one in known if "failure" not in one}


def _exportable(keys: list[str]) -> list[str]:
    """Return the keys of models that can be built, without the layers of torch, and of transformers some."""
    built = _sizes()
    found = [key for key in keys if key in built and not key.startswith("torch/")]
    return [key for number, key in enumerate(found) if number % _ONE_IN == 0 or not key.startswith("transformers/")]


def _is(kind: str, result: Result) -> bool:
    return bool(result.mismatches if kind == "wrong" else result.failure)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
