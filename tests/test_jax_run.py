"""``gradir run`` of JAX: training scripts as they are, and the graph and the explanation of one of their gradients."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

for package in ("jax", "equinox", "flax", "optax"):
    pytest.importorskip(package)

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import jax_told  # noqa: E402
from command_line import runner  # noqa: E402
from flax import nnx  # noqa: E402
from jax import lax  # noqa: E402
from training_scripts import script  # noqa: E402

import gradir  # noqa: E402
from gradir.capturing import running  # noqa: E402
from gradir.cli.main import main  # noqa: E402
from gradir.errors import CaptureError  # noqa: E402
from gradir.explanations.model import Explanation  # noqa: E402
from gradir.frontends.jax.running import RequestedGradient  # noqa: E402
from gradir.request import CaptureRequest  # noqa: E402
from gradir.spec import run_script  # noqa: E402

Read = pytest.CaptureFixture[str]
ADAM = "optax.adam(1e-2)"
FROZEN = """optax.multi_transform(
    {"train": optax.sgd(0.1), "freeze": optax.set_to_zero()},
    lambda p: jax.tree_util.tree_map_with_path(
        lambda path, _: "freeze" if "enc" in jax.tree_util.keystr(path) else "train", p
    ),
)"""
SCRIPTS = ("mlp", "nnx", "linen", "equinox", "flat")
CUTS = {"stop_gradient": "jax.lax.stop_gradient(h)", "argmax": "jax.nn.one_hot(jnp.argmax(h, -1), 8)"}
X = jnp.arange(12.0).reshape(4, 3) / 12
P = {"enc": jnp.ones((3, 2)), "dec": jnp.ones((2, 1))}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder to be in; afterwards JAX has its own functions again."""
    monkeypatch.chdir(tmp_path)
    before = jax.grad, jax.value_and_grad, jax.vjp, jax.jit
    yield tmp_path
    assert (jax.grad, jax.value_and_grad, jax.vjp, jax.jit) == before


def written(name: str, cut: str = "h", optimizer: str = ADAM) -> str:
    text = script(f"jax_{name}").replace("CUT", cut).replace("TX", optimizer)
    Path("train.py").write_text(text)
    return text


def execute() -> None:
    run_script("train.py", [], is_module=False, for_good=False)


def watched(
    run: Callable[[], object], step: int = 1, look: Callable[[RequestedGradient], object] = RequestedGradient.explain
) -> list[Any]:
    """What is looked at as a gradient is asked for, and how many were."""
    found: list[Any] = []

    def reached(moment: Any) -> None:
        found.append(look(moment))

    with running(CaptureRequest(step=step, sources=True), reached) as seeing:
        run()
    return [*found, seeing["jax"].calls]


def told(found: Explanation) -> list[tuple[str, str, int | None]]:
    return [
        (each.kind, each.level, None if each.source is None else each.source.line)
        for each in found.causes
        if each.kind not in {"captured", "inner_gradient"}
    ]


def without_bias(names: Any) -> set[str]:
    return {name for name in names if name.rpartition(".")[2] in {"kernel", "w", "weight"}}


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_gradient_of_a_script_is_captured_and_explained_and_its_weights_are_the_same(
    name: str, capsys: Read
) -> None:
    step = 3
    written(name)
    execute()
    plain = capsys.readouterr().out
    (graph, found), calls = watched(execute, step, lambda moment: (moment.capture(), moment.explain()))
    assert capsys.readouterr().out == plain
    assert calls == step
    assert len(without_bias(jax_told.names(graph, "parameter").split())) == 2
    assert {node.source.file for node in graph.nodes.values() if node.source} == {"train.py"}
    assert set(found.statuses.values()) == {"reached"}
    assert (found.level, told(found)) == ("none", [])
    # The values are those of that step.
    norm = float.fromhex(plain.splitlines()[step - 1].split()[1])
    assert math.isclose(math.hypot(*found.gradients.values()), norm, rel_tol=1e-5)
    assert found.examined.values == "backward"


@pytest.mark.parametrize(
    ("name", "cut", "step"),
    [(name, *each) for name, each in zip(SCRIPTS, cycle([("stop_gradient", 1), ("argmax", 2)]))],
)
def test_a_cut_in_a_script_is_explained_with_its_line(name: str, cut: str, step: int) -> None:
    text = written(name, CUTS[cut])
    found, _ = watched(execute, step)
    line = 1 + [each.strip() for each in text.splitlines()].index(f"h = {CUTS[cut]}")
    kind = cut if cut == "stop_gradient" else "nondifferentiable"
    assert told(found) == [(kind, "error", line)]
    assert {name: status for name, status in found.statuses.items() if "enc" in name} == dict.fromkeys(
        [name for name in found.statuses if "enc" in name], "cut"
    )
    (cause,) = (each for each in found.causes if each.kind == kind)
    assert cause.source is not None
    assert cause.source.file == "train.py"


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_label_that_freezes_is_reported_where_a_compiled_step_has_the_optimizer(name: str) -> None:
    written(name, optimizer=FROZEN)
    found, _ = watched(execute, 2)
    # Outside of a compiled step the optimizer comes after the gradient.
    assert told(found) == ([("not_in_optimizer", "note", None)] if name != "flat" else [])
    assert all("enc" in each for cause in found.causes if cause.kind == "not_in_optimizer" for each in cause.names)


@pytest.mark.parametrize("name", ["mlp", "flat"])
def test_a_cut_of_what_a_label_freezes_is_intended_where_a_compiled_step_has_the_optimizer(name: str) -> None:
    written(name, CUTS["stop_gradient"], FROZEN)
    found, _ = watched(execute)
    assert [each[:2] for each in told(found)] == [("stop_gradient", "note" if name != "flat" else "error")]


def test_an_optimizer_of_a_script_that_passes_gradients_on_is_reported() -> None:
    text = written("linen", optimizer='optax.masked(optax.adam(1e-2), {"enc": False, "dec": True})')
    found, _ = watched(execute)
    (cause,) = (each for each in found.causes if each.kind == "raw_update")
    assert (found.level, cause.names) == ("error", ("enc.bias", "enc.kernel"))
    assert cause.source is not None
    assert "apply_gradients" in text.splitlines()[cause.source.line - 1]


def test_the_command_writes_the_graph_and_ends_the_script(clean_environment: dict[str, str]) -> None:
    written("mlp", CUTS["stop_gradient"])
    run = runner(Path.cwd(), clean_environment)
    done = run("run", "train.py", "-o", "a.gir", "--step", "2")
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 1)
    assert done.stderr.splitlines()[-1].startswith("wrote a.gir: ")
    assert [cut.kind for cut in gradir.load("a.gir").cuts] == ["stop_gradient"]
    whole = run("run", "train.py", "-o", "b.gir", "--step", "9")
    assert (whole.returncode, len(whole.stdout.splitlines())) == (2, 5)
    assert whole.stdout.startswith(done.stdout)
    assert whole.stderr == "gradir: train.py called backward 4 times, and --step is 9; gradir wrote no file\n"


def test_the_command_explains_a_script(capsys: Read) -> None:
    written("linen", CUTS["stop_gradient"])
    assert main(["explain", "train.py"]) == 1
    assert "stop_gradient cuts all of enc (train.py:12 in Net.__call__)" in capsys.readouterr().out
    written("linen", optimizer=FROZEN)
    assert main(["explain", "train.py", "--all"]) == 0
    assert "note[not_in_optimizer]: all of enc get a gradient" in capsys.readouterr().out


def test_a_script_without_a_gradient_writes_nothing(capsys: Read) -> None:
    Path("train.py").write_text("import jax\nprint(jax.jit(lambda x: x + 1)(1.0))\n")
    assert main(["run", "train.py", "-o", "a.gir"]) == 2
    assert capsys.readouterr().err == "gradir: train.py never called backward in this process; gradir wrote no file\n"


# What counts.


def loss(p: Any, x: Any = X) -> Any:
    return (jnp.tanh(x @ p["enc"]) @ p["dec"]).sum()


def of_penalty(p: Any) -> Any:
    return sum((each**2).sum() for each in jax.tree.leaves(jax.grad(loss)(p)))


def by_vjp() -> None:
    for _ in range(3):
        value, pull = jax.vjp(loss, P)
        pull(jnp.ones_like(value))


def eager() -> None:
    gradient = jax.grad(loss)
    for _ in range(3):
        gradient(P)


def compiled() -> None:
    step = jax.jit(lambda p: (jax.grad(loss)(p), jax.value_and_grad(of_penalty)(p)))
    for _ in range(3):
        step(P)


def compiled_gradient() -> None:
    step, score = jax.jit(jax.value_and_grad(loss)), jax.jit(loss)
    for rows in (2, 3, 4):
        step(P, X[:rows])
        score(P)


def compiled_inside() -> None:
    inner = jax.jit(jax.grad(loss))
    step = jax.jit(lambda p: jax.tree.map(jnp.add, inner(p), inner(p)))
    for _ in range(3):
        step(P)


def penalty() -> None:
    for _ in range(3):
        jax.grad(of_penalty)(P)


def scanned() -> None:
    def once(p: Any, _: Any) -> Any:
        return jax.tree.map(lambda p, g: p - 0.1 * g, p, jax.grad(loss)(p)), None

    epoch = jax.jit(lambda p: lax.scan(once, p, None, length=5)[0])
    for _ in range(3):
        epoch(P)


def decorated() -> None:
    class Own:
        @partial(jax.jit, static_argnames="rate", static_argnums=0)
        def step(self, p: Any, *, rate: float) -> Any:
            return jax.tree.map(lambda p, g: p - rate * g if rate > 0 else p, p, jax.grad(loss)(p))

    for _ in range(3):
        Own.step(Own(), P, rate=0.1)
    assert Own().step.__func__ is Own.step


def modules() -> None:
    model = nnx.Linear(3, 1, rngs=nnx.Rngs(0))
    for _ in range(3):
        nnx.grad(lambda model: model(X).sum())(model)


def modules_as_trees() -> None:
    step = nnx.jit(nnx.grad(lambda model: model(X).sum(), graph=False), graph=False)
    model = nnx.Linear(3, 1, rngs=nnx.Rngs(0))
    for _ in range(3):
        step(model)


COUNTED = [
    eager,
    by_vjp,
    compiled,
    compiled_gradient,
    compiled_inside,
    penalty,
    scanned,
    decorated,
    modules,
    modules_as_trees,
]


@pytest.mark.parametrize("program", COUNTED, ids=lambda program: program.__name__)
def test_a_call_counts_once_however_many_gradients_it_takes(program: Callable[[], None]) -> None:
    assert watched(program, 9) == [3]
    for step in (1, 3):
        (graph, found), calls = watched(program, step, lambda moment: (moment.capture(), moment.explain()))
        assert calls == step
        expected = "bias kernel" if program in (modules, modules_as_trees) else "dec enc"
        assert sorted(jax_told.names(graph, "parameter").split()) == expected.split()
        assert found.examined.values == "backward"
        assert set(found.statuses.values()) == {"reached"}


def vectorized() -> None:
    jax.vmap(jax.grad(loss), (None, 0))(P, X[:, None])


def looped() -> None:
    lax.scan(lambda p, _: (jax.grad(loss)(p), None), P, None, length=3)


def in_parallel() -> None:
    step = jax.pmap(lambda p, x: lax.pmean(jax.grad(loss)(p, x), "i"), axis_name="i", in_axes=(None, 0))
    step(P, X[None])
    step(P, X[None])


def ahead() -> None:
    step = jax.jit(jax.grad(loss)).lower(P).compile()
    step(P)
    step(P)


@pytest.mark.parametrize("program", [vectorized, looped, in_parallel, ahead], ids=lambda program: program.__name__)
def test_a_gradient_that_is_traced_alone_counts_once_and_has_no_values(program: Callable[[], None]) -> None:
    found, calls = watched(program)
    assert (calls, found.statuses) == (1, {"dec": "reached", "enc": "reached"})
    assert found.examined.values == "none"
    assert "without values" in found.examined.reason
    assert watched(program, 9) == [1]


def test_the_first_gradient_by_the_parameters_of_a_step_is_captured() -> None:
    @jax.jit
    def adversarial(state: Any, p: Any, x: Any) -> Any:
        noise = jnp.sign(jax.grad(loss, argnums=1)(p, x))
        return state, jax.tree.map(lambda p, g: p - g, p, jax.grad(lambda p: loss(p, x + noise))(p))

    def run() -> None:
        step = jax.jit(adversarial.__wrapped__)
        step(jnp.zeros(1), P, X)

    graph, _ = watched(run, 1, RequestedGradient.capture)
    assert sorted(jax_told.names(graph, "parameter").split()) == ["dec", "enc"]


def test_a_step_that_cannot_run_twice_is_explained_by_its_gradient_alone() -> None:
    runs: list[int] = []

    def once(p: Any) -> Any:
        if runs:
            raise RuntimeError("it has run before")
        runs.append(1)
        return jax.grad(lambda p: loss(lax.stop_gradient(p)) + p["dec"].sum())(p)

    found, calls = watched(lambda: jax.jit(partial(once))(P))
    assert (calls, told(found)[0][:2]) == (1, ("stop_gradient", "error"))
    assert found.examined.values == "none"

    def again() -> None:
        runs.clear()
        for _ in range(2):
            # JAX remembers the function, and does not trace it again.
            jax.jit(once)(P)

    with pytest.raises(CaptureError, match="cannot trace once once more"):
        watched(again, 2)


def test_a_caught_stop_is_raised_again_at_the_next_step() -> None:
    def stop(_: RequestedGradient) -> None:
        raise SystemExit

    def stubborn() -> None:
        step = jax.jit(jax.grad(loss))
        step(P)
        for _ in range(2):
            with pytest.raises(SystemExit):
                step(P)

    assert watched(stubborn, 2, stop)[-1] >= 2


def test_a_wrapped_jit_function_looks_like_the_original() -> None:
    def named(p: Any, *, scale: float = 1.0) -> Any:
        """Scale a loss."""
        return loss(p) * scale

    made: list[Any] = []
    watched(lambda: made.append(jax.jit(named)))
    (step,) = made
    assert isinstance(step, jax.stages.Wrapped)
    assert (step.__name__, step.__doc__, repr(step)) == ("named", "Scale a loss.", repr(jax.jit(named)))
    assert inspect.signature(step) == inspect.signature(named)
    assert step.lower(P).as_text() == jax.jit(named).lower(P).as_text()
    assert step(P) == jax.jit(named)(P)
    assert step.eval_shape(P).shape == ()
    step.clear_cache()


def test_a_diff_state_selects_what_is_differentiated() -> None:
    chosen = nnx.DiffState(0, nnx.PathContains("kernel"))

    def loss(model: Any, x: Any) -> Any:
        return model(x).sum()

    def step(model: Any, x: Any) -> Any:
        return nnx.state(model, nnx.Param), nnx.grad(loss, argnums=chosen)(model, x)

    of_loss, of_step = (
        gradir.explain(loss, nnx.Linear(2, 2, rngs=nnx.Rngs(0)), jnp.ones((1, 2)), argnums=chosen),
        gradir.explain(step, nnx.Linear(2, 2, rngs=nnx.Rngs(0)), jnp.ones((1, 2))),
    )
    assert of_loss.statuses == of_step.statuses == {"kernel": "reached"}
