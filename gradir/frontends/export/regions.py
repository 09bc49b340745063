"""Trace a call with a backend of ``torch.compile``: each graph of Dynamo, as AOTAutograd differentiates it."""

from __future__ import annotations

import logging
import re
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import takewhile
from operator import getitem
from typing import Any, Final

import torch
from torch import fx
from torch._functorch._aot_autograd.utils import make_boxed_func
from torch._functorch.partitioners import default_partition
from torch._functorch.partitioners import min_cut_rematerialization_partition as min_cut
from torch._guards import CompileContext
from torch.multiprocessing.reductions import StorageWeakRef

from gradir.errors import CaptureError, SpecError
from gradir.frontends.export.fx import known_inputs, program_of, stack_of
from gradir.frontends.export.program import Call, Input, Kept, Named, Part, Program, bare_path
from gradir.frontends.pytorch.target import Traced, compiled_code
from gradir.frontends.texts import plain_text
from gradir.frontends.walks import below, paths_above, replace_function
from gradir.spec import called, own_error

_VARIABLE: Final = re.compile(r"[LG]\.((?!__)\w[\w.]*)")


def traced(target: Traced) -> tuple[list[Region], object]:
    """Run a call, and return the graphs that it was compiled to, and what it returned."""
    backend = _Backend(_Names(target), compiles=target.compiles)
    inner = getattr(target.call, "func", target.call)
    log = logging.getLogger("torch._dynamo")
    level = log.level
    # gradir reports the graph breaks itself, and what was compiled before stands in the way of another backend.
    log.setLevel(logging.ERROR)
    torch.compiler.reset()
    try:
        with warnings.catch_warnings():
            # AOTAutograd traces the backward in the mode that warns of what fails, which is an error of its own.
            warnings.filterwarnings("ignore", "Error detected in")
            result = called(partial(_run, target, backend), getattr(inner, "__qualname__", type(inner).__name__))
    except SpecError:
        expect_traced(backend.found)
        raise
    finally:
        torch.compiler.reset()
        log.setLevel(level)
    return backend.found, result


def expect_traced(found: Sequence[Region]) -> None:
    """Refuse a program with a graph that AOTAutograd cannot differentiate."""
    failure = next((region.failure for region in found if region.failure), "")
    if failure:
        raise CaptureError(f"torch cannot trace the backward of this loss: {failure}") from None


def _run(target: Traced, backend: _Backend) -> object:
    if target.compiles:
        with compiled_code(force_backend=backend):
            return target.call()
    call = target.call
    inner, args, kwargs = (call.func, call.args, call.keywords) if isinstance(call, partial) else (call, (), {})
    from torch._dynamo import config

    # A line in a log computes nothing, and would break the graph.
    logs = {each for each in vars(logging.Logger).values() if callable(each)}
    with ExitStack() as entered:
        # Without allow_rnn Dynamo ends its graph at an LSTM.
        entered.enter_context(config.patch(ignore_logger_methods=logs, allow_rnn=True))
        for kind in {type(module) for module in (*target.modules.roots.values(), *target.called)}:
            # To compile what makes a model takes longer than the model itself, and breaks the graph anyway.
            replace_function(entered, kind, "__init__", torch.compiler.disable(kind.__init__))  # type: ignore[no-untyped-call]
        return torch.compile(inner, backend=backend)(*args, **kwargs)


def region_of(program: Any) -> Region:
    """Trace the backward of an exported program on its example inputs."""
    name = type(program).__name__
    if getattr(program, "example_inputs", None) is None:
        raise CaptureError(f"a joint graph needs a function, or a module and its inputs, and {name} has none")
    from torch.utils._pytree import tree_leaves

    specs, known = program.graph_signature.input_specs, known_inputs(program)
    held, given = {**program.state_dict, **program.constants}, iter(tree_leaves(program.example_inputs))
    backend = _Backend(None, compiles=False)
    inputs = [next(given) if spec.target is None else held[spec.target] for spec in specs]
    called(partial(backend, program.graph_module, inputs), f"tracing the backward of {name}")
    (region,) = backend.found
    region.named = [known.get(spec.arg.name, ("input", ())) for spec in specs]
    return region


class Region:
    """A graph of Dynamo, and what AOTAutograd made of it; values are known by the numbers of Dynamo's places."""

    def __init__(self, start: str, reason: Any = None) -> None:
        """``start`` is put before the names of its values."""
        self.start, self.reason = start, reason
        self.compiled_as = str(CompileContext.current_compile_id() or "")
        self.program = Program(Part([], [], []), {})
        self.is_read, self.failure = False, ""
        self.named: Sequence[tuple[str, tuple[str, ...]]] = ()
        # The tensors of its first run.
        self.taken, self.returned = tuple[Any, ...](), list[Any]()
        # By partitioner the values that it keeps. There is none where nothing needs a gradient.
        self.kept: dict[str, list[str]] = {}
        self.places, self.tangents = dict[int, str](), dict[int, str]()
        self.results, self.gradients = dict[int, Named](), dict[int, Named]()
        self.writes: list[tuple[str, str]] = []
        self._recomputed: set[str] = set()

    def read(self, graph: fx.GraphModule) -> None:
        """Read a graph of AOTAutograd before a partitioner changes it."""
        nodes = [*graph.graph.nodes]
        sums = dict.fromkeys(node for node in nodes if node.meta.get("is_gradient_acc"))
        _place_sums([*sums])
        self.program, self.is_read = program_of(graph, self.start), True
        places = [node for node in nodes if node.op == "placeholder"]
        described = self._read_places(places)
        self._read_ends(zip(nodes[-1].meta["desc"], self.program.part.outputs, strict=True), described)
        # A sum of gradients has the number of some operation before it.
        self._numbers = {node.name: node.meta.get("seq_nr") for node in nodes} | dict.fromkeys(
            each.name for each in sums
        )
        tangents = {name.removeprefix(self.start) for name in self.tangents.values()}
        self._backward = set[str]()
        for node in nodes:
            # The backward of a custom function has no tag.
            takes = {each.name for each in node.all_input_nodes}
            is_tagged = node.meta.get("partitioner_tag") in {"is_backward", "must_be_in_backward"}
            if is_tagged or not (takes.isdisjoint(tangents) and takes.isdisjoint(self._backward)):
                self._backward.add(node.name)
        self.tensors = {node.name: node.meta.get("val") for node in nodes}
        self.outputs = {
            node.name: (node.args[0].name, node.args[1]) if node.target is getitem else (node.name, 0)
            for node in nodes
            if node.op == "call_function"
        }
        self.tensors |= {f"{call}[{number}]": self.tensors[name] for name, (call, number) in self.outputs.items()}
        self._owned = {storage_of(self.tensors[node.name]) for node in places}

    def _read_places(self, places: Sequence[fx.Node]) -> dict[Any, str]:
        described = {node.meta["desc"]: self.start + node.name for node in places}
        for what, name in described.items():
            if type(what).__name__ == "PlainAOTInput":
                self.places[what.idx] = name
            elif type(what).__name__ == "TangentAOTInput":
                self.tangents[getattr(what.output, "idx", -1)] = name
        return described

    def _read_ends(self, ends: Iterable[tuple[Any, Any]], described: Mapping[Any, str]) -> None:
        for what, value in (end for end in ends if isinstance(end[1], Named)):
            match type(what).__name__:
                case "InputMutationAOTOutput":
                    self.writes.append((described[what.mutated_input], value.name))
                case "GradAOTOutput":
                    self.gradients[getattr(what.grad_of, "idx", -1)] = value
                case _:
                    self.results[getattr(what, "idx", len(self.results))] = value

    def note(self, partitioner: str, count: int, parts: tuple[fx.GraphModule, fx.GraphModule]) -> None:
        """Note what a partitioner keeps; the last one decides on what is computed anew."""
        (ends,) = (node.args[0] for node in parts[0].graph.nodes if node.op == "output")
        self.kept[partitioner] = [node.name for node in ends[count:] if isinstance(node, fx.Node)]
        again = {node.name for node in parts[1].graph.nodes if node.op == "call_function"}
        self._recomputed = again - self._backward

    def inputs(self) -> Iterator[tuple[str, Input]]:
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
        there = self._owned | {storage_of(self.tensors[name]) for name in held}
        again = [name for name in self._numbers if name in self._recomputed]
        again = [name for name in again if storage_of(self.tensors[name]) not in there]
        for name, state in {**dict.fromkeys(again, "recomputed"), **held}.items():
            if name in self.outputs and isinstance(self.tensors[name], torch.Tensor):
                call, number = self.outputs[name]
                slots[call][number] = Kept(number, bytes_of(self.tensors[name]) if state == "held" else None, state)
        for call in self.program.part.calls:
            name = call.makes[0].removeprefix(self.start).partition("[")[0] if call.makes else ""
            kept = [slot for _, slot in sorted(slots[name].items())]
            yield call._replace(number=self._numbers.get(name), is_backward=name in self._backward, kept=kept)


def _place_sums(sums: Sequence[fx.Node]) -> None:
    """Put each sum of gradients, for which torch states no module, into those that its last summand and taker share."""
    takers = dict[fx.Node, Mapping[str, Any]]()
    for node in reversed(sums):
        taker = next(iter(node.users))
        takers[node] = takers[taker] if taker in takers else stack_of(taker)
    for node in sums:
        pairs = zip(stack_of(node.all_input_nodes[-1]).items(), takers[node].items(), strict=False)
        node.meta["fwd_nn_module_stack"] = dict(one for one, _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def storage_of(tensor: Any) -> int:
    """Return what tensors of one storage have in common, and 0 of a number."""
    is_tensor = isinstance(tensor, torch.Tensor)
    return int(StorageWeakRef(tensor.untyped_storage()).cdata) if is_tensor else 0  # type: ignore[no-untyped-call]


def bytes_of(tensor: Any) -> int | None:
    """Return the size of a storage, and nothing of a number or where it depends on a symbol."""
    size: Any = tensor.untyped_storage().nbytes() if isinstance(tensor, torch.Tensor) else None
    return size if type(size) is int else None


class _Names:
    """Gives modules and tensors the names that they have in the eager graph.

    The call may make modules anew. The outermost that are called are found by their classes, in the order of calls.
    """

    def __init__(self, target: Traced) -> None:
        modules = target.modules
        self._paths = {id(module): path for module, path in modules.paths.items()}
        self._owned = {id(each.tensor): each for each in modules.owned}
        self._by_name = {name: each for each in modules.owned for name in each.names}
        self._waiting = [(type(each), modules.paths[each]) for each in target.called if each in modules.paths]
        self._roots: dict[str, str] = {}

    def forget_texts(self) -> None:
        """Forget what Dynamo calls the modules of one graph, which it may call others in the next."""
        self._roots = {}

    def stack(self, stack: Mapping[str, Any]) -> dict[str, Any]:
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
        known = self._known(bare)
        fitting = None if known is not None else next((each for each in self._waiting if each[0] is kind), None)
        if fitting is not None:
            self._waiting.remove(fitting)
            return fitting[1]
        return known or bare.partition(".")[2].partition(".")[2]

    def _known(self, bare: str) -> str | None:
        root = next((above for above in paths_above(bare) if above in self._roots), None)
        return None if root is None else below(self._roots[root], bare[len(root) + 1 :])

    def input(self, source: str, tensor: object) -> tuple[str, tuple[str, ...]]:
        bare = bare_path(source)
        owned = self._owned.get(id(tensor)) or self._by_name.get(self._known(bare) or "")
        if owned is not None:
            return "parameter" if owned.is_parameter else "buffer", owned.names
        # Dynamo begins the names that it makes up itself with underscores.
        name = _VARIABLE.fullmatch(bare)
        return "input", (name[1],) if name is not None else ()


class _Backend:
    """A backend of ``torch.compile`` that notes what it is given and runs it as it is."""

    def __init__(self, names: _Names | None, *, compiles: bool) -> None:
        """``compiles`` asks for what Inductor is given: with its decompositions, and its partitioner alone."""
        self.found: list[Region] = []
        self._names, self._compiles = names, compiles
        self._options: dict[str, Any] = {}
        self._partitioners: dict[str, Callable[..., Any]] = {"default": default_partition, "min-cut": min_cut}
        if compiles:
            # Inductor takes seconds to load.
            from torch._inductor.decomposition import select_decomp_table

            self._options["decompositions"] = select_decomp_table()
            self._partitioners = {"inductor": min_cut}

    def __call__(self, module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., object]:
        from torch._dynamo.backends.common import aot_autograd

        # Values of several graphs get into one program only where the parts of compiled code are captured.
        start = f"region{len(self.found) + 1}." if self.found and self._compiles else ""
        region = Region(start, getattr(module, "compile_subgraph_reason", None))
        self.found.append(region)
        places = [node for node in module.graph.nodes if node.op == "placeholder"]
        read = partial(self._read, region, [*zip(places, inputs, strict=True)])

        def take(graph: fx.GraphModule, _: object) -> Callable[..., object]:
            if not region.is_read:
                read(graph)
            return _run_as_it_is(graph, _)

        def partition(joint: fx.GraphModule, joint_inputs: Any, **options: Any) -> Any:
            read(joint)
            parts: Any = None
            for name, partitioner in self._partitioners.items():
                parts = partitioner(joint, joint_inputs, **options)
                region.note(name, options["num_fwd_outputs"], parts)
            return parts

        compiler = aot_autograd(fw_compiler=take, bw_compiler=_run_as_it_is, partition_fn=partition, **self._options)
        # The LSTM of oneDNN has None for a workspace, which AOTAutograd cannot save.
        try:
            with torch.backends.mkldnn.flags(False, None, None, None):
                compiled = compiler(module, inputs)
        except Exception as error:
            # Dynamo runs the program without this graph.
            region.failure = plain_text(own_error(error))
            raise

        def run(*args: object) -> object:
            result = compiled(*args)
            if not region.returned:
                region.taken, region.returned = args, [*result]
            return result

        return run

    def _read(self, region: Region, given: Sequence[tuple[fx.Node, Any]], graph: fx.GraphModule) -> None:
        if self._names is not None:
            self._names.forget_texts()
            for part in graph.modules():
                for node in part.graph.nodes if isinstance(part, fx.GraphModule) else ():
                    for key in ("nn_module_stack", "fwd_nn_module_stack"):
                        if node.meta.get(key):
                            node.meta[key] = self._names.stack(node.meta[key])
            region.named = [self._names.input(_source(node), tensor) for node, tensor in given]
        region.read(graph)


def _run_as_it_is(graph: fx.GraphModule, _: object) -> Callable[..., object]:
    return make_boxed_func(graph.forward)


def _source(node: fx.Node) -> str:
    """Return what Dynamo calls an input: a text such as ``L['model']._parameters['weight']``."""
    name = getattr(getattr(node.meta.get("grapharg"), "source", None), "name", "")
    return str(name() if callable(name) else name)
