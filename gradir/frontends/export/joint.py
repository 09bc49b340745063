"""Read what ``torch.compile`` makes of a call: each graph of forward and backward, and what is kept between the two."""

from __future__ import annotations

import logging
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from operator import getitem
from typing import Any, Final

import torch
from torch import fx
from torch._functorch._aot_autograd.utils import make_boxed_func
from torch._functorch.partitioners import default_partition, min_cut_rematerialization_partition
from torch._guards import CompileContext
from torch.multiprocessing.reductions import StorageWeakRef

from gradir.errors import CaptureError
from gradir.frontends.export.assemble import named_in
from gradir.frontends.export.fx import known_inputs, meta_of, program_of
from gradir.frontends.export.program import Call, Input, Kept, Named, Part, Program, bare_path
from gradir.frontends.paths import ShownPaths
from gradir.frontends.pytorch.reading.outputs import tensors_of
from gradir.frontends.pytorch.target import Traced, expect_traceable
from gradir.frontends.substitution import replace_function
from gradir.frontends.texts import plain_text
from gradir.frontends.walks import below
from gradir.ir import Cut, Graph, Source
from gradir.ir.saved import SavedBytes
from gradir.ir.text import printable
from gradir.spec import called

_MOST_REASON: Final = 200
_VARIABLE: Final = re.compile(r"[LG]\.((?!__)\w[\w.]*)")
_QUOTED: Final = re.compile(r"`[^`]+`")


def joint_program(target: Any) -> Program:
    """Read the graphs that a call is compiled to, or the joint graph of an exported program on its example inputs.

    Raises:
        CaptureError: there are no inputs, or torch cannot trace the call, or not as one graph.
    """
    if not isinstance(target, Traced):
        return _of_exported(target)
    regions = _Regions(_Names(target), target.compiles)
    inner = getattr(target.call, "func", target.call)
    log = logging.getLogger("torch._dynamo")
    level = log.level
    # gradir reports the graph breaks itself, and what was compiled before stands in the way of another backend.
    log.setLevel(logging.ERROR)
    torch.compiler.reset()
    try:
        result = called(partial(_run, target, regions), getattr(inner, "__qualname__", type(inner).__name__))
    finally:
        torch.compiler.reset()
        log.setLevel(level)
    found = [each for each in regions.found if each.is_read]
    if not target.compiles:
        found = [_whole(found, tensors_of(result))]
    elif not found:
        raise CaptureError("nothing compiled ran: call what torch.compile returns, or use --graph joint")
    return _joined(found, target)


def _run(target: Traced, regions: _Regions) -> object:
    if target.compiles:
        with torch.compiler.set_stance(force_backend=regions):
            return target.call()
    call = target.call
    inner, args, kwargs = (call.func, call.args, call.keywords) if isinstance(call, partial) else (call, (), {})
    from torch._dynamo import config

    # A line in a log computes nothing, and would break the graph.
    logs = {each for each in vars(logging.Logger).values() if callable(each)}
    with ExitStack() as entered:
        entered.enter_context(config.patch(ignore_logger_methods=logs))
        for kind in {type(root) for root in target.modules.roots.values()}:
            # To compile what makes a model takes longer than the model itself, and breaks the graph anyway.
            replace_function(entered, kind, "__init__", torch.compiler.disable(kind.__init__))  # type: ignore[no-untyped-call]
        return torch.compile(inner, backend=regions)(*args, **kwargs)


def _whole(found: Sequence[_Region], returned: Sequence[torch.Tensor]) -> _Region:
    """Return the one graph that has a backward, and makes what was returned."""
    trained = [each for each in found if each.has_backward]
    made = {id(tensor) for each in trained for tensor in each.returned}
    if len(trained) == 1 and any(id(tensor) in made for tensor in returned):
        return trained[0]
    # A call that makes its model begins with a break that loses nothing.
    cut = next(filter(None, map(_break, (*trained, *found))), None)
    if cut is None or cut.source is None:
        raise CaptureError("torch.compile traced nothing that needs a gradient, so there is no joint graph")
    raise CaptureError(
        f"a joint graph is one graph, and torch.compile breaks this one at {cut.source.file}:{cut.source.line} "
        f"({cut.op}); capture its parts with --graph compiled"
    )


class _Region:
    """A graph that Dynamo gave its backend, and what AOTAutograd made of it."""

    def __init__(self, start: str, inputs: Sequence[tuple[str, Any]], reason: Any = None) -> None:
        """``start`` is put before the names of its values, and ``inputs`` are sources with their tensors."""
        self.start, self.inputs, self.reason = start, inputs, reason
        self.compiled_as = str(CompileContext.current_compile_id() or "")
        self.program = Program(Part([], [], []), {})
        self.is_read = False
        self.taken: Sequence[Any] = ()
        self.returned: Sequence[Any] = ()
        self.has_backward = False
        self.kept: dict[str, list[str]] = {}
        self.again: set[str] = set()
        self.named: Sequence[tuple[str, tuple[str, ...]]] = ()
        # Names of values by the numbers of Dynamo's inputs and outputs.
        self.places: dict[int, str] = {}
        self.tangents: dict[int, str] = {}
        self.results: dict[int, Named] = {}
        self.gradients: dict[int, Named] = {}
        self.described: dict[Any, str] = {}
        self.writes: list[tuple[str, str]] = []

    def read(self, graph: fx.GraphModule) -> None:
        """Read a graph of AOTAutograd before a partitioner changes it."""
        self.program, self.is_read = program_of(graph, self.start), True
        nodes = graph.graph.nodes
        for node in nodes:
            if node.op == "placeholder":
                self._place(node.meta["desc"], node.name)
        (ends,) = (node for node in nodes if node.op == "output")
        for what, value in zip(ends.meta["desc"], self.program.part.outputs, strict=True):
            if isinstance(value, Named):
                self._end(what, value)
        self.numbers = {node.name: node.meta.get("seq_nr") for node in nodes}
        tangents = {name.removeprefix(self.start) for name in self.tangents.values()}
        self.backward = set[str]()
        for node in nodes:
            # The backward of a custom function has no tag.
            takes = {each.name for each in node.all_input_nodes}
            is_tagged = node.meta.get("partitioner_tag") in {"is_backward", "must_be_in_backward"}
            if is_tagged or not (takes.isdisjoint(tangents) and takes.isdisjoint(self.backward)):
                self.backward.add(node.name)
        self.tensors = {node.name: node.meta.get("val") for node in nodes}
        self.outputs = {
            node.name: (node.args[0].name, node.args[1]) if node.target is getitem else (node.name, 0)
            for node in nodes
            if node.op == "call_function"
        }
        self.tensors |= {f"{call}[{number}]": self.tensors[name] for name, (call, number) in self.outputs.items()}
        self.owned = {_storage(self.tensors[node.name]) for node in nodes if node.op == "placeholder"}

    def _place(self, what: Any, name: str) -> None:
        kind = type(what).__name__
        if kind == "PlainAOTInput":
            self.places[what.idx] = self.start + name
        elif kind == "TangentAOTInput":
            self.tangents[getattr(what.output, "idx", -1)] = self.start + name
        self.described[what] = self.start + name

    def _end(self, what: Any, value: Named) -> None:
        kind = type(what).__name__
        if kind == "InputMutationAOTOutput":
            self.writes.append((self.described[what.mutated_input], value.name))
        elif kind == "GradAOTOutput":
            self.gradients[getattr(what.grad_of, "idx", -1)] = value
        else:
            self.results[getattr(what, "idx", len(self.results))] = value

    def note(self, partitioner: str, count: int, parts: tuple[fx.GraphModule, fx.GraphModule]) -> None:
        """Note what a partitioner keeps; the last one decides on what is computed anew."""
        (ends,) = (node.args[0] for node in parts[0].graph.nodes if node.op == "output")
        self.has_backward = True
        self.kept[partitioner] = [node.name for node in ends[count:] if isinstance(node, fx.Node)]
        self.again = {node.name for node in parts[1].graph.nodes if node.op == "call_function"} - self.backward

    def described_inputs(self) -> Iterator[tuple[str, Input]]:
        """Yield the tensors among the inputs by their names."""
        numbers = {name: number for number, name in self.places.items()}
        tangents = {*self.tangents.values()}
        for name, known in self.program.inputs.items():
            number = numbers.get(name, -1)
            role, names = self.named[number] if number >= 0 else ("input", (name,) if name in tangents else ())
            yield name, known._replace(role=role, names=names, trainable=number in self.gradients)

    def calls(self) -> Iterator[Call]:
        """Yield the operations with what is kept of each, and what those of the backward differentiate."""
        slots: defaultdict[str, dict[int, Kept]] = defaultdict(dict)
        held = dict.fromkeys(next(reversed(self.kept.values()), ()), "held")
        # A view of what is there anyway takes no memory and no time.
        there = self.owned | {_storage(self.tensors[name]) for name in held}
        again = [name for name in self.numbers if name in self.again and _storage(self.tensors[name]) not in there]
        for name, state in {**dict.fromkeys(again, "recomputed"), **held}.items():
            if name in self.outputs and isinstance(self.tensors[name], torch.Tensor):
                call, number = self.outputs[name]
                slots[call][number] = Kept(number, _bytes(self.tensors[name]) if state == "held" else None, state)
        for call in self.program.part.calls:
            name = call.makes[0].removeprefix(self.start).partition("[")[0] if call.makes else ""
            kept = [slot for _, slot in sorted(slots[name].items())]
            yield call._replace(number=self.numbers.get(name), is_backward=name in self.backward, kept=kept)


def _storage(tensor: Any) -> int:
    if not isinstance(tensor, torch.Tensor):
        return 0
    return int(StorageWeakRef(tensor.untyped_storage()).cdata)  # type: ignore[no-untyped-call]


def _bytes(tensor: Any) -> int | None:
    """Return the size of a storage, and nothing of a number or where it depends on a symbol."""
    size: Any = tensor.untyped_storage().nbytes() if isinstance(tensor, torch.Tensor) else None
    return size if type(size) is int else None


class _Regions:
    """A backend of ``torch.compile`` that notes what it is given and runs it as it is."""

    def __init__(self, names: _Names | None, compiles: bool) -> None:
        """``compiles`` asks for what Inductor is given: with its decompositions, and its partitioner alone."""
        self.found: list[_Region] = []
        self._names = names
        self._options: dict[str, Any] = {}
        self._partitioners: dict[str, Callable[..., Any]] = {
            "default": default_partition,
            "min-cut": min_cut_rematerialization_partition,
        }
        if compiles:
            # Inductor takes seconds to load.
            from torch._inductor.decomposition import select_decomp_table

            self._options["decompositions"] = select_decomp_table()
            self._partitioners = {"inductor": min_cut_rematerialization_partition}

    def __call__(self, module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., object]:
        from torch._dynamo.backends.common import aot_autograd

        places = [node for node in module.graph.nodes if node.op == "placeholder"]
        sources = [(_source(node), value) for node, value in zip(places, inputs, strict=True)]
        start = f"region{len(self.found) + 1}." if self.found else ""
        region = _Region(start, sources, getattr(module, "compile_subgraph_reason", None))
        self.found.append(region)
        taken = partial(self._taken, region)
        compiled = aot_autograd(
            fw_compiler=taken, bw_compiler=_run_as_it_is, partition_fn=partial(self._parted, region), **self._options
        )(module, inputs)

        def run(*args: object) -> object:
            result = compiled(*args)
            if not region.returned:
                region.taken, region.returned = args, [*result]
            return result

        return run

    def _taken(self, region: _Region, graph: fx.GraphModule, _: object) -> Callable[..., object]:
        if not region.is_read:
            self._read(region, graph)
        return _run_as_it_is(graph, _)

    def _parted(self, region: _Region, joint: fx.GraphModule, inputs: Any, **options: Any) -> Any:
        self._read(region, joint)
        parts: Any = None
        for name, partitioner in self._partitioners.items():
            parts = partitioner(joint, inputs, **options)
            region.note(name, options["num_fwd_outputs"], parts)
        return parts

    def _read(self, region: _Region, graph: fx.GraphModule) -> None:
        if self._names is not None:
            self._names.forget_texts()
            for node in graph.graph.nodes:
                for key in ("nn_module_stack", "fwd_nn_module_stack"):
                    if node.meta.get(key):
                        node.meta[key] = self._names.stack(node.meta[key])
            region.named = [self._names.input(source, tensor) for source, tensor in region.inputs]
        region.read(graph)


def _run_as_it_is(graph: fx.GraphModule, _: object) -> Callable[..., object]:
    run: Callable[..., object] = make_boxed_func(graph.forward)
    return run


def _source(node: fx.Node) -> str:
    """Return what Dynamo calls an input: a text such as ``L['model']._parameters['weight']``."""
    name = getattr(getattr(node.meta.get("grapharg"), "source", None), "name", "")
    return str(name() if callable(name) else name)


class _Names:
    """Gives modules and tensors the names that they have in the eager graph.

    The call may make modules anew. Such a root is found by its class, in the order of calls.
    """

    def __init__(self, target: Traced) -> None:
        modules = target.modules
        self._paths = {id(module): path for module, path in modules.paths.items()}
        self._owned = {id(each.tensor): each for each in modules.owned}
        self._by_name = {name: each for each in modules.owned for name in each.names}
        self._waiting = [(type(module), path) for path, module in modules.roots.items()]
        self._roots: dict[str, str] = {}

    def forget_texts(self) -> None:
        """Forget what Dynamo calls the modules of one graph, which it may call others in the next."""
        self._roots = {}

    def stack(self, stack: Mapping[str, Any]) -> dict[str, Any]:
        """Return the modules of a node with their eager paths."""
        found = {}
        for key, (text, kind) in stack.items():
            number, _, call = str(key).partition("@")
            bare = bare_path(text.partition("@")[0])
            known = int(number) if number.isdecimal() else 0
            if known not in self._paths:
                self._paths[known] = self._path(bare, kind)
            path = self._paths[known]
            self._note(bare, path)
            found[f"{path}@{call}"] = path, kind
        return found

    def _note(self, bare: str, path: str) -> None:
        """Note what Dynamo calls a module, and the modules above it: a frame calls its own ``self``."""
        while bare and bare not in self._roots:
            self._roots[bare] = path
            (bare, _, inner), (path, _, last) = bare.rpartition("."), path.rpartition(".")
            if inner != last:
                return

    def _path(self, bare: str, kind: Any) -> str:
        """Return the path of a module that the eager run did not have."""
        known = self._known(bare)
        fitting = None if known is not None else next((each for each in self._waiting if each[0] is kind), None)
        if fitting is not None:
            self._waiting.remove(fitting)
            return fitting[1]
        return known or bare.partition(".")[2].partition(".")[2]

    def _known(self, bare: str) -> str | None:
        """Return the path of what is below a module that has one."""
        above, rest = bare, ""
        while above:
            if above in self._roots:
                return below(self._roots[above], rest) if rest else self._roots[above]
            above, _, last = above.rpartition(".")
            rest = f"{last}.{rest}" if rest else last
        return None

    def input(self, source: str, tensor: object) -> tuple[str, tuple[str, ...]]:
        """Return the role and the names of an input."""
        bare = bare_path(source)
        owned = self._owned.get(id(tensor)) or self._by_name.get(self._known(bare) or "")
        if owned is not None:
            return "parameter" if owned.is_parameter else "buffer", owned.names
        # Dynamo begins the names that it makes up itself with underscores.
        name = _VARIABLE.fullmatch(bare)
        return "input", (name[1],) if name is not None else ()


def _joined(regions: Sequence[_Region], target: Traced | None) -> Program:
    """Return the graphs as one program: every forward in order, and then the backwards from the last to the first."""
    linked = _links(regions)
    taken = {*linked.values()}
    forward, backward, inputs = list[Call](), list[Call](), dict[str, Input]()
    ends = list[tuple[str, Named]]()
    reached, writes = set[tuple[str, ...]](), list[tuple[str, str]]()
    for number, region in enumerate(regions):
        inputs.update((name, each) for name, each in region.described_inputs() if name not in linked)
        writes += region.writes
        results = [value for _, value in sorted(region.results.items()) if value.name not in taken]
        before = sum(path.isdigit() for path, _ in ends)
        ends += [(str(before + place), value) for place, value in enumerate(results)]
        for place, value in region.gradients.items():
            _, names = region.named[place] if place >= 0 else ("", ())
            reached.add(names)
            if value.name not in taken:
                ends.append((f"grad.{names[0]}" if names else "grad", value))
        calls = [_linked(call, linked, number + 1 if len(regions) > 1 else 0) for call in region.calls()]
        forward += [call for call in calls if not call.is_backward]
        backward[:0] = [call for call in calls if call.is_backward]
    ends.sort(key=lambda each: each[0].startswith("grad"))
    is_compiled = target is not None and target.compiles
    return Program(
        Part([], [*forward, *backward], [value for _, value in ends]),
        inputs,
        [(linked.get(name, name), value) for name, value in writes],
        str(torch.__version__),
        "compiled" if is_compiled else "joint",
        [path for path, _ in ends],
        [*_unreached(target, inputs, reached), *_breaks(regions)],
        {} if target is None else target.eager.scopes,
        [*(() if target is None else _kept_by_eager(target.eager)), *_savings(regions, linked)],
    )


def _links(regions: Sequence[_Region]) -> dict[str, str]:
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


def _linked(call: Call, links: Mapping[str, str], region: int) -> Call:
    """Return a call that takes what another graph makes, with the number of its graph where there are several."""
    arguments = [(name, _renamed(value, links)) for name, value in call.arguments]
    return call._replace(arguments=arguments, region=region)


def _renamed(value: Any, links: Mapping[str, str]) -> Any:
    if type(value) is Named:
        return Named(links.get(value.name, value.name))
    return type(value)([_renamed(each, links) for each in value]) if type(value) in (list, tuple) else value


def _kept_by_eager(graph: Graph) -> Iterator[tuple[str, str, int]]:
    """Yield the bytes that eager keeps by module."""
    saved = SavedBytes[str](graph.nodes)
    for node in graph.nodes.values():
        saved.add(node, node.scope)
    return (("eager", scope, size) for scope, size in saved.by_account().items())


def _savings(regions: Sequence[_Region], links: Mapping[str, str]) -> Iterator[tuple[str, str, int]]:
    """Yield the bytes that each partitioner keeps by module, each storage once, as of eager without the model's own."""
    tensors = {region.start + name: tensor for region in regions for name, tensor in region.tensors.items()}
    sizes, seen = defaultdict[tuple[str, str], int](int), defaultdict[str, set[int]](set)
    for region in regions:
        scopes, inputs = dict[str, str](), {name for _, name in region.places.items()}
        for call in region.calls():
            path = call.modules[-1].path if call.modules else ""
            scopes.update((name.partition("[")[0], path) for name in call.makes)
            # What comes from outside is kept by the first that takes it.
            for taken in (each.name for _, value in call.arguments for each in named_in(value) if each.name in inputs):
                scopes.setdefault(taken, path)
        own = {_storage(tensors[name]) for place, name in region.places.items() if region.named[place][0] != "input"}
        for partitioner, names in region.kept.items():
            for name in (region.start + name for name in names):
                tensor = tensors[links.get(name, name)]
                key = _storage(tensor)
                if key not in own and key not in seen[partitioner]:
                    seen[partitioner].add(key)
                    maker = region.start + region.outputs.get(name.removeprefix(region.start), (name, 0))[0]
                    sizes[partitioner, scopes.get(maker, scopes.get(name, ""))] += _bytes(tensor) or 0
    return ((partitioner, scope, size) for (partitioner, scope), size in sizes.items())


def _unreached(target: Traced | None, inputs: Mapping[str, Input], reached: set[tuple[str, ...]]) -> Iterator[Cut]:
    """Yield a cut for each parameter that asks for a gradient and gets none."""
    if target is None:
        for each in inputs.values():
            if each.role == "parameter" and each.names not in reached:
                yield Cut("unreached", each.names, each.names[0].rpartition(".")[0], each.tensor)
        return
    for owned in target.modules.owned:
        if owned.is_parameter and owned.tensor.requires_grad and owned.names not in reached:
            yield Cut("unreached", owned.names, owned.scope, meta_of(owned.tensor))


def _breaks(regions: Sequence[_Region]) -> list[Cut]:
    """Return the places where Dynamo ended a graph, and where it compiled one anew, each once."""
    return [*dict.fromkeys(cut for region in regions for cut in (_again(region), _break(region)) if cut is not None)]


def _break(region: _Region) -> Cut | None:
    reason = region.reason
    if not getattr(reason, "graph_break", False):
        return None
    words, _, more = str(reason.reason).partition("\n")
    what = _QUOTED.search(more.partition("Hint:")[0])
    text = f"{words} {what.group()}" if what is not None and what.group().strip("`") not in words else words
    return Cut("graph_break", op=printable(plain_text(text))[:_MOST_REASON], source=_place(reason.user_stack))


def _again(region: _Region) -> Cut | None:
    """Return why a graph was compiled anew, if it was."""
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


def _of_exported(target: Any) -> Program:
    """Read the joint graph of an exported program, which runs nothing."""
    expect_traceable()
    name = type(target).__name__
    if getattr(target, "example_inputs", None) is None:
        raise CaptureError(f"a joint graph needs a function, or a module and its inputs, and {name} has none")
    from torch.utils._pytree import tree_leaves

    signature, known = target.graph_signature, known_inputs(target)
    held, given = {**target.state_dict, **target.constants}, iter(tree_leaves(target.example_inputs))
    inputs = [next(given) if spec.target is None else held[spec.target] for spec in signature.input_specs]
    regions = _Regions(None, compiles=False)
    called(partial(regions, target.graph_module, inputs), name)
    (region,) = regions.found
    region.named = [known.get(spec.arg.name, ("input", ())) for spec in signature.input_specs]
    return _joined([region], None)
