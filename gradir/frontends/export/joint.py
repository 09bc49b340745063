"""The graphs of forward and backward that a call is compiled to, as one program."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import torch

from gradir.errors import CaptureError
from gradir.frontends.export.assemble import named_in
from gradir.frontends.export.fx import meta_of
from gradir.frontends.export.program import Call, Input, Named, Part, Program
from gradir.frontends.export.regions import Region, bytes_of, expect_traced, region_of, storage_of, traced
from gradir.frontends.pytorch.reading.outputs import tensors_of
from gradir.frontends.pytorch.target import Traced, expect_traceable
from gradir.frontends.texts import ShownPaths, plain_text
from gradir.ir import Cut, Graph, Source
from gradir.ir.saved import SavedBytes
from gradir.ir.text import printable

_MOST_REASON: Final = 200
_QUOTED: Final = re.compile(r"`[^`]+`")


def joint_program(target: Any) -> Program:
    """Read the graphs that a call is compiled to, or the joint graph of an exported program on its example inputs.

    Raises:
        CaptureError: there are no inputs, or torch cannot trace the call, or not as one graph.
    """
    if not isinstance(target, Traced):
        expect_traceable()
        return _joined([region_of(target)], None)
    found, result = traced(target)
    regions = [each for each in found if each.is_read]
    if not target.compiles:
        regions = [_whole(found, tensors_of(result))]
    elif not regions:
        raise CaptureError("nothing compiled ran: call what torch.compile returns, or use --graph joint")
    return _joined(regions, target)


def _whole(found: Sequence[Region], returned: Sequence[torch.Tensor]) -> Region:
    """Return the one graph that has a backward, and makes what was returned."""
    trained = [each for each in found if each.kept]
    made = {id(tensor) for each in trained for tensor in each.returned}
    if len(trained) == 1 and any(id(tensor) in made for tensor in returned):
        return trained[0]
    # A call that makes its model begins with a break that loses nothing.
    cut = next(filter(None, map(_break, (*trained, *found))), None)
    expect_traced(found)
    if cut is None or cut.source is None:
        raise CaptureError("torch.compile traced nothing that needs a gradient, so there is no joint graph")
    raise CaptureError(
        f"a joint graph is one graph, and torch.compile breaks this one at {cut.source.file}:{cut.source.line} "
        f"({cut.op}); capture its parts with --graph compiled"
    )


def _joined(regions: Sequence[Region], target: Traced | None) -> Program:
    """Return the graphs as one program: every forward in order, and then the backwards from the last to the first."""
    linked = _links(regions)
    taken = {*linked.values()}
    forward, backward, inputs = list[Call](), list[Call](), dict[str, Input]()
    results, gradients = list[Named](), list[tuple[str, Named]]()
    reached, writes = set[tuple[str, ...]](), list[tuple[str, str]]()
    for number, region in enumerate(regions, 1):
        inputs.update((name, each) for name, each in region.inputs() if name not in linked)
        writes += region.writes
        results += [value for _, value in sorted(region.results.items()) if value.name not in taken]
        for place, value in region.gradients.items():
            _, names = region.named[place] if place >= 0 else ("", ())
            reached.add(names)
            if value.name not in taken:
                gradients.append((f"grad.{names[0]}" if names else "grad", value))
        calls = [
            call._replace(arguments=_renamed(call.arguments, linked), region=number if len(regions) > 1 else 0)
            for call in region.calls()
        ]
        forward += [call for call in calls if not call.is_backward]
        backward[:0] = [call for call in calls if call.is_backward]
    compiles = target is not None and target.compiles
    if target is not None and compiles:
        # Parameters outside of what is compiled get their gradients from eager.
        reached.update(node.names for node in target.eager.nodes.values() if node.role == "parameter")
    return Program(
        Part([], [*forward, *backward], [*results, *(value for _, value in gradients)]),
        inputs,
        [(linked.get(name, name), value) for name, value in writes],
        str(torch.__version__),
        "compiled" if compiles else "joint",
        [*map(str, range(len(results))), *(path for path, _ in gradients)],
        [*_unreached(target, inputs, reached), *_breaks(regions)],
        {} if target is None else target.eager.scopes,
        [*(() if target is None else _kept_by_eager(target.eager)), *_savings(regions, linked)],
    )


def _links(regions: Sequence[Region]) -> dict[str, str]:
    """Return by name each input that another graph makes: results that one gives to the next, and their gradients."""
    made, links = dict[int, tuple[int, int]](), dict[str, str]()
    users = defaultdict[tuple[int, int], list[Named | None]](list)
    for number, region in enumerate(regions):
        for place, tensor in enumerate(region.taken):
            if isinstance(tensor, torch.Tensor) and id(tensor) in made and place in region.places:
                maker, result = made[id(tensor)]
                links[region.places[place]] = regions[maker].results[result].name
                users[maker, result].append(region.gradients.get(place))
        for place, tensor in enumerate(region.returned):
            if isinstance(tensor, torch.Tensor) and place in region.results:
                made.setdefault(id(tensor), (number, place))
    for (maker, result), gradients in users.items():
        tangent, first = regions[maker].tangents.get(result), gradients[0]
        # The gradients of several takers are added up outside of these graphs.
        if tangent is not None and len(gradients) == 1 and first is not None:
            links[tangent] = first.name
    return links


def _renamed(value: Any, links: Mapping[str, str]) -> Any:
    if type(value) is Named:
        return Named(links.get(value.name, value.name))
    return type(value)([_renamed(each, links) for each in value]) if type(value) in (list, tuple) else value


def _kept_by_eager(graph: Graph) -> Iterator[tuple[str, str, int]]:
    saved = SavedBytes[str](graph.nodes)
    for node in graph.nodes.values():
        saved.add(node, node.scope)
    return (("eager", scope, size) for scope, size in saved.by_account().items())


def _savings(regions: Sequence[Region], links: Mapping[str, str]) -> Iterator[tuple[str, str, int]]:
    """Yield the bytes that each partitioner keeps by module, each storage once, as of eager without the model's own."""
    tensors = {region.start + name: tensor for region in regions for name, tensor in region.tensors.items()}
    sizes, seen = defaultdict[tuple[str, str], int](int), defaultdict[str, set[int]](set)
    for region in regions:
        scopes, inputs = dict[str, str](), {*region.places.values()}
        for call in region.program.part.calls:
            path = call.modules[-1].path if call.modules else ""
            scopes.update((name.partition("[")[0], path) for name in call.makes)
            # What comes from outside is kept by the first that takes it.
            for taken in (each.name for _, value in call.arguments for each in named_in(value) if each.name in inputs):
                scopes.setdefault(taken, path)
        own = {storage_of(tensors[name]) for place, name in region.places.items() if region.named[place][0] != "input"}
        for partitioner, names in region.kept.items():
            for name in (region.start + name for name in names):
                tensor = tensors[links.get(name, name)]
                key = storage_of(tensor)
                if key not in own and key not in seen[partitioner]:
                    seen[partitioner].add(key)
                    maker = region.start + region.outputs.get(name.removeprefix(region.start), (name, 0))[0]
                    sizes[partitioner, scopes.get(maker, scopes.get(name, ""))] += bytes_of(tensor) or 0
    return ((partitioner, scope, size) for (partitioner, scope), size in sizes.items())


def _unreached(target: Traced | None, inputs: Mapping[str, Input], reached: set[tuple[str, ...]]) -> Iterator[Cut]:
    """Return a cut for each parameter that asks for a gradient and gets none."""
    if target is None:
        held = [each for each in inputs.values() if each.role == "parameter"]
        wanted = [(each.names, each.names[0].rpartition(".")[0], each.tensor) for each in held]
    else:
        trained = [each for each in target.modules.owned if each.is_parameter and each.tensor.requires_grad]
        wanted = [(each.names, each.scope, meta_of(each.tensor)) for each in trained]
    return (Cut("unreached", *each) for each in wanted if each[0] not in reached)


def _breaks(regions: Sequence[Region]) -> list[Cut]:
    """Return the places where Dynamo ended a graph, and where it compiled one anew, each once."""
    return [*dict.fromkeys(cut for region in regions for cut in (_again(region), _break(region)) if cut is not None)]


def _break(region: Region) -> Cut | None:
    reason = region.reason
    if not getattr(reason, "graph_break", False):
        return None
    words, _, more = str(reason.reason).partition("\n")
    what = _QUOTED.search(more.partition("Hint:")[0])
    text = f"{words} {what.group()}" if what is not None and what.group().strip("`") not in words else words
    return Cut("graph_break", op=printable(plain_text(text))[:_MOST_REASON], source=_place(reason.user_stack))


def _again(region: Region) -> Cut | None:
    if region.compiled_as.rpartition("/")[2] in ("", "0"):
        return None
    from torch._dynamo.utils import get_compilation_metrics

    reasons = {str(each.compile_id): each.recompile_reason for each in get_compilation_metrics()}
    words = (reasons.get(region.compiled_as) or "").partition(": ")[2].partition("\n")[0]
    op = printable(plain_text(words))[:_MOST_REASON]
    return Cut("recompile", op=op or "recompile", source=_place(getattr(region.reason, "user_stack", ())))


def _place(stack: Sequence[Any]) -> Source | None:
    if not stack:
        return None
    frame = stack[-1]
    return Source(ShownPaths()(frame.filename), frame.lineno or 0, printable(plain_text(frame.name)))
