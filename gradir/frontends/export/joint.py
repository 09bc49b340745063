"""Join the graphs of forward and backward that torch compiles a call to into one program."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import torch

from gradir.errors import CaptureError
from gradir.frontends.export.fx import meta_of
from gradir.frontends.export.program import Call, Input, Named, Part, Program, values_in
from gradir.frontends.export.regions import Region, bytes_of, expect_traced, region_of, storage_of, trace_call
from gradir.frontends.pytorch.reading.outputs import tensors_of
from gradir.frontends.pytorch.target import Traced, expect_traceable
from gradir.frontends.texts import ShownPaths, plain_text
from gradir.ir import Cut, Graph, Source
from gradir.ir.saved import SavedBytes
from gradir.ir.text import escape_unprintable

_MOST_REASON: Final = 200
_QUOTED: Final = re.compile(r"`[^`]+`")


def joint_program(target: Any) -> Program:
    """Read the compiled graphs of a call, or the joint graph of an exported program on its example inputs.

    Raises:
        CaptureError: there are no inputs, or torch cannot trace the call as one graph.
    """
    if not isinstance(target, Traced):
        expect_traceable()
        return _join([region_of(target)], None)
    found, result = trace_call(target)
    regions = [each for each in found if each.is_read]
    if not target.compiles:
        regions = [_find_whole(found, tensors_of(result))]
    elif not regions:
        advice = "call the result of torch.compile, which skips nn.RNN, LSTM and GRU, or use --graph joint"
        raise CaptureError(f"no compiled code ran; {advice}")
    return _join(regions, target)


def _find_whole(found: Sequence[Region], returned: Sequence[torch.Tensor]) -> Region:
    """Return the only graph with a backward, if it makes a tensor that the call returned."""
    trained = [each for each in found if each.saved]
    made = {id(tensor) for each in trained for tensor in each.first_outputs}
    if len(trained) == 1 and any(id(tensor) in made for tensor in returned):
        return trained[0]
    # A call that makes its model begins with a harmless break.
    cut = next(filter(None, map(_find_break, (*trained, *found))), None)
    expect_traced(found)
    if cut is None or cut.source is None:
        raise CaptureError("torch.compile traced no operation that needs a gradient, so there is no joint graph")
    raise CaptureError(
        f"a joint graph is one graph, and torch.compile breaks this one at {cut.source.file}:{cut.source.line} "
        f"({cut.op}); capture its parts with --graph compiled"
    )


def _join(regions: Sequence[Region], target: Traced | None) -> Program:
    """Return the graphs as one program: every forward in order, then the backwards from the last to the first."""
    linked = _find_links(regions)
    inner = {*linked.values()}
    forward, backward, inputs = list[Call](), list[Call](), dict[str, Input]()
    results, gradients = list[Named](), list[tuple[str, Named]]()
    reached, writes = set[tuple[str, ...]](), list[tuple[str, str]]()
    for number, region in enumerate(regions, 1):
        inputs.update((name, each) for name, each in region.inputs() if name not in linked)
        writes += region.writes
        results += [value for _, value in sorted(region.results.items()) if value.name not in inner]
        for place, value in region.gradients.items():
            _, names = region.described[place] if place >= 0 else ("", ())
            reached.add(names)
            if value.name not in inner:
                gradients.append((f"grad.{names[0]}" if names else "grad", value))
        calls = [call._replace(region=number if len(regions) > 1 else 0) for call in region.calls()]
        forward += [call for call in calls if not call.is_backward]
        backward[:0] = [call for call in calls if call.is_backward]
    compiles = target is not None and target.compiles
    if target is not None and compiles:
        # Parameters outside of the compiled graphs get their gradients from eager.
        reached.update(node.names for node in target.eager.nodes.values() if node.role == "parameter")
    breaks = dict.fromkeys(cut for region in regions for cut in (_find_recompile(region), _find_break(region)) if cut)
    return Program(
        Part([], [*forward, *backward], [*results, *(value for _, value in gradients)]),
        inputs,
        writes,
        str(torch.__version__),
        "compiled" if compiles else "joint",
        [*map(str, range(len(results))), *(path for path, _ in gradients)],
        [*_find_unreached(target, inputs, reached), *breaks],
        {} if target is None else target.eager.scopes,
        [*(() if target is None else _count_eager_bytes(target.eager)), *_count_saved_bytes(regions, linked)],
        linked,
    )


def _find_links(regions: Sequence[Region]) -> dict[str, str]:
    """Return by name the inputs that another graph computes: results of a graph before, and their gradients."""
    made, links = dict[int, tuple[int, int]](), dict[str, str]()
    users = defaultdict[tuple[int, int], list[Named | None]](list)
    for number, region in enumerate(regions):
        for place, tensor in enumerate(region.first_inputs):
            if isinstance(tensor, torch.Tensor) and id(tensor) in made and place in region.places:
                maker, result = made[id(tensor)]
                links[region.places[place]] = regions[maker].results[result].name
                users[maker, result].append(region.gradients.get(place))
        for place, tensor in enumerate(region.first_outputs):
            if isinstance(tensor, torch.Tensor) and place in region.results:
                made.setdefault(id(tensor), (number, place))
    for (maker, result), gradients in users.items():
        tangent, first = regions[maker].tangents.get(result), gradients[0]
        # The gradients of several users are added outside of these graphs.
        if tangent is not None and len(gradients) == 1 and first is not None:
            links[tangent] = first.name
    return links


def _count_eager_bytes(graph: Graph) -> Iterator[tuple[str, str, int]]:
    saved = SavedBytes[str](graph.nodes)
    for node in graph.nodes.values():
        saved.add(node, node.scope)
    return (("eager", scope, size) for scope, size in saved.total_by_account().items())


def _count_saved_bytes(regions: Sequence[Region], links: Mapping[str, str]) -> Iterator[tuple[str, str, int]]:
    """Yield the bytes that each partitioner saves by module: each storage once, without parameters and buffers."""
    tensors = {name: tensor for region in regions for name, tensor in region.tensors.items()}
    sizes, seen = defaultdict[tuple[str, str], int](int), defaultdict[str, set[int]](set)
    for region in regions:
        scopes, inputs = dict[str, str](), {*region.places.values()}
        for call in region.program.part.calls:
            path = call.modules[-1].path if call.modules else ""
            scopes.update((name.partition("[")[0], path) for name in call.makes)
            # The first module that reads an input counts it.
            for each in values_in([value for _, value in call.arguments]):
                if each.name in inputs:
                    scopes.setdefault(each.name, path)
        roles = region.described
        owned = {storage_of(tensors[name]) for place, name in region.places.items() if roles[place][0] != "input"}
        for partitioner, names in region.saved.items():
            for name in names:
                tensor = tensors[links.get(name, name)]
                key = storage_of(tensor)
                if key not in owned and key not in seen[partitioner]:
                    seen[partitioner].add(key)
                    maker = region.outputs.get(name, (name, 0))[0]
                    sizes[partitioner, scopes.get(maker, scopes.get(name, ""))] += bytes_of(tensor) or 0
    return ((partitioner, scope, size) for (partitioner, scope), size in sizes.items())


def _find_unreached(target: Traced | None, inputs: Mapping[str, Input], reached: set[tuple[str, ...]]) -> Iterator[Cut]:
    """Yield a cut for each parameter that requires a gradient and gets none."""
    if target is None:
        parameters = [each for each in inputs.values() if each.role == "parameter"]
        fields = [(each.names, each.names[0].rpartition(".")[0], each.tensor) for each in parameters]
    else:
        trained = [each for each in target.modules.owned if each.is_parameter and each.tensor.requires_grad]
        fields = [(each.names, each.scope, meta_of(each.tensor)) for each in trained]
    return (Cut("unreached", *each) for each in fields if each[0] not in reached)


def _find_break(region: Region) -> Cut | None:
    """Return the cut of a region that Dynamo ended with a graph break."""
    reason = region.reason
    if not getattr(reason, "graph_break", False):
        return None
    text, _, more = str(reason.reason).partition("\n")
    quoted = _QUOTED.search(more.partition("Hint:")[0])
    if quoted is not None and quoted.group().strip("`") not in text:
        text = f"{text} {quoted.group()}"
    return _cut("graph_break", text, reason.user_stack)


def _find_recompile(region: Region) -> Cut | None:
    """Return the cut of a region that Dynamo compiled again."""
    if region.compiled_as.rpartition("/")[2] in ("", "0"):
        return None
    from torch._dynamo.utils import get_compilation_metrics

    reasons = {str(each.compile_id): each.recompile_reason for each in get_compilation_metrics()}
    text = plain_text((reasons.get(region.compiled_as) or "").partition(": ")[2].partition("\n")[0])
    return _cut("recompile", text or "recompile", getattr(region.reason, "user_stack", ()))


def _cut(kind: str, reason: str, stack: Sequence[Any]) -> Cut:
    source = None
    if stack:
        frame = stack[-1]
        source = Source(ShownPaths()(frame.filename), frame.lineno or 0, escape_unprintable(plain_text(frame.name)))
    return Cut(kind, op=escape_unprintable(plain_text(reason))[:_MOST_REASON], source=source)
