"""Trace a call with a backend of ``torch.compile``: each graph of Dynamo, as AOTAutograd differentiates it."""

from __future__ import annotations

import logging
import re
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext
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

from gradir.errors import CaptureError, SpecError
from gradir.frontends.export.fx import describe_inputs, program_of, stack_of
from gradir.frontends.export.program import Call, Input, Named, Part, Program, SavedOutput
from gradir.frontends.export.reading import bare_path
from gradir.frontends.pytorch.fake import replace_absent_devices
from gradir.frontends.pytorch.private import storage_handle
from gradir.frontends.pytorch.target import Traced, set_compile_stance
from gradir.frontends.texts import plain_text
from gradir.frontends.walks import join_paths, paths_above, replace_function
from gradir.spec import called, describe_error

_VARIABLE: Final = re.compile(r"[LG]\.((?!__)\w[\w.]*)")


def trace_call(target: Traced) -> tuple[list[Region], object]:
    """Run a call, and return its compiled graphs and its result."""
    backend = _Backend(_Names(target), compiles=target.compiles)
    inner = getattr(target.call, "func", target.call)
    log = logging.getLogger("torch._dynamo")
    level = log.level
    # gradir reports the graph breaks itself. Code that was compiled before would not reach this backend.
    log.setLevel(logging.ERROR)
    torch.compiler.reset()
    try:
        with warnings.catch_warnings(), replace_absent_devices() if target.is_fake else nullcontext():
            # AOTAutograd traces the backward in anomaly mode, which warns before an error is raised.
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
    """Raise CaptureError if AOTAutograd cannot differentiate one of the graphs."""
    failure = next((region.failure for region in found if region.failure), "")
    if failure:
        raise CaptureError(f"torch cannot trace the backward of this loss: {failure}") from None


def _run(target: Traced, backend: _Backend) -> object:
    if target.compiles:
        with set_compile_stance(force_backend=backend):
            return target.call()
    call = target.call
    inner, args, kwargs = (call.func, call.args, call.keywords) if isinstance(call, partial) else (call, (), {})
    from torch._dynamo import config

    # A call of a logger computes nothing, and would break the graph.
    logs = {each for each in vars(logging.Logger).values() if callable(each)}
    with ExitStack() as entered:
        # Without allow_rnn Dynamo ends its graph at an LSTM.
        entered.enter_context(config.patch(ignore_logger_methods=logs, allow_rnn=True))
        for kind in {type(module) for module in (*target.modules.roots.values(), *target.called)}:
            # Compiling the construction of a model takes longer than the model itself, and breaks the graph anyway.
            replace_function(entered, kind, "__init__", torch.compiler.disable(kind.__init__))  # type: ignore[no-untyped-call]
        return torch.compile(inner, backend=backend)(*args, **kwargs)


def region_of(program: Any) -> Region:
    """Trace the backward of an exported program on its example inputs."""
    name = type(program).__name__
    if getattr(program, "example_inputs", None) is None:
        raise CaptureError(f"a joint graph needs a function, or a module and its inputs, and {name} has none")
    from torch.utils._pytree import tree_leaves

    specs, known = program.graph_signature.input_specs, describe_inputs(program)
    tensors, examples = {**program.state_dict, **program.constants}, iter(tree_leaves(program.example_inputs))
    backend = _Backend(None, compiles=False)
    inputs = [next(examples) if spec.target is None else tensors[spec.target] for spec in specs]
    called(partial(backend, program.graph_module, inputs), f"tracing the backward of {name}")
    (region,) = backend.found
    region.described = [known.get(spec.arg.name, ("input", ())) for spec in specs]
    return region


class Region:
    """A graph of Dynamo after AOTAutograd. Its dicts use the numbers of Dynamo's inputs or outputs."""

    def __init__(self, prefix: str, reason: Any = None) -> None:
        """``prefix`` is the prefix of the names of its values."""
        self._prefix, self.reason = prefix, reason
        self.compiled_as = str(CompileContext.current_compile_id() or "")
        self.program = Program(Part([], [], []), {})
        self.is_read, self.failure = False, ""
        self.described: Sequence[tuple[str, tuple[str, ...]]] = ()
        # The values of its first run.
        self.first_inputs, self.first_outputs = tuple[Any, ...](), list[Any]()
        # The values that each partitioner saves. It is empty if no value needs a gradient.
        self.saved: dict[str, list[str]] = {}
        self.places, self.tangents = dict[int, str](), dict[int, str]()
        self.outputs = dict[str, tuple[str, int]]()
        self.results, self.gradients = dict[int, Named](), dict[int, Named]()
        self.writes: list[tuple[str, str]] = []
        self._recomputed: set[str] = set()

    def read(self, graph: fx.GraphModule) -> None:
        """Read a graph of AOTAutograd before a partitioner changes it."""
        nodes = [*graph.graph.nodes]
        sums = dict.fromkeys(node for node in nodes if node.meta.get("is_gradient_acc"))
        _place_sums([*sums])
        self.program, self.is_read = program_of(graph, self._prefix), True
        places = [node for node in nodes if node.op == "placeholder"]
        names = self._read_places(places)
        self._read_ends(zip(nodes[-1].meta["desc"], self.program.part.outputs, strict=True), names)
        # A sum of gradients has the number of some operation before it.
        self._numbers = {self._name(node): None if node in sums else node.meta.get("seq_nr") for node in nodes}
        tangents = {*self.tangents.values()}
        self._backward = set[str]()
        for node in nodes:
            # The backward of a custom function has no tag.
            takes = {*map(self._name, node.all_input_nodes)}
            is_tagged = node.meta.get("partitioner_tag") in {"is_backward", "must_be_in_backward"}
            if is_tagged or not (takes.isdisjoint(tangents) and takes.isdisjoint(self._backward)):
                self._backward.add(self._name(node))
        self.tensors = {self._name(node): node.meta.get("val") for node in nodes}
        for node in (each for each in nodes if each.op == "call_function"):
            source, number = node.args[:2] if node.target is getitem else (node, 0)
            self.outputs[self._name(node)] = self._name(source), number
            self.tensors[f"{self._name(source)}[{number}]"] = node.meta.get("val")
        self._owned = {storage_of(node.meta.get("val")) for node in places}

    def _name(self, node: fx.Node) -> str:
        return self._prefix + node.name

    def _read_places(self, places: Sequence[fx.Node]) -> dict[Any, str]:
        names = {node.meta["desc"]: self._name(node) for node in places}
        for origin, name in names.items():
            if type(origin).__name__ == "PlainAOTInput":
                self.places[origin.idx] = name
            elif type(origin).__name__ == "TangentAOTInput":
                self.tangents[getattr(origin.output, "idx", -1)] = name
        return names

    def _read_ends(self, ends: Iterable[tuple[Any, Any]], names: Mapping[Any, str]) -> None:
        for origin, value in (end for end in ends if isinstance(end[1], Named)):
            match type(origin).__name__:
                case "InputMutationAOTOutput":
                    self.writes.append((names[origin.mutated_input], value.name))
                case "GradAOTOutput":
                    self.gradients[getattr(origin.grad_of, "idx", -1)] = value
                case _:
                    self.results[getattr(origin, "idx", len(self.results))] = value

    def record_partition(self, partitioner: str, count: int, parts: tuple[fx.GraphModule, fx.GraphModule]) -> None:
        """Record the values that a partitioner saves. The last one decides which values are recomputed."""
        (ends,) = (node.args[0] for node in parts[0].graph.nodes if node.op == "output")
        self.saved[partitioner] = [self._name(node) for node in ends[count:] if isinstance(node, fx.Node)]
        computed = {self._name(node) for node in parts[1].graph.nodes if node.op == "call_function"}
        self._recomputed = computed - self._backward

    def inputs(self) -> Iterator[tuple[str, Input]]:
        """Yield the tensors among the inputs by their names."""
        numbers = {name: number for number, name in self.places.items()}
        tangents = {*self.tangents.values()}
        for name, known in self.program.inputs.items():
            number = numbers.get(name, -1)
            role, names = self.described[number] if number >= 0 else ("input", (name,) if name in tangents else ())
            yield name, known._replace(role=role, names=names, trainable=number in self.gradients)

    def calls(self) -> Iterator[Call]:
        """Yield the operations with their saved outputs, and those of the backward with their forward operation."""
        slots: defaultdict[str, dict[int, SavedOutput]] = defaultdict(dict)
        states = dict.fromkeys(next(reversed(self.saved.values()), ()), "held")
        # A view of a storage that exists anyway takes no memory and no time.
        existing = self._owned | {storage_of(self.tensors[name]) for name in states}
        recomputed = [name for name in self._numbers if name in self._recomputed]
        recomputed = [name for name in recomputed if storage_of(self.tensors[name]) not in existing]
        for name, state in {**dict.fromkeys(recomputed, "recomputed"), **states}.items():
            if name in self.outputs and isinstance(self.tensors[name], torch.Tensor):
                maker, number = self.outputs[name]
                size = bytes_of(self.tensors[name]) if state == "held" else None
                slots[maker][number] = SavedOutput(number, size, state)
        for call in self.program.part.calls:
            name = call.makes[0].partition("[")[0] if call.makes else ""
            saved = [slot for _, slot in sorted(slots[name].items())]
            yield call._replace(number=self._numbers.get(name), is_backward=name in self._backward, saved=saved)


def _place_sums(sums: Sequence[fx.Node]) -> None:
    """Put each sum of gradients into the modules that its last summand and its user share, since torch states none."""
    users = dict[fx.Node, Mapping[str, Any]]()
    for node in reversed(sums):
        user = next(iter(node.users))
        users[node] = users[user] if user in users else stack_of(user)
    for node in sums:
        pairs = zip(stack_of(node.all_input_nodes[-1]).items(), users[node].items(), strict=False)
        node.meta["fwd_nn_module_stack"] = dict(one for one, _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def storage_of(tensor: Any) -> int:
    """Return a number that tensors of one storage share, and 0 for any other value."""
    return storage_handle(tensor.untyped_storage()) if isinstance(tensor, torch.Tensor) else 0


def bytes_of(tensor: Any) -> int | None:
    """Return the size of a tensor's storage, or None if it is symbolic or the value is no tensor."""
    size: Any = tensor.untyped_storage().nbytes() if isinstance(tensor, torch.Tensor) else None
    return size if type(size) is int else None


class _Names:
    """Gives modules and tensors the names that they have in the eager graph.

    The call may make its modules again. Their roots are then found by class, in the order of calls.
    """

    def __init__(self, target: Traced) -> None:
        modules = target.modules
        self._paths = {id(module): path for module, path in modules.paths.items()}
        self._owned = {id(each.tensor): each for each in modules.owned}
        self._by_name = {name: each for each in modules.owned for name in each.names}
        self._waiting = [(type(each), modules.paths[each]) for each in target.called if each in modules.paths]
        self.roots: dict[str, str] = {}

    def rename_stack(self, stack: Mapping[str, Any]) -> dict[str, Any]:
        found = {}
        for key, (text, kind) in stack.items():
            number, _, call = str(key).partition("@")
            bare = bare_path(text.partition("@")[0])
            identity = int(number) if number.isdecimal() else 0
            if identity not in self._paths:
                self._paths[identity] = self._find_path(bare, kind)
            path = self._paths[identity]
            self._record_roots(bare, path)
            found[f"{path}@{call}"] = path, kind
        return found

    def _record_roots(self, bare: str, path: str) -> None:
        """Record Dynamo's name of a module, and of the modules above it. In a frame, ``self`` is a root."""
        while bare and bare not in self.roots:
            self.roots[bare] = path
            (bare, _, inner), (path, _, last) = bare.rpartition("."), path.rpartition(".")
            if inner != last:
                return

    def _find_path(self, bare: str, kind: Any) -> str:
        path = self._path_from_root(bare)
        called = next((each for each in self._waiting if path is None and each[0] is kind), None)
        if called is not None:
            self._waiting.remove(called)
            return called[1]
        return path or bare.partition(".")[2].partition(".")[2]

    def _path_from_root(self, bare: str) -> str | None:
        root = next((above for above in paths_above(bare) if above in self.roots), None)
        return None if root is None else join_paths(self.roots[root], bare[len(root) + 1 :])

    def describe_input(self, source: str, tensor: object) -> tuple[str, tuple[str, ...]]:
        """Return the role and the names of an input."""
        bare = bare_path(source)
        owned = self._owned.get(id(tensor)) or self._by_name.get(self._path_from_root(bare) or "")
        if owned is not None:
            return "parameter" if owned.is_parameter else "buffer", owned.names
        # Names that Dynamo invents start with underscores.
        name = _VARIABLE.fullmatch(bare)
        return "input", (name[1],) if name is not None else ()


class _Backend:
    """A backend of ``torch.compile`` that records its graphs and runs them unchanged."""

    def __init__(self, names: _Names | None, *, compiles: bool) -> None:
        """If it ``compiles``, use Inductor's decompositions and its partitioner only."""
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

        # Only a capture of compiled parts puts the values of several graphs into one program.
        prefix = f"region{len(self.found) + 1}." if self.found and self._compiles else ""
        region = Region(prefix, getattr(module, "compile_subgraph_reason", None))
        self.found.append(region)
        places = [node for node in module.graph.nodes if node.op == "placeholder"]
        read = partial(self._read, region, [*zip(places, inputs, strict=True)])

        def compile_forward(graph: fx.GraphModule, _: object) -> Callable[..., object]:
            if not region.is_read:
                read(graph)
            return _keep_unchanged(graph, _)

        def partition(joint: fx.GraphModule, joint_inputs: Any, **options: Any) -> Any:
            read(joint)
            parts: Any = None
            for name, partitioner in self._partitioners.items():
                parts = partitioner(joint, joint_inputs, **options)
                region.record_partition(name, options["num_fwd_outputs"], parts)
            return parts

        compiler = aot_autograd(
            fw_compiler=compile_forward, bw_compiler=_keep_unchanged, partition_fn=partition, **self._options
        )
        # The LSTM of oneDNN has no workspace but None, which AOTAutograd cannot save.
        try:
            with torch.backends.mkldnn.flags(False, None, None, None):
                compiled = compiler(module, inputs)
        except Exception as error:
            # Dynamo runs the program without this graph.
            region.failure = plain_text(describe_error(error))
            raise

        def run(*args: object) -> object:
            result = compiled(*args)
            if not region.first_outputs:
                region.first_inputs, region.first_outputs = args, [*result]
            return result

        return run

    def _read(self, region: Region, inputs: Sequence[tuple[fx.Node, Any]], graph: fx.GraphModule) -> None:
        if self._names is not None:
            # The next graph may reuse Dynamo's names of modules.
            self._names.roots.clear()
            for part in graph.modules():
                for node in part.graph.nodes if isinstance(part, fx.GraphModule) else ():
                    for key in ("nn_module_stack", "fwd_nn_module_stack"):
                        if node.meta.get(key):
                            node.meta[key] = self._names.rename_stack(node.meta[key])
            region.described = [self._names.describe_input(_source(node), tensor) for node, tensor in inputs]
        region.read(graph)


def _keep_unchanged(graph: fx.GraphModule, _: object) -> Callable[..., object]:
    return make_boxed_func(graph.forward)


def _source(node: fx.Node) -> str:
    """Return Dynamo's name of an input, such as ``L['model']._parameters['weight']``."""
    name = getattr(getattr(node.meta.get("grapharg"), "source", None), "name", "")
    return str(name() if callable(name) else name)
