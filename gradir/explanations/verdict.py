"""Write the verdict of an explanation, the same in every format."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from gradir.ir import Source
from gradir.ir.name_ranges import ranges
from gradir.ir.text import escape_unprintable, pluralize
from gradir.vocabulary.causes import FEW_NAMES, LONGEST_NAME, format_names, printable_short

if TYPE_CHECKING:
    from gradir.explanations.model import Cause, Explanation

_GRADIENT: Final = ("gets a gradient", "get a gradient")
_NO_GRADIENT: Final = ("gets no gradient", "get no gradient")
# The phrases for one parameter with a status, and for several.
_PHRASES: Final[Mapping[str, tuple[str, str]]] = {
    **dict.fromkeys(("cut", "unused", "unreached", "error"), _NO_GRADIENT),
    "zero": ("gets a gradient of zero", "get a gradient of zero"),
    "nonfinite": ("gets a gradient with NaN or infinity", "get a gradient with NaN or infinity"),
    "wrong": ("gets a wrong gradient", "get a wrong gradient"),
    "cleared": ("loses its gradient before the step", "lose their gradient before the step"),
    "nonleaf": ("is not a leaf and retains no gradient", "are not leaves and retain no gradient"),
    "frozen": ("is frozen", "are frozen"),
}

_GOOD: Final = ("reached", "hidden")
# The kind of cause that means that gradir explained another function than the given one.
_OTHER_SUBJECT: Final = "inner_gradient"

Shown = Callable[[str], str]


def verdict_of(explanation: Explanation, shown: Shown = printable_short) -> str:
    """Return the verdict, and a second sentence if values were not examined."""
    sentences = [sentence_of(explanation, shown)]
    sentences += [f"{_reason(explanation, each, shown)}." for each in explanation.causes if each.kind == _OTHER_SUBJECT]
    examined = explanation.examined
    if examined.reason:
        state = "Values were not examined" if examined.values == "none" else "Values are those of `.grad`"
        sentences.append(
            f"{state}: {escape_unprintable(examined.reason)}{f'; {examined.advice}' if examined.advice else ''}."
        )
    if not examined.overwritten:
        sentences.append("Unseen writes to saved tensors were not examined, since the backward communicates.")
    return " ".join(sentences)


def sentence_of(explanation: Explanation, shown: Shown = printable_short) -> str:
    """Return the first sentence of the verdict, for pictures and pages."""
    errors = [cause for cause in explanation.causes if cause.level == "error"]
    # Count the names of one tensor once.
    others = {name for group in explanation.tied for name in group[1:]}
    statuses = Counter(status for name, status in explanation.statuses.items() if name not in others)
    if not statuses and not errors:
        return "There is no parameter or named tensor to explain."
    return (_describe_harm if errors else _describe_state)(explanation, statuses, shown)


def find_gravest(explanation: Explanation) -> Cause | None:
    """Return the cause that the sentence names: the first of those with most parameters without a gradient."""
    errors = [cause for cause in explanation.causes if cause.level == "error"]
    if errors:
        return max(errors, key=lambda cause: len(_find_lacking(explanation, cause)))
    # Frozen parameters need no reason. Of equal counts, prefer information to a note.
    counts = {id(cause): len(_find_lacking(explanation, cause, but="frozen")) for cause in explanation.causes}
    found = max(explanation.causes, key=lambda cause: (counts[id(cause)], cause.level != "note"), default=None)
    return found if found and counts[id(found)] else None


def subject(explanation: Explanation, names: Sequence[str], shown: Shown = printable_short) -> str:
    """Return names in one phrase, such as ``all of encoder`` for a module; empty without names."""
    if not names:
        return ""
    modules, others = _find_whole_modules(names, explanation.statuses)
    if len(modules) == 1 and not others:
        return f"all of {shown(modules[0])}"
    if len(names) > FEW_NAMES and len(names) == len(explanation.statuses):
        return "all parameters"
    folded = ranges(modules)
    if len(names) <= FEW_NAMES or not modules or len(folded) > LONGEST_NAME:
        return format_names(explanation.join_tied(names), shown)
    whole = f"all of {shown(folded)}"
    return f"{whole} and {format_names(explanation.join_tied(others), shown)}" if others else whole


def place_text(source: Source) -> str:
    """Return a line of the program as text: ``net.py:7 in Net.forward``, or ``cell 3, line 2`` in a notebook."""
    file = escape_unprintable(source.file)
    where = f"{file}, line {source.line}" if file.startswith("cell ") else f"{file}:{source.line}"
    return f"{where} in {escape_unprintable(source.function)}" if source.function not in {"", "<module>"} else where


def _describe_harm(explanation: Explanation, statuses: Counter[str], shown: Shown) -> str:
    cause = find_gravest(explanation)
    assert cause is not None  # noqa: S101 (there is an error)
    phrases = {name: _PHRASES.get(explanation.statuses.get(name, "")) for name in _find_lacking(explanation, cause)}
    counts = Counter(phrases.values())
    # A missing gradient is worse than a gradient of zero, even if the same cut causes more of these.
    phrase = max(counts, key=lambda phrase: (phrase == _NO_GRADIENT, counts[phrase]), default=None)
    concerned = [name for name in phrases if phrases[name] == phrase]
    reason = _reason(explanation, cause, shown, concerned)
    more = sum(each.level == "error" for each in explanation.causes) - 1
    further = f", and {pluralize(more, 'more error')}" if more else ""
    if "error" in statuses or not statuses:
        return f"No parameter gets a gradient: {reason}{further}."
    if phrase is None and statuses.total() == sum(statuses[status] for status in _GOOD):
        return f"{reason}{further}."
    if phrase is None:
        return f"{_share(explanation, statuses, _GOOD, _GRADIENT, shown)}: {reason}{further}."
    alike = [status for status, words in _PHRASES.items() if words == phrase]
    others = sum(statuses[status] for status in alike) - len(explanation.join_tied(concerned))
    of_them = f", {len(explanation.join_tied(concerned)):,} of them because" if others > 0 else ":"
    return f"{_share(explanation, statuses, alike, phrase, shown)}{of_them} {reason}{further}."


def _find_lacking(explanation: Explanation, cause: Cause, but: str = "") -> list[str]:
    # A cut with a pattern takes one path of a gradient; the gradient of the other paths is zero for another cause.
    others = {*_GOOD, but, "zero" if cause.pattern else but}
    return [name for name in cause.names if explanation.statuses.get(name, "reached") not in others]


def _describe_state(explanation: Explanation, statuses: Counter[str], shown: Shown) -> str:
    is_known = explanation.examined.values != "none"
    verbs = _GRADIENT if is_known else ("is in the graph", "are in the graph")
    parts = [_share(explanation, statuses, _GOOD, verbs, shown)]
    if statuses["hidden"]:
        parts[0] += f" ({statuses['hidden']:,} of them inside a function of the graph, such as a reentrant checkpoint)"
    counts = Counter[tuple[str, str]]()
    for status, count in statuses.items():
        if status not in _GOOD:
            counts[_PHRASES.get(status, (f"is {escape_unprintable(status)}", f"are {escape_unprintable(status)}"))] += (
                count
            )
    if statuses.keys().isdisjoint(_GOOD) and len(counts) == 1:
        (phrase,) = counts
        parts = [_share(explanation, statuses, [*statuses], phrase, shown)]
    else:
        parts += [f"{count:,} {one if count == 1 else many}" for (one, many), count in counts.items()]
    cause, excuse = find_gravest(explanation), ""
    if any(allowed.causes for allowed in explanation.allowed):
        excuse = ", which is allowed"
    elif cause is not None:
        how = "does no harm" if cause.level == "note" else "may be intended"
        excuse = f", which {how}: {_reason(explanation, cause, shown)}"
    return f"{'; '.join(parts)}{excuse}."


def _share(
    explanation: Explanation, statuses: Counter[str], alike: Iterable[str], verbs: tuple[str, str], shown: Shown
) -> str:
    (one, many), total = verbs, statuses.total()
    count = sum(statuses[status] for status in alike)
    if total == 1:
        name = format_names(explanation.join_tied(explanation.statuses), shown)
        return f"{name} {one if count else 'gets no gradient'}"
    if count == total:
        return f"{f'All {total:,}' if total > 2 else 'Both'} parameters {many}"
    return f"{count:,} of {total:,} parameters {one if count == 1 else many}"


def _reason(explanation: Explanation, cause: Cause, shown: Shown, concerned: Sequence[str] = ()) -> str:
    names = concerned or _find_lacking(explanation, cause) or cause.names
    text = replace(cause, names=tuple(names)).words(shown, named=subject(explanation, names, shown)).text
    if cause.detail and not names:
        # Without names, the detail says what the cause is about, such as the message of an error.
        text = f"{text}: {shown(cause.detail)}"
    return text if cause.source is None else f"{text} ({shown(place_text(cause.source))})"


def _find_whole_modules(names: Sequence[str], statuses: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Return the outermost modules whose parameters, two or more, are all in ``names``, and the other names."""
    paths = {name: [*accumulate(name.split(".")[:-1], "{}.{}".format)] for name in statuses}
    total = Counter(chain.from_iterable(paths.values()))
    given = Counter(chain.from_iterable(paths.get(name, ()) for name in dict.fromkeys(names)))
    modules, others = dict[str, None](), list[str]()
    for name in names:
        whole = next((path for path in paths.get(name, ()) if 1 < total[path] == given[path]), None)
        if whole is None:
            others.append(name)
        else:
            modules[whole] = None
    return [*modules], others
