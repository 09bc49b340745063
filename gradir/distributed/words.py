"""Format the report on ranks as text, Markdown and JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from msgspec.structs import replace

from gradir.distributed.model import FORMAT, VERSION, Finding, Group, Ranks
from gradir.errors import ExportError
from gradir.ir import Collective
from gradir.ir.json_documents import DocumentKind
from gradir.ir.text import amount, escape_unprintable, pluralize, tensor_text
from gradir.markdown import code_span

_PAGE: Final = "html"

_TITLES: Final[Mapping[str, str]] = {
    "hang": "HANG",
    "may hang": "may hang",
    "mixed": "MIXED TENSORS",
    "missing": "MISSING EXCHANGE",
    "values": "DIFFERENT VALUES",
    "graphs": "another graph",
    "cuts": "parameters without gradient on some ranks",
}

_STOPPED: Final[Mapping[str, str]] = {
    "starts": "waited in the last collective before its first step",
    "waits": "waited in the last collective",
    "fails": "failed, or another rank ended",
    "left": "waited for a captured rank, which sends no data",
    "raises": "raised an error itself",
    "cut off": "waited for a captured step, in which gradir sends no data",
    "joins": "had no more data and joined the collectives of the others",
    "ends": "ended before the captured step",
}
_UNRECORDED: Final = "no collectives recorded, so hangs and mixed tensors are possible"
_UNALIGNED: Final = "the captured steps start at different collectives"
_MOST: Final = 8
_MOST_LINES: Final = 40


def render_ranks(ranks: Ranks, form: str, *, full: bool = False) -> str:
    """Return a report on ranks in a format. Unless it is ``full``, a long text shows the first of each kind.

    Raises:
        ExportError: there is no such form.
    """
    if form not in FORMS:
        raise ExportError(f"unknown report format {form!r}: choose from {', '.join(FORMS)}")
    if form == _PAGE:
        from gradir.distributed.page import page

        return page(ranks)
    return _FORMS[form](ranks, full)


def _text(ranks: Ranks, full: bool) -> str:
    shown, omitted = (ranks, _Omitted()) if full else _shorten(ranks)
    lines = [headline(ranks)]
    lines += [f"  {line}" for line in (*map(_group, shown.groups), *omitted.groups, *stops(ranks))]
    for finding in shown.findings:
        lines.append(title(finding))
        lines += [f"  {line}" for line in finding.lines]
    lines += [*omitted.findings, *map("".join, rest(ranks))]
    return "".join(f"{escape_unprintable(line)}\n" for line in lines)


class _Omitted(NamedTuple):
    """Lines about the groups and the findings that a report leaves out."""

    groups: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()


def _shorten(ranks: Ranks) -> tuple[Ranks, _Omitted]:
    if len(ranks.groups) + sum(1 + len(finding.lines) for finding in ranks.findings) <= _MOST_LINES:
        return ranks, _Omitted()
    firsts = list({finding.kind: finding for finding in reversed(ranks.findings)}.values())[::-1]
    room = max(1, (_MOST_LINES - _MOST) // max(1, len(firsts)) - 2)
    findings = []
    for finding in firsts:
        lines, more = finding.lines[:room], len(finding.lines) - room
        findings.append(replace(finding, lines=(*lines, *[f"and {pluralize(more, 'line')} more"] * (more > 0))))
    groups, more = ranks.groups[:_MOST], len(ranks.groups) - _MOST
    others = len(ranks.findings) - len(firsts)
    omitted = _Omitted(
        tuple([f"and {pluralize(more, 'graph')} more"] * (more > 0)),
        (f"and {pluralize(others, 'finding')} more (--full lists all)" if others else "(--full lists all)",),
    )
    return replace(ranks, groups=groups, findings=tuple(findings)), omitted


def _markdown(ranks: Ranks, full: bool) -> str:
    whole, (ranks, omitted) = ranks, (ranks, _Omitted()) if full else _shorten(ranks)
    lines = [f"**{headline(whole)}**", ""]
    lines += [
        "| ranks | nodes | edges | saved for backward | parameters | collectives |",
        "|---|---|---|---|---|---|",
    ]
    lines += [f"| {' | '.join(row(group))} |" for group in ranks.groups]
    lines += [f"\n{line}" for line in (*omitted.groups, *stops(ranks))]
    for finding in ranks.findings:
        lines += ["", f"**{title(finding)}**", ""]
        lines += [f"- {code_span(escape_unprintable(line), None)}" for line in finding.lines]
    lines += [f"\n{line}" for line in omitted.findings]
    lines += [
        "",
        *(f"{text}{code_span(escape_unprintable(names), None)}" if names else text for text, names in rest(whole)),
    ]
    return "\n".join(lines) + "\n"


def _json(ranks: Ranks, full: bool) -> str:  # noqa: ARG001 (JSON is always complete)
    return DocumentKind("account of ranks", FORMAT, VERSION, "gradir ranks --format json").encode(ranks).decode()


_FORMS: Final[Mapping[str, Callable[[Ranks, bool], str]]] = {"text": _text, "markdown": _markdown, "json": _json}
FORMS: Final = (*_FORMS, _PAGE)


def headline(ranks: Ranks) -> str:
    """Return a sentence with the numbers of ranks and graphs."""
    text = f"{len(ranks.ranks):,} of {pluralize(ranks.world, 'rank')}, {pluralize(len(ranks.groups), 'graph')}"
    if not ranks.is_sample:
        return text
    is_hang = any(finding.kind == "hang" for finding in ranks.findings)
    return f"{text}; the others have no file, so this is a sample{'' if is_hang else ' and no hang is claimed'}"


def row(group: Group) -> list[str]:
    """Return the cells of a group in a table: the ranks, then the counts."""
    name = f"{span(group.ranks)}{_stage(group)}{', up to sizes' if group.uneven else ''}"
    counts = (group.nodes, group.edges, group.saved_bytes, group.elements, group.collectives)
    return [name, *map("{:,}".format, counts)]


def _stage(group: Group) -> str:
    return "" if group.stage is None else f", stage {group.stage}"


def _group(group: Group) -> str:
    sizes = " up to sizes" if group.uneven else ""
    return (
        f"{span(group.ranks)}{_stage(group)}{sizes}: "
        f"{pluralize(group.nodes, 'node')}, {pluralize(group.edges, 'edge')}, "
        f"{amount(group.saved_bytes)} bytes saved, {amount(group.elements)} parameters, "
        f"{pluralize(group.collectives, 'collective')}"
    )


def title(finding: Finding) -> str:
    """Return the title of a finding, with its ranks."""
    return f"{_TITLES[finding.kind]}: {span(finding.ranks)}"


def rest(ranks: Ranks) -> Iterator[tuple[str, str]]:
    """Yield the proof about the collectives and the parameters without a gradient on all ranks, each with its names."""
    if ranks.unaligned:
        yield f"no collectives compared: {_UNALIGNED} on ", ", ".join(ranks.unaligned)
    elif not any(finding.kind in ("hang", "may hang") for finding in ranks.findings):
        if ranks.proved or any(group.collectives for group in ranks.groups):
            mixed = any(finding.kind == "mixed" for finding in ranks.findings)
            exception = "; some mix tensors" if mixed else ""
            proof = f"{pluralize(ranks.proved, 'collective')}, each entered by all of its group in the same order"
            yield f"{proof}{exception}", ""
        elif not ranks.stopped:
            yield "no collectives" if ranks.recorded else _UNRECORDED, ""
    if ranks.unreached:
        yield f"no gradient on any {'of these ranks' if ranks.is_sample else 'rank'} for ", ", ".join(ranks.unreached)


def describe_collective(issued: Collective) -> str:
    """Return a short description of a collective: its phase, operation, tensors and group, and its origin."""
    parts = [issued.phase, issued.op, ", ".join(map(tensor_text, issued.tensors)), f"on {issued.group}"]
    if issued.peer is not None:
        parts.append(f"with {issued.peer}")
    if issued.microbatch is not None:
        parts.append(f"of microbatch {issued.microbatch}")
    if issued.node or issued.scope:
        parts.append(f"at {issued.node or issued.scope}")
    if issued.source is not None:
        parts.append(f"({issued.source.file}:{issued.source.line})")
    return " ".join(filter(None, parts))


def stops(ranks: Ranks) -> Iterator[str]:
    """Yield a line for each reason why ranks have no backward."""
    for reason, numbers in ranks.stopped.items():
        yield f"{span(numbers)}: no graph, {_STOPPED.get(reason, 'stopped before the backward')}"


def span(ranks: Iterable[int]) -> str:
    """Return the numbers of ranks, with the first and the last of consecutive ones."""
    runs: list[list[int]] = []
    ordered = sorted(ranks)
    for rank in ordered:
        if runs and runs[-1][1] == rank - 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    shown = runs if len(runs) <= _MOST else runs[: _MOST - 2]
    text = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in shown)
    others = len(ordered) - sum(last - first + 1 for first, last in shown)
    more = f" and {others:,} more" if others else ""
    return f"{'rank' if len(ordered) == 1 else 'ranks'} {text}{more}"
