"""Every private name of torch's stands in one table, and the installed torch has them."""

from __future__ import annotations

import ast
import fnmatch
import importlib.util
import mmap
import pkgutil
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from gradir.errors import CaptureError  # noqa: E402
from gradir.frontends.pytorch import private  # noqa: E402
from gradir.frontends.pytorch.private import NAMES, PrivateName  # noqa: E402

FRONTEND = Path(private.__file__).parent
VERSION = torch.torch_version.TorchVersion(torch.__version__)


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


def things() -> dict[str, Any]:
    """What names like ``grad_fn._sequence_nr`` are asked of."""
    x = torch.ones(2, requires_grad=True)
    return {
        "grad_fn": (x * x).grad_fn,
        "packed": (x * x).grad_fn._raw_saved_self,
        "context": Doubled.apply(x).grad_fn,
        "tensor": x,
        "storage": x.untyped_storage(),
        "module": torch.nn.Linear(1, 1),
        "operator": torch.ops.aten.add.Tensor,
    }


def has(name: str) -> bool:
    """Whether the installed torch has a name."""
    place, found, word = name.partition(":")
    if found and place.startswith("lib"):
        return any(map(holds(word.encode()), Path(torch.__file__).parent.glob(f"lib/*{place.removeprefix('lib')}.*")))
    if found:
        return bool(re.search(rf"\b{word}", source(place)))
    thing, _, attribute = name.partition(".")
    if thing in things():
        return bool(fnmatch.filter(dir(things()[thing]), attribute))
    try:
        pkgutil.resolve_name(name)
    except (AttributeError, ImportError):
        return False
    return True


def holds(text: bytes) -> Callable[[Path], bool]:
    def check(path: Path) -> bool:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return content.find(text) >= 0

    return check


def source(module: str) -> str:
    try:
        found = importlib.util.find_spec(module)
    except ModuleNotFoundError:
        return ""
    return "" if found is None or found.origin is None else Path(found.origin).read_text(encoding="utf-8")


def what_is_wrong(entry: PrivateName) -> str:
    """What the installed torch has otherwise than the table says, empty if nothing."""
    since, until = entry.since or "0", entry.until or "999"
    expected = since <= VERSION < until
    if has(entry.name) is expected:
        return ""
    verb = "has no" if expected else "has"
    return f"torch {VERSION} {verb} {entry.name}, used {entry.use}; without it {entry.without}"


@pytest.mark.parametrize("entry", NAMES, ids=[entry.name for entry in NAMES])
def test_the_installed_torch_has_each_name_as_the_table_says(entry: PrivateName) -> None:
    assert entry.use.startswith("to ")
    assert entry.without
    assert not what_is_wrong(entry)


@pytest.mark.parametrize(
    "name",
    [
        "torch._C._autograd._get_gone",
        "torch._gone.thing",
        "grad_fn._gone",
        "context._gone",
        "tensor._gone",
        "module._gone",
        "torch.utils.checkpoint:_Gone",
        "torch._gone:thing",
        "libtorch_python:GoneFromThere",
    ],
)
def test_a_name_that_a_release_dropped_is_reported(name: str) -> None:
    wrong = what_is_wrong(PrivateName(name, "to see", "nothing is seen"))
    assert wrong == f"torch {VERSION} has no {name}, used to see; without it nothing is seen"
    assert not what_is_wrong(PrivateName(name, "to see", until="2.5"))
    assert not what_is_wrong(PrivateName(name, "to see", since="99"))


def test_a_name_that_a_release_did_not_drop_is_reported() -> None:
    wrong = what_is_wrong(PrivateName("tensor._version", "to see", until="2.5"))
    assert wrong.startswith(f"torch {VERSION} has tensor._version, ")


def test_an_error_names_features_missing_in_this_torch() -> None:
    known = list(NAMES)
    try:
        with pytest.raises(CaptureError) as error:
            private._find("torch._C._gone", "to see")
    finally:
        NAMES[:] = known
    assert str(error.value) == (
        f"torch {torch.__version__} has no torch._C._gone, which is needed to see: "
        "use an older torch, or a newer gradir"
    )


def test_the_node_of_a_custom_function_has_its_number_as_the_table_says() -> None:
    numbers = []

    class Probe(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

    class Node(Probe._backward_cls):
        def __init__(self):
            numbers.append(private.next_sequence_number())

    Probe._backward_cls = Node
    made = Probe.apply(torch.ones(1, requires_grad=True))
    assert private.sequence_number(made.grad_fn) == numbers[0] - private.NUMBERED_FIRST


def test_the_code_objects_to_find_in_a_stack_exist() -> None:
    assert private.MODULE_CALL is not None
    assert private.OVERRIDES_CALL is not None


def test_the_code_of_a_custom_function_is_reported_where_torch_runs_none_above_it() -> None:
    class Decorated(torch.autograd.Function):
        @staticmethod
        @torch.no_grad()
        def forward(ctx, x):
            return x * 2

    assert private._forward_of(Doubled.forward.__code__) == "Doubled"
    assert private._forward_of(Decorated.forward.__wrapped__.__code__) == "Decorated"
    # What the decorator runs is around other functions too.
    assert not private._forward_of(Decorated.forward.__code__)
    assert not private._forward_of(torch.nn.Linear.forward.__code__)


OURS = {"_replace", "_current_frames", "_getframe"}
"""Names of NamedTuple and of sys."""

PRIVATE_PATH = re.compile(r"torch\.(\w+\.)*_[a-zA-Z].*")
PRIVATE = re.compile(
    rf"^_[a-z]\w*$|^\w+Backward$|^AccumulateGrad$|(?:torch|autograd)::.*|{PRIVATE_PATH.pattern.replace('(', '(?:')}"
)


def private_names_in(code: str) -> Iterator[str]:
    """The names of torch's in a module that look private: attributes, imports and texts."""
    tree = ast.parse(code)
    # Not what is put together of pieces, which may be anything.
    skipped = {id(piece) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for piece in node.values}
    skipped |= {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    set_here = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and is_self(node.value) and isinstance(node.ctx, ast.Store)
    } | {node.name for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr) and node.attr not in OURS | set_here:
            yield node.attr
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from imported(node)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
            yield from PRIVATE.findall(node.value)


def imported(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    module = getattr(node, "module", None)
    for alias in node.names:
        path = f"{module}.{alias.name}" if module else alias.name
        if PRIVATE_PATH.match(path):
            yield path


def is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in {"self", "cls"}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


MODULES = sorted(path for path in FRONTEND.rglob("*.py") if path != Path(private.__file__))


@pytest.mark.parametrize("path", MODULES, ids=[path.relative_to(FRONTEND).as_posix() for path in MODULES])
def test_no_module_has_a_private_name_of_its_own(path: Path) -> None:
    assert not list(private_names_in(path.read_text(encoding="utf-8")))


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("import torch\nnumber = torch._C._current_graph_task_id()", "_current_graph_task_id"),
        ("def read(fn):\n    return fn._sequence_nr()", "_sequence_nr"),
        ("def read(t):\n    return getattr(t, '_version', None)", "_version"),
        ("class Mode(Base):\n    def read(self):\n        return self._converter", "_converter"),
        ("from torch.utils import _pytree", "torch.utils._pytree"),
        ("from torch._ops import OpOverload", "torch._ops.OpOverload"),
        ("import torch._functorch.config", "torch._functorch.config"),
        ("def opaque(fn):\n    return type(fn).__name__ == 'CheckpointFunctionBackward'", "CheckpointFunctionBackward"),
        ("EVENT = 'autograd::engine::evaluate_function: '", "autograd::engine::evaluate_function: "),
        ("OWN = 'torch._functorch.'", "torch._functorch."),
    ],
)
def test_a_private_name_in_a_module_is_found(code: str, name: str) -> None:
    assert name in list(private_names_in(code))


def test_every_private_name_is_used() -> None:
    tree = ast.parse(Path(private.__file__).read_text(encoding="utf-8"))
    defined = {
        target.id
        for node in tree.body
        for target in ([node.target] if isinstance(node, ast.AnnAssign) else [])
        if isinstance(target, ast.Name)
    } | {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    nodes = [node for path in MODULES for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
    imports = [node for node in nodes if isinstance(node, ast.ImportFrom) and node.module == private.__name__]
    taken = {alias.name for node in imports for alias in node.names}
    taken |= {
        node.attr
        for node in nodes
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "private"
    }
    assert taken == {name for name in defined - {"NAMES"} if not name.startswith("_")}
