"""Choose and run the passes that options ask for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from gradir import registry
from gradir.errors import PassError
from gradir.ir import Graph
from gradir.ir.graph import expect_graphs
from gradir.options import OptionError, Options, fill_options, schema_of

# The values that count as no value.
_ABSENT: Final = (None, False)

_OF_OVERLAYS: Final = frozenset({"overlay", "channel"})


class Step(NamedTuple):
    """A pass with its options; ``asked`` is the first option that was given for it."""

    name: str
    asked: str
    options: Options

    def __call__(self, graph: Graph) -> Graph:
        """Apply the pass to a graph."""
        return registry.run_pass(self.name, graph, self.options)


def option_names() -> Iterator[str]:
    """Return the names of all options of installed passes, in the order in which the passes run."""
    for each in registry.passes().values():
        yield from each.options.__struct_fields__


def plan_passes(values: Mapping[str, object], *, strict: bool = True) -> list[Step]:
    """Return the passes for options, parsed unless ``strict``, in the order of `gradir.protocols.Pass.order`.

    Nodes are hidden first, so that hops count only visible ones. Merging is last, since it changes their names.
    """
    given = {name: value for name, value in values.items() if not any(value is absent for absent in _ABSENT)}
    unknown = next((name for name in given if name not in option_names()), None)
    if unknown is not None:
        raise PassError(f"no pass has the option {unknown!r}: choose from {', '.join(option_names())}")
    return [
        step for name, each in registry.passes().items() for step in _steps(name, each.options, given, strict=strict)
    ]


def chooses(options: Iterable[str]) -> bool:
    """Return whether an option already chooses which nodes a picture draws.

    >>> chooses(["layers"]), chooses(["layers", "depth"])
    (False, True)
    """
    given = set(options)
    return any(
        getattr(each, "chooses", True) and not given.isdisjoint(each.options.__struct_fields__)
        for each in registry.passes().values()
    )


def picture_options(options: Mapping[str, object]) -> Mapping[str, object]:
    """Return the options of a picture, which shows layers unless a pass or all nodes are requested."""
    is_whole = options.get("all") not in {None, False, "false"}
    return options if is_whole or chooses(options) else {"layers": True, **options}


def apply_passes(steps: Sequence[Step], graph: Graph, spelled: Callable[[str], str] = str) -> Graph:
    """Return the graph after passes; ``spelled`` writes an option's name as its user does."""
    left = graph
    try:
        for done, step in enumerate(steps):  # noqa: B007 (the handler uses it)
            left = step(left)
    except PassError as error:
        culprit = _find_culprit(steps[:done], step, graph)
        # The pass fails without the earlier ones too.
        if culprit is None:
            raise
        value = getattr(step.options, step.asked)
        named = " and ".join(map(repr, value if isinstance(value, tuple) else (value,)))
        raise PassError(
            f"{step.asked} {named}: {spelled(culprit)}, which runs before it, left out what it names"
        ) from error
    return left


def export_graph(exporter: str, graph: Graph, options: Mapping[str, object], owner: str = "") -> str:
    """Return the text of an exporter. Passes take the options that are not its own; errors begin with ``owner``."""
    expect_graphs(graph)
    own = registry.exporter(exporter).options.__struct_fields__
    shown = {name: options[name] for name in _OF_OVERLAYS if name in options and name not in own}
    values = {name: value for name, value in options.items() if name not in shown}
    if any(shown.values()):
        registry.expect_nodes(exporter)
    overlay, channel = shown.get("overlay"), str(shown.get("channel") or "")
    if overlay is not None:
        graph = _apply_overlay(graph, overlay, channel, exporter)
    if not all(name in own for name in values):
        passes = {name: options[name] for name in option_names() if name in values and name not in own}
        values = {name: value for name, value in values.items() if name not in passes}
        if "all" in own and chooses(passes):
            # The passes already choose the nodes to draw.
            values.setdefault("all", True)
        # Report unknown names before the passes run.
        registry.exporter_options(exporter, values, owner)
        if registry.shows_channels(exporter):
            from gradir.explanations.from_cuts import add_verdict

            graph = add_verdict(graph)
        graph = apply_passes(plan_passes(passes), graph)
    if channel and overlay is None:
        # After the passes, since a box has the costs of all nodes in it.
        graph = add_costs(graph, channel, exporter)
    return registry.export(exporter, graph, values)


def add_costs(graph: Graph, channel: str, exporter: str) -> Graph:
    """Return the graph with a channel of its own costs as marks."""
    from gradir.overlays import costs

    return _apply_overlay(graph, costs(graph), channel, exporter)


def _apply_overlay(graph: Graph, overlay: object, channel: str, exporter: str) -> Graph:
    from gradir.overlays import Overlay, apply_overlay

    if not isinstance(overlay, Overlay):
        raise TypeError(f"overlay is a gradir.Overlay, not {type(overlay).__name__}; Explanation.overlay makes one")
    return apply_overlay(graph, overlay, channel, with_others=registry.shows_channels(exporter))


def _steps(name: str, kind: type[Options], given: Mapping[str, object], *, strict: bool) -> Iterator[Step]:
    values = {option: given[option] for option in kind.__struct_fields__ if option in given}
    if not values:
        return
    missing = [field.name for field in msgspec.structs.fields(kind) if field.required and field.name not in values]
    if missing:
        raise PassError(f"{next(iter(values))} belongs to {missing[0]}: give {missing[0]} too")
    for field in msgspec.structs.fields(kind):
        schema = schema_of(field.type)
        # A single text is a list of one. A tuple of a fixed length has `prefixItems`.
        if isinstance(values.get(field.name), str) and schema.get("type") == "array" and "prefixItems" not in schema:
            values[field.name] = (values[field.name],)
    try:
        yield Step(name, next(iter(values)), fill_options(kind, values, "passes", strict=strict))
    except OptionError as error:
        raise PassError(str(error)) from error


def _find_culprit(earlier: Sequence[Step], step: Step, graph: Graph) -> str | None:
    """Return the option of the earlier pass that makes a step fail, or None."""
    for before in (None, *earlier):
        graph = graph if before is None else before(graph)
        try:
            step(graph)
        except PassError:
            return None if before is None else before.asked
    return None
