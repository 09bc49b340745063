"""Overlays: values for the nodes of one graph, to draw over it.

An overlay is a JSON document beside the graph; see schemas/gir-overlay-1.0.schema.json. Its writer chooses how words
look.
"""

from __future__ import annotations

import math
from bisect import bisect
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Annotated, Final, Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from gradir.errors import ExportError, FormatError, did_you_mean
from gradir.ir import AttrValue, Graph
from gradir.ir.frozen import NOTHING
from gradir.ir.json_documents import DocumentKind
from gradir.ir.marks import OVERLAY, OVERLAYS, STEPS, VERDICT, Mark, flops, milliseconds
from gradir.ir.memo import group_by_key
from gradir.ir.text import escape_unprintable, number_text, pluralize, shorten, summarize_error

__all__ = ["FORMAT", "VERSION", "Channel", "Look", "Overlay", "apply_overlay", "costs", "decode", "encode"]

FORMAT: Final = "gir-overlay"
VERSION: Final = "1.0"
_DOCUMENT: Final = DocumentKind("overlay", FORMAT, VERSION, "gradir explain --overlay")

MOST_OF_A_VERDICT: Final = 2000
"""The most characters in the verdict of an overlay."""

_Name: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=80)]
_Word: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=80)]
Look: TypeAlias = Literal["alarm", "caution", "good", "quiet"]


class Channel(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A value for each node: by id a number, or a word such as ``nonfinite``.

    ``unit`` names the numbers, ``scale`` compares them by differences or by magnitude, and ``looks`` has the look of
    words.
    """

    name: _Name
    values: Mapping[str, float | _Word]
    unit: Annotated[str, msgspec.Meta(max_length=80)] = ""
    scale: Literal["linear", "log"] = "linear"
    looks: Mapping[str, Look] = NOTHING


class Overlay(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Values for the nodes of one graph, with a channel for each kind. The first channel is drawn by default.

    ``verdict`` is a sentence about the whole graph, which a page shows above the drawing, and ``look`` is its look.

    >>> overlay = Overlay((Channel("gradient", {"w": 0.5, "b": "zero"}, "norm"),))
    >>> decode(encode(overlay)) == overlay
    True
    """

    channels: Annotated[tuple[Channel, ...], msgspec.Meta(min_length=1)]
    verdict: Annotated[str, msgspec.Meta(max_length=MOST_OF_A_VERDICT)] = ""
    look: Look = "quiet"

    def to_json(self) -> str:
        """Return the document for ``gradir export --overlay``; `gradir.export` takes the overlay itself.

        Raises:
            FormatError: a number is not finite, or not above zero on a log scale; a name or word is empty or longer
                than 80 characters, or the verdict longer than 2,000; two channels share a name; or JSON cannot
                represent a text.
        """
        return encode(self).decode()


def encode(overlay: Overlay) -> bytes:
    """Return the bytes of an overlay, safe for a terminal."""
    return _DOCUMENT.encode(_check_types(overlay))


def decode(data: bytes) -> Overlay:
    """Return the overlay in a file."""
    return _DOCUMENT.decode(data, Overlay, _check)


def _check_types(overlay: Overlay) -> Overlay:
    """Return an overlay after the checks of a file, since a record does not check its values."""
    try:
        sound = msgspec.convert(msgspec.to_builtins(overlay), Overlay)
    except (msgspec.ValidationError, TypeError) as error:
        raise FormatError(f"broken overlay: {summarize_error(error)}") from error
    return _check(sound)


def _check(overlay: Overlay) -> Overlay:
    for number, channel in enumerate(overlay.channels):
        if not all(map(math.isfinite, _numbers(channel))):
            raise FormatError(
                f"broken overlay: NaN and infinity are words, as 'nonfinite' - at `$.channels[{number}].values`"
            )
        if channel.scale == "log" and min(_numbers(channel), default=1.0) <= 0:
            raise FormatError(f"broken overlay: a log scale takes numbers above 0 - at `$.channels[{number}].values`")
    if len({channel.name for channel in overlay.channels}) < len(overlay.channels):
        raise FormatError("broken overlay: two of its channels have the same name")
    return overlay


def apply_overlay(graph: Graph, overlay: Overlay, channel: str = "", *, with_others: bool = False) -> Graph:
    """Return the graph with the values of a channel, or ``with_others`` of all, and the verdict as marks."""
    overlay = _check_types(overlay)
    ids = {id_ for each in overlay.channels for id_ in each.values}
    known = sum(id_ in graph.nodes for id_ in ids)
    if known < len(ids):
        raise ExportError(
            f"the overlay is of another graph: of the {pluralize(len(ids), 'node')} that it names, this one has "
            f"{known:,}; make both of the same capture: that of gradir explain is one with --flow"
        )
    by_name = {each.name: each for each in overlay.channels}
    if channel and channel not in by_name:
        choices = shorten(", ".join(map(escape_unprintable, by_name)))
        raise ExportError(f"the overlay has no channel {channel!r}{did_you_mean(channel, by_name)}: it has {choices}")
    chosen = by_name[channel] if channel else overlay.channels[0]
    marks: dict[str, dict[str, AttrValue]] = {id_: {OVERLAY: tuple(mark)} for id_, mark in _marks(chosen)}
    others = [each for each in overlay.channels if with_others and each is not chosen]
    for id_, found in group_by_key(mark for each in others for mark in _marks(each)).items():
        marks.setdefault(id_, {})[OVERLAYS] = tuple(map(tuple, found))
    marked = {id_: replace(graph.nodes[id_], ext={**graph.nodes[id_].ext, **own}) for id_, own in marks.items()}
    graph = replace(graph, nodes={**graph.nodes, **marked})
    return mark_verdict(graph, overlay.look, overlay.verdict) if overlay.verdict else graph


def mark_verdict(graph: Graph, look: str, sentence: str) -> Graph:
    """Return the graph with a verdict as a mark of its outputs."""
    nodes = graph.outputs or [*graph.nodes.values()][-1:]
    marked = {node.id: replace(node, ext={**node.ext, VERDICT: (look, sentence)}) for node in nodes}
    return replace(graph, nodes={**graph.nodes, **marked})


def costs(graph: Graph) -> Overlay:
    """Return the recorded costs of the nodes: FLOPs, and measured times."""
    found: dict[tuple[str, str], dict[str, float]] = {("flops", ""): {}, ("forward", "ms"): {}, ("backward", "ms"): {}}
    for node in graph.nodes.values():
        for values, cost in zip(found.values(), (flops(node), *milliseconds(node)), strict=True):
            if cost > 0 and math.isfinite(cost):
                values[node.id] = float(cost)
    channels = tuple(Channel(name, values, unit, "log") for (name, unit), values in found.items() if values)
    if not channels:
        raise ExportError("the graph has no costs to show: capture it with --cost, or give --overlay FILE")
    return Overlay(channels)


def _marks(channel: Channel) -> Iterator[tuple[str, Mark]]:
    title = f"{channel.name} ({channel.unit})" if channel.unit else channel.name
    numbers = sorted(_numbers(channel))
    bounds = _bounds(numbers, is_log=channel.scale == "log")
    ends = pairwise([*numbers[:1], *bounds, *numbers[-1:]])
    labels = [" to ".join(dict.fromkeys(map(number_text, pair))) for pair in ends]
    for id_, value in channel.values.items():
        if isinstance(value, str):
            yield id_, Mark(channel.looks.get(value, "quiet"), value, title, value)
        else:
            step = bisect(bounds, value)
            yield id_, Mark(STEPS[step if bounds else len(STEPS) // 2], value, title, labels[step])


def _numbers(channel: Channel) -> Iterator[float]:
    return (value for value in channel.values.values() if not isinstance(value, str))


def _bounds(numbers: list[float], *, is_log: bool) -> list[float]:
    """Return the bounds between steps, or none if all numbers are equal."""
    if not numbers or numbers[0] == numbers[-1]:
        return []
    low, high = (math.log(numbers[0]), math.log(numbers[-1])) if is_log else (numbers[0], numbers[-1])
    # A sum of parts, since a difference may overflow a float.
    parts = [(low * (1 - part / len(STEPS)) + high * (part / len(STEPS))) for part in range(1, len(STEPS))]
    return [math.exp(part) for part in parts] if is_log else parts
