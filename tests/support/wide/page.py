"""docs/verification-wide.md: the same text for the same results, wherever and however long they were made."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from gradir.markdown import code_span
from wide.results import Result, versions

__all__ = ["page", "row"]

_HEAD: Final = """\
# Verified widely

[verification.md](verification.md) has some models with their losses. This page has as many architectures as the
installed packages let be built: every model type of transformers, one model of each module of timm, one of each stem of
names among the classifiers and segmenters of torchvision, and the layers of torch.nn. Each has random weights and is
made small by rules that know no model: the widths of a configuration are divided by the largest number with which the
model still runs, two or a few of its layers stay (one of each kind), and its inputs are made from the names that its
`forward` takes. What is captured is the sum of all that it returns. `tests/support/wide` has the rules, and the few
settings of single models as data.

`make verification-wide` installs timm and torchvision beside the environment, compares everything, and writes this
page. Each architecture runs in a process of its own, so what hangs or crashes costs one row; a run that was ended goes
on where it was, as long as neither gradir nor the harness changed. `make test` looks at a sample of twenty.

Compared with what torch itself says, by code that asks gradir nothing:

- **nodes and edges**: the live graph is walked by `next_functions`, and in step with the captured one by slot, with
  names and numbers of outputs; a model that nothing records makes the same nodes and the same loss;
- **outputs**: dtype and shape of each, also of what modules returned;
- **parameters**: those that have a `.grad` after a plain backward of an unrecorded model, and those that have none;
  what a custom Function may reach by itself is said to be hidden, and may have one or not;
- **scopes**: what lies between what a module was given and what it returned; classes, calls and sizes of modules;
- **saved tensors**: dtype, shape and bytes of each unpacked tensor, and the bytes that all keep together;
- **the engine**: `gradir.verify` finds no mismatch, and every node fires;
- **files**: JSON and MessagePack are read back as the same graph and written again as the same bytes, which another
  process with another seed of hashes writes too.

*Nodes* are grad_fns, leaves' accumulators included; *edges* are those between them; *parameters* are those reached, of
those that require a gradient.
"""

_WORDS: Final = {
    "backward": "its own backward fails, without gradir too",
    "configuration": "no configuration that the rules make gives a model",
    "crash": "the process ended",
    "download": "it asks for files of a hub",
    "gradient": "nothing that it returns has a gradient",
    "inputs": "its `forward` takes none of the inputs that the rules make",
    "memory": "it needs more than 9 GiB",
    "package": "a package is missing, or an operator that no build for the CPU has",
    "size": "it has more than 40 million parameters as small as the rules make it",
    "time": "it takes more than five minutes",
}
"""What the word for a failure means."""


def page(results: Sequence[Result], missing: int = 0) -> str:
    """The whole page, of the results in the order to show; so many are ``missing``."""
    families: dict[str, list[Result]] = defaultdict(list)
    for result in results:
        families[result.family].append(result)
    releases = [f"{package} {release}" for package, release in versions().items()]
    lines = [_HEAD, f"With {', '.join(releases[:-1])} and {releases[-1]}, on a CPU:", "", *_totals(families)]
    if missing:
        lines += ["", f"The run that wrote this was ended early: {missing:,} more were not looked at."]
    wrong = [result for result in results if result.mismatches]
    if wrong:
        lines += ["", "## Mismatches", "", *_mismatches(wrong)]
    lines += ["", "## Not built", "", *_not_built(families)]
    for family, members in families.items():
        lines += [
            "",
            f"## {family}",
            "",
            "| name | class | nodes | edges | parameters | result |",
            "|---|---|--:|--:|--:|---|",
        ]
        lines += [row(result) for result in members if not result.failure]
    return "\n".join(lines) + "\n"


def row(result: Result) -> str:
    """One architecture that was built, as a line of its table."""
    said = f"{len(result.mismatches)} mismatches" if result.mismatches else "same"
    numbers = f"{result.nodes:,} | {result.edges:,} | {result.reached:,} of {result.parameters:,}"
    return f"| {result.name} | `{result.class_name.lstrip('_')}` | {numbers} | {said} |"


def _totals(families: dict[str, list[Result]]) -> Iterator[str]:
    yield "| family | tried | built | nodes | edges | with a mismatch |"
    yield "|---|--:|--:|--:|--:|--:|"
    for family, members in [*families.items(), ("**all**", [one for group in families.values() for one in group])]:
        built = [result for result in members if not result.failure]
        nodes, edges = sum(result.nodes for result in built), sum(result.edges for result in built)
        wrong = sum(1 for result in built if result.mismatches)
        yield f"| {family} | {len(members):,} | {len(built):,} | {nodes:,} | {edges:,} | {wrong:,} |"


def _mismatches(wrong: Iterable[Result]) -> Iterator[str]:
    for result in wrong:
        shown = "; ".join(result.mismatches[:_SHOWN])
        more = f"; and {len(result.mismatches) - _SHOWN} more" if len(result.mismatches) > _SHOWN else ""
        yield f"- {result.family} {result.name}: {code_span(shown, 400)}{more}"


_SHOWN: Final = 2


def _not_built(families: dict[str, list[Result]]) -> Iterator[str]:
    yield "| family | reason | models |"
    yield "|---|---|---|"
    for family, members in families.items():
        by_word: dict[str, list[str]] = defaultdict(list)
        for result in members:
            if result.failure:
                by_word[result.failure].append(result.name)
        for word in sorted(by_word):
            yield f"| {family} | {word} | {', '.join(by_word[word])} |"
    yield ""
    yield "The words mean:"
    yield ""
    found = {result.failure for members in families.values() for result in members if result.failure}
    yield from (f"- *{word}*: {_WORDS[word]};" for word in sorted(found))
