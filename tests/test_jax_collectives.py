"""What devices exchange inside `shard_map`, beside what JAX lowers the same function and its backward to."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax import lax  # noqa: E402

import gradir  # noqa: E402
from gradir.cli import main  # noqa: E402
from gradir.frontends.jax.live import trace  # noqa: E402
from gradir.ir import Graph  # noqa: E402

W, X = jnp.full((2, 4), 0.1), jnp.ones((4, 2))
MESH = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("dp",))
ALL, SPLIT = jax.sharding.PartitionSpec(), jax.sharding.PartitionSpec("dp")
LOWERED = re.compile(r"stablehlo\.(?:collective_)?(all_reduce|all_gather|reduce_scatter|permute)\b")


def on_parts(part: Callable[[Any, Any], Any], out: Any = ALL) -> Callable[[Any, Any], Any]:
    mapped = jax.shard_map(part, mesh=MESH, in_specs=(ALL, SPLIT), out_specs=out)
    return lambda w, x: mapped(w, x).sum()


def captured(fn: Callable[[Any, Any], Any]) -> Graph:
    return trace(fn, (W, X), {}, argnums=(0, 1)).graph(collectives=True)


EXCHANGING = {
    "psum": on_parts(lambda w, x: lax.psum(jnp.tanh(x @ w).sum(), "dp")),
    "pmean": on_parts(lambda w, x: lax.pmean(jnp.tanh(x @ w), "dp")),
    "all_gather": on_parts(lambda w, x: lax.all_gather(jnp.tanh(x @ w), "dp"), SPLIT),
    "ppermute": on_parts(lambda w, x: lax.ppermute(jnp.tanh(x @ w), "dp", [(0, 0)]), SPLIT),
    "psum_scatter": on_parts(lambda w, x: lax.psum_scatter(jnp.tanh(x @ w), "dp", tiled=True), SPLIT),
    "scan": on_parts(
        lambda w, x: lax.scan(
            lambda h, _: (lax.psum(jnp.tanh(h), "dp") * 0.5, None), lax.psum(x @ w, "dp"), None, length=3
        )[0]
    ),
    "cond": on_parts(
        lambda w, x: lax.cond(w[0, 0] > 0, lambda h: lax.psum(h, "dp"), lambda h: lax.psum(2 * h, "dp"), x @ w)
    ),
    "remat": on_parts(jax.checkpoint(lambda w, x: lax.psum(jnp.tanh(x @ w), "dp"))),
}


@pytest.mark.parametrize("name", EXCHANGING)
def test_all_that_devices_exchange_is_in_the_list(name: str) -> None:
    fn = EXCHANGING[name]

    def both(w: Any, x: Any) -> Any:
        y, pullback = jax.vjp(fn, w, x)
        return y, pullback(jnp.ones_like(y))

    issued = captured(fn).collectives
    assert Counter(each.op for each in issued) == Counter(LOWERED.findall(jax.jit(both).lower(W, X).as_text()))
    assert [each.phase for each in issued] == sorted((each.phase for each in issued), reverse=True)
    assert not gradir.verify(fn, W, X, argnums=(0, 1)).mismatches


def test_a_collective_has_its_group_its_line_and_the_node_of_its_backward() -> None:
    graph = captured(EXCHANGING["psum"])
    forward, backward = graph.collectives
    assert graph.rank is not None
    assert (graph.rank.rank, graph.rank.world, graph.rank.groups) == (0, 1, {"dp": (0,)})
    assert (forward.phase, forward.op, forward.group, forward.reduce) == ("forward", "all_reduce", "dp", "sum")
    assert forward.source is not None
    assert "lax.psum(jnp.tanh(x @ w).sum()" in Path(__file__).read_text().splitlines()[forward.source.line - 1]
    assert [str(tensor) for tensor in backward.tensors] == ["float32[2, 4]"]
    assert graph.nodes[backward.node].opaque


def test_the_collectives_of_two_meshes_have_the_groups_of_both() -> None:
    pairs = jax.sharding.Mesh(np.array(jax.devices()[:1]).reshape(1, 1), ("rows", "columns"))

    def on_pairs(w: Any, x: Any) -> Any:
        return lax.pmean((lax.psum(x @ w, "columns") ** 2).sum(), "rows")

    mapped = jax.shard_map(on_pairs, mesh=pairs, in_specs=(ALL, ALL), out_specs=ALL)

    def both(w: Any, x: Any) -> Any:
        return EXCHANGING["pmean"](w, x) + mapped(w, x)

    graph = captured(both)
    assert graph.rank is not None
    assert graph.rank.groups == {"columns": (0,), "dp": (0,), "rows": (0,)}
    assert {each.group for each in graph.collectives} == {"columns", "dp", "rows"}
    assert not gradir.verify(both, W, X, argnums=(0, 1)).mismatches
    assert gradir.ranks([graph]).proved == len(graph.collectives)


PROGRAM = """\
import jax, jax.numpy as jnp, numpy as np

mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("dp",))
P = jax.sharding.PartitionSpec

def loss():
    part = lambda w, x: jax.lax.pmean((x @ w).sum(), "dp")
    return jax.shard_map(part, mesh=mesh, in_specs=(P(), P("dp")), out_specs=P()), (jnp.ones((2, 4)), jnp.ones((4, 2)))
"""


def test_the_commands_know_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(PROGRAM)
    assert main(["capture", "train.py:loss", "--collectives", "-o", "run.0.gir"]) == 0
    assert main(["ranks", "run.0.gir"]) == 0
    assert "2 collectives, each entered by all of its group in the same order" in capfd.readouterr().out
    assert main(["capture", "train.py:loss", "--collectives", "--step", "2", "-o", "run.0.gir"]) == 2
    assert "has no steps" in capfd.readouterr().err
