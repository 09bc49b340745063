"""Which module runs what: the same whatever ran before, in whichever thread, and wherever a module stands."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

for package in ("jax", "flax", "equinox"):
    pytest.importorskip(package)

import equinox as eqx  # noqa: E402
import flax.linen as nn  # noqa: E402
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import jax_told  # noqa: E402
from flax import nnx  # noqa: E402

import gradir  # noqa: E402
from gradir.cli import main  # noqa: E402

KEY = jax.random.key(0)
X = jnp.ones((4, 8))


class Linen(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        return nn.Dense(8, name="b")(jnp.tanh(nn.Dense(8, name="a")(x)))


class Coder(nn.Module):
    def setup(self) -> None:
        self.a = nn.Dense(8)

    def encode(self, x: Any) -> Any:
        return jnp.tanh(self.a(x))


class Nnx(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.a, self.b = nnx.Linear(8, 8, rngs=rngs), nnx.Linear(8, 8, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        return self.b(jnp.tanh(self.a(x)))

    def encode(self, x: Any) -> Any:
        return jnp.tanh(self.a(x))


class Counting(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.a = nnx.Linear(8, 8, rngs=rngs)
        self.seen = nnx.BatchStat(jnp.full((4, 8), 2, jnp.float32))

    def __call__(self, x: Any) -> Any:
        return self.a(x) * self.seen[...]


class Equinox(eqx.Module):
    a: eqx.nn.Linear
    b: eqx.nn.Linear

    def __init__(self, key: Any) -> None:
        self.a, self.b = (eqx.nn.Linear(8, 8, key=each) for each in jax.random.split(key))

    def __call__(self, x: Any) -> Any:
        return self.b(jnp.tanh(self.a(x)))

    def encode(self, x: Any) -> Any:
        return jnp.tanh(self.a(x))


LINEN = Linen()
VARIABLES = LINEN.init(KEY, X)


def modules(graph: gradir.Graph) -> dict[str, tuple[str, int]]:
    return {path: (scope.class_name, scope.calls) for path, scope in graph.scopes.items()}


def homes(graph: gradir.Graph) -> set[str]:
    """The scopes of operations and of the parameters."""
    return {node.scope for node in graph.nodes.values() if node.role in ("function", "parameter")}


def calls_of(root: str, layer: str) -> dict[str, tuple[str, int]]:
    return {"": (root, 1), "a": (layer, 1), "b": (layer, 1)}


def split_nnx() -> tuple[Callable[..., Any], Any]:
    definition, state = nnx.split(Nnx(nnx.Rngs(0)))
    return lambda state, x: nnx.merge(definition, state)(x).sum(), state


def split_equinox() -> tuple[Callable[..., Any], Any]:
    arrays, rest = eqx.partition(Equinox(KEY), eqx.is_array)
    return lambda arrays, x: jax.vmap(eqx.combine(arrays, rest))(x).sum(), arrays


PROGRAMS: dict[str, tuple[Callable[[], tuple[Callable[..., Any], Any]], str, str]] = {
    "linen": (lambda: (lambda v, x: LINEN.apply(v, x).sum(), VARIABLES), "Linen", "Dense"),
    "nnx": (split_nnx, "Nnx", "Linear"),
    "equinox": (split_equinox, "Equinox", "Linear"),
}


@pytest.mark.parametrize("library", PROGRAMS)
@pytest.mark.parametrize("transformed", [jax.jit, jax.checkpoint], ids=["jit", "checkpoint"])
def test_earlier_calls_of_the_program_do_not_change_the_capture(library: str, transformed: Callable[..., Any]) -> None:
    make, root, layer = PROGRAMS[library]
    fn, params = make()
    compiled = transformed(fn)
    compiled(params, X)
    jax.make_jaxpr(compiled)(params, X)
    graphs = [gradir.capture(compiled, params, X) for _ in range(3)]
    assert modules(graphs[0]) == calls_of(root, layer)
    assert graphs[0] == graphs[1] == graphs[2]


def test_a_capture_leaves_nothing_in_compiled_code() -> None:
    fn, state = split_nnx()
    compiled = jax.jit(fn)
    before = compiled.lower(state, X).as_text()
    gradir.capture(compiled, state, X)
    assert jax.jit(split_nnx()[0]).lower(state, X).as_text() == before
    assert str(Path(gradir.__file__).parent) not in compiled.lower(state, X).as_text(debug_info=True)


def test_captures_in_threads_are_those_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = (nnx.Linear, Nnx, Equinox, eqx.nn.Linear)
    before = [kind.__call__ for kind in kinds]
    model, other = Nnx(nnx.Rngs(0)), Equinox(KEY)
    expected = [gradir.capture(model, X), gradir.capture(other, X[0])]
    found: list[list[gradir.Graph]] = []
    start = threading.Barrier(5)

    def capture() -> None:
        own = Nnx(nnx.Rngs(0))
        start.wait()
        found.extend([gradir.capture(own, X), gradir.capture(other, X[0])] for _ in range(3))

    def use() -> None:
        own = Nnx(nnx.Rngs(0))
        start.wait()
        used.extend(float(own(X).sum()) for _ in range(20))

    used: list[float] = []
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=each) for each in (capture, capture, capture, capture, use)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert len(found) == 12
    assert all(each == expected for each in found)
    assert len(set(used)) == 1
    assert [kind.__call__ for kind in kinds] == before


def test_a_replaced_call_method_stays_replaced() -> None:
    class Own(nnx.Module):
        def __init__(self) -> None:
            self.w = nnx.Param(jnp.ones(8))

        def __call__(self, x: Any) -> Any:
            Own.__call__ = other
            return x * self.w

    def other(self: Any, x: Any) -> Any:
        return x

    gradir.capture(lambda model, x: model(x).sum(), Own(), X)
    assert Own.__call__ is other


def test_a_trace_in_a_trace_notes_its_own_modules() -> None:
    inner: list[gradir.Graph] = []
    model = Nnx(nnx.Rngs(0))
    definition, state = nnx.split(model)

    def outer(model: Any, x: Any) -> Any:
        inner.append(gradir.capture(lambda state, x: nnx.merge(definition, state)(x).sum(), state, X))
        return model(x).sum()

    graph = gradir.capture(outer, model, X)
    assert modules(graph) == modules(inner[0]) == calls_of("Nnx", "Linear")


def gan(p: Any, x: Any) -> Any:
    return LINEN.apply(p["d"], LINEN.apply(p["g"], x)).sum()


def teacher(module: Any, other: Any, x: Any) -> Any:
    return ((module(x) - jax.lax.stop_gradient(other(x))) ** 2).sum()


def linen_teacher(p: Any, other: Any, x: Any) -> Any:
    return ((LINEN.apply(p, x) - LINEN.apply(other, x)) ** 2).sum()


@pytest.mark.parametrize(
    ("fn", "args", "argnums", "roots", "kind"),
    [
        (gan, ({"d": VARIABLES, "g": VARIABLES}, X), 0, ["d.params", "g.params"], "Linen"),
        (linen_teacher, (VARIABLES, VARIABLES, X), 0, ["", "other"], "Linen"),
        (linen_teacher, (VARIABLES, VARIABLES, X), (0, 1), ["p", "other"], "Linen"),
        (lambda d, x: d["t"](d["s"](x)).sum(), ({"s": Nnx(nnx.Rngs(0)), "t": Nnx(nnx.Rngs(1))}, X), 0, "st", "Nnx"),
        (teacher, (Nnx(nnx.Rngs(0)), Nnx(nnx.Rngs(1)), X), (0, 1), ["module", "other"], "Nnx"),
        (lambda d, x: d[1](d[0](x)).sum(), ((Equinox(KEY), Equinox(KEY)), X[0]), 0, "01", "Equinox"),
        (teacher, (Equinox(KEY), Equinox(KEY), X[0]), (1, 0), ["module", "other"], "Equinox"),
    ],
)
def test_each_of_two_modules_has_its_own_place(
    fn: Callable[..., Any], args: tuple[Any, ...], argnums: Any, roots: Any, kind: str
) -> None:
    graph = gradir.capture(fn, *args, argnums=argnums)
    layer = "Dense" if kind == "Linen" else "Linear"
    found = modules(graph)
    for root in roots:
        start = f"{root}." if root else ""
        assert (found[root], found[f"{start}a"], found[f"{start}b"]) == ((kind, 1), (layer, 1), (layer, 1))
    below = {f"{root}." if root else "" for root in roots}
    parameters = [node for node in graph.nodes.values() if node.role == "parameter"]
    assert {f"{node.scope}." for node in parameters} <= {start + layer for start in below for layer in ("a.", "b.")}
    assert all(found[node.scope][1] for node in parameters)


@pytest.mark.parametrize(
    ("fn", "args", "kind"),
    [
        (lambda p, x: Coder().apply(p, x, method="encode").sum(), (Coder().init(KEY, X, method="encode"), X), "Coder"),
        (lambda m, x: m.encode(x).sum(), (Nnx(nnx.Rngs(0)), X), "Nnx"),
        (lambda m, x: m.encode(x).sum(), (Equinox(KEY), X[0]), "Equinox"),
    ],
    ids=["linen", "nnx", "equinox"],
)
def test_a_module_that_runs_by_another_method_is_the_root(
    fn: Callable[..., Any], args: tuple[Any, ...], kind: str
) -> None:
    graph = gradir.capture(fn, *args)
    assert (modules(graph)[""], modules(graph)["a"][1]) == ((kind, 0), 1)
    assert {node.scope: node.op for node in graph.nodes.values() if node.op == "tanh"} == {"": "tanh"}


def test_named_scopes_of_the_program_are_below_its_modules() -> None:
    class Named(nnx.Module):
        def __init__(self, rngs: nnx.Rngs) -> None:
            self.a = nnx.Linear(8, 8, rngs=rngs)

        def __call__(self, x: Any) -> Any:
            with jax.named_scope("shape"):
                return jnp.sin(self.a(jnp.cos(x) * x))

    def loss(model: Any, x: Any) -> Any:
        with jax.named_scope("loss"):
            return (model(x) ** 2).sum()

    graph = gradir.capture(loss, Named(nnx.Rngs(0)), X)
    found = {node.op: node.scope for node in graph.nodes.values() if node.role == "function"}
    assert (found["sin"], found["dot_general"], found["reduce_sum"]) == ("shape", "a", "loss")


def test_names_that_no_scope_may_have_are_paths() -> None:
    names = ["a/b", "x->y", "gradir module 0", "λ"]
    given = {name: Nnx(nnx.Rngs(0)) for name in names}
    graph = gradir.capture(lambda d, x: sum(d[name](x).sum() for name in names), given, X)
    assert {f"{name}.a" for name in names} <= homes(graph)
    assert gradir.loads(gradir.dumps(graph)) == graph


@pytest.mark.parametrize("library", ["linen", "nnx", "equinox"])
def test_operations_of_a_librarys_layer_have_the_line_that_calls_it(library: str) -> None:
    kind = {"linen": Linen, "nnx": Nnx, "equinox": Equinox}[library]
    make, _, _ = PROGRAMS[library]
    graph = gradir.capture(*make(), X)
    line = kind.__call__.__wrapped__.__code__ if hasattr(kind.__call__, "__wrapped__") else kind.__call__.__code__
    found = [node.source for node in graph.nodes.values() if node.scope in ("a", "b") and node.role == "function"]
    assert found
    assert all(source is not None and Path(source.file).name == Path(__file__).name for source in found)
    assert {source.line for source in found if source is not None} <= {line.co_firstlineno + 1, line.co_firstlineno + 2}


def test_only_parameters_are_differentiated() -> None:
    model = Counting(nnx.Rngs(0))
    variables = {"params": VARIABLES["params"], "statistics": {"a": jnp.ones(8)}}
    for fn, args, start in (
        (lambda m, x: m(x).sum(), (model, X), ""),
        (lambda d, x: d["net"](x).sum(), ({"net": model}, X), "net."),
    ):
        graph = gradir.capture(fn, *args)
        names = sorted(f"{start}{name}" for name in ("a.bias", "a.kernel"))
        assert jax_told.names(graph, "parameter") == " ".join(names)
        assert jax_told.names(graph, "input") == " ".join(sorted((f"{start}seen", "x")))
        assert gradir.verify(fn, *args).mismatches == ()
    assert gradir.explain(LINEN, variables, X).statuses.keys() == {f"{m}.{p}" for m in "ab" for p in ("bias", "kernel")}


def test_a_watch_that_cannot_be_entered_leaves_classes_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    from contextlib import contextmanager

    from gradir.frontends.jax.modules import prepare

    before = Nnx.__call__
    _, watch = prepare(lambda m, x: m(x).sum(), (Nnx(nnx.Rngs(0)), X), {0: None})

    @contextmanager
    def broken() -> Any:
        assert Nnx.__call__ is not before
        raise OSError("cannot be entered")
        yield

    watch.add(broken)
    with pytest.raises(OSError, match="cannot"), watch:
        pass
    assert Nnx.__call__ is before


def test_verify_says_that_it_only_traced() -> None:
    many = jax.ShapeDtypeStruct((2**15, 2**14), jnp.float32)
    with pytest.warns(gradir.GradirWarning, match="verified by tracing alone.* more than 268,435,456"):
        assert gradir.verify(lambda w, x: (x @ w).sum(), many, jax.ShapeDtypeStruct((2, 2**15), jnp.float32))


def test_numbers_of_attention_are_drawn() -> None:
    from gradir.frontends.jax.arguments import draw_leaves

    shapes = [((2, 2), jnp.int32), ((2,), jnp.bool_), ((), jnp.int32), ((0,), jnp.int32)]
    found = draw_leaves([jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in shapes])
    assert [each.tolist() for each in found] == [[[1, 0], [1, 0]], [True, False], 1, []]
    assert [(each.shape, each.dtype) for each in found] == shapes


SPECS = """
import equinox, jax, jax.numpy as jnp
from flax import linen, nnx

class Normed(linen.Module):
    @linen.compact
    def __call__(self, params):
        x = linen.Dropout(0.5, deterministic=False)(linen.Dense(4, name="a")(params))
        return linen.BatchNorm(use_running_average=False, name="bn")(x)

class Plain(nnx.Module):
    def __init__(self):
        self.w = nnx.Param(jnp.ones(4))
    def __call__(self, model, module):
        return model * self.w + module

class Derived(Plain):
    pass

class Fixed(equinox.Module):
    w: jax.Array

    def __init__(self):
        self.w = jnp.ones(4)
    def __call__(self, model, module):
        return model * self.w + module

print(jax.grad(lambda w: (w**2).sum())(jnp.ones(3)))
"""


@pytest.mark.parametrize(
    ("name", "arguments", "parameters"),
    [
        ("Normed", ["params"], "a.bias a.kernel bn.bias bn.scale"),
        *((name, ["model", "module"], "w") for name in ("Plain", "Derived", "Fixed")),
    ],
)
def test_a_class_of_modules_is_made_and_applied_as_it_needs(
    name: str, arguments: list[str], parameters: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "specs.py").write_text(SPECS)
    monkeypatch.chdir(tmp_path)
    program = [f"specs.py:{name}", *(f"--input={argument}=float32[2,4]" for argument in arguments)]
    assert main(["capture", *program, "--seed", "3", "--verify", "-o", "a.gir"]) == 0
    assert jax_told.names(gradir.load("a.gir"), "parameter") == parameters
    assert main(["explain", *program]) == 0


class TakesTwo(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.a = nnx.Linear(8, 8, rngs=rngs)

    def __call__(self, tokens: Any, mask: Any = None) -> Any:
        return self.a(tokens) * mask


class EquinoxTakesTwo(eqx.Module):
    w: Any

    def __call__(self, tokens: Any, mask: Any, *, key: Any = None) -> Any:
        return tokens @ self.w * mask


class LinenTakesTwo(nn.Module):
    @nn.compact
    def __call__(self, tokens: Any, mask: Any, train: bool = False) -> Any:
        return nn.Dense(8)(tokens) * mask


@pytest.mark.parametrize(
    "given",
    [
        lambda: (TakesTwo(nnx.Rngs(0)),),
        lambda: (EquinoxTakesTwo(jnp.ones((8, 8))),),
        lambda: (LinenTakesTwo(), LinenTakesTwo().init(KEY, X, X)),
    ],
    ids=["nnx", "equinox", "linen"],
)
def test_inputs_of_a_module_have_the_names_of_its_arguments(given: Callable[[], tuple[Any, ...]]) -> None:
    graph = gradir.capture(*given(), X, X)
    found = {name for node in graph.nodes.values() if node.role == "input" for name in node.names}
    assert found == {"tokens", "mask"}
