"""Captures and verifications in several processes that train together, over the loopback interface."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from torchrun import results_of  # noqa: E402

import gradir  # noqa: E402

if not (torch.distributed.is_available() and torch.distributed.is_gloo_available()):
    pytest.skip("needs a torch built with distributed and gloo", allow_module_level=True)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the loopback interface has another name")


def test_a_backward_behind_verify_is_the_same_under_ddp(tmp_path: Path) -> None:
    refused = (
        "a function of the graph runs a backward of its own, whose gradients a process group would send: "
        "verify in a process without a group"
    )
    for found in results_of("ddp.py", 3, tmp_path):
        assert found.pop("own backward") == [True, [refused]]
        assert found == {name: [True, []] for name in found}
        assert len(found) == 12


def test_a_backward_behind_verify_is_the_same_under_fsdp2_and_every_parameter_has_its_name(tmp_path: Path) -> None:
    for found in results_of("fsdp.py", 2, tmp_path):
        assert found == {name: [True, [], [True, 16, [], []]] for name in found}
        assert len(found) == 7


def test_what_is_explained_under_ddp_and_fsdp2_is_what_a_backward_does_and_changes_none(tmp_path: Path) -> None:
    def of(prefix: str, *names: str) -> list[str]:
        return [f"{prefix}.{name}.{kind}" for name in names for kind in ("weight", "bias")]

    told = {
        "left out": ("info", [["unused", "info", of("module", "other")]]),
        # torch waits for what its sink joins to the loss.
        "left out, unused": ("error", [["unused", "error", of("module", "other")]]),
        "left out, static": ("error", [["unused", "error", of("module", "other")]]),
        "left out, fsdp": ("info", [["unused", "info", of("heads", "other")]]),
        # The trunk is reached through the other head, so its names come last.
        "cut, unused": ("error", [["detach", "error", of("module", "other", "trunk")]]),
        "not run, unused": ("info", [["unused", "info", of("module", "other")]]),
        "not run, static": ("info", [["unused", "info", of("module", "other")]]),
    }
    for found in results_of("explained.py", 2, tmp_path):
        assert len(found) == 16
        for name, (same, steps) in found.items():
            level, causes = told.get(name, ("none", []))
            assert same, name
            assert steps == [[[], level, causes]] * len(steps), name


def test_ranks_that_do_the_same_have_the_same_bytes_and_count_what_they_hold(tmp_path: Path) -> None:
    results = results_of("symmetric.py", 4, tmp_path)
    assert len(results[0]) == 12
    assert all(found == results[0] for found in results)
    graphs = {name: gradir.loads(text.encode()) for name, (text, _) in results[0].items()}
    for name, (_, (recorded, packed)) in results[0].items():
        assert recorded == packed, name
        assert graphs[name].cuts == ()
        assert [node.id for node in graphs[name].nodes.values() if "<" in str(dict(node.attrs))] == []

    def attributes(name: str, node_id: str) -> dict[str, object]:
        attrs = dict(graphs[name].nodes[node_id].attrs)
        del attrs["needs_input_grad"]
        return attrs

    assert attributes("all_reduce", "all_reduce:1") == {"group_name": "tp", "reduce_op": "sum"}
    assert attributes("all_gather", "all_gather_into_tensor:1") == {"group_name": "group", "group_size": 2}
    scattered = {"group_name": "dp", "group_size": 2, "reduce_op": "avg"}
    assert attributes("reduce_scatter", "reduce_scatter_tensor:1") == scattered
    assert attributes("all_to_all", "all_to_all_single:1")["group_name"] == "tp"
    assert attributes("nn all_reduce", "_all_reduce:1") == {"group": "world", "op": "sum"}
    assert attributes("nn broadcast", "_broadcast:1") == {"group": "group", "src": 0}
    assert attributes("nn reduce", "_reduce:1") == {"group": "group", "src": 0}
    assert attributes("ddp", "_ddp_sink:1") == {}
    assert attributes("fsdp", "h.0/register_post_backward_function:1") == {}
    assert attributes("tp", "h.0.down/_from_torch_tensor:1") == {
        "forward_input_device_mesh": ("tp=2",),
        "forward_input_placements": ("tp:Shard(1)",),
        "grad_placements": None,
    }
    assert attributes("tp", "h.0/_to_torch_tensor:1") == {"dtensor_spec": ("tp:Shard(1)",), "grad_placements": None}
    assert attributes("sequence", "redistribute:1")["current_spec"] == ("tp:Partial(sum)",)

    def placements(name: str) -> dict[str, tuple[str, ...]]:
        found = {node.id: node.outputs[0].placements for node in graphs[name].nodes.values() if node.outputs}
        return {node_id: words for node_id, words in found.items() if words}

    assert placements("ddp") == {}
    assert set(placements("fsdp").values()) == {("dp:Shard(0)",)}
    assert set(placements("fsdp")) == {id_ for id_, node in graphs["fsdp"].nodes.items() if node.role == "parameter"}
    assert placements("tp") == {
        f"h.{block}.{name}": (f"tp:{word}",)
        for block in (0, 1)
        for name, word in (
            ("up.weight", "Shard(0)"),
            ("up.bias", "Shard(0)"),
            ("down.weight", "Shard(1)"),
            ("down.bias", "Replicate"),
        )
    }
    assert placements("tp, fsdp")["h.0.up.weight"] == ("dp:StridedShard(0, sf=2)", "tp:Shard(0)")
    assert placements("tp, fsdp")["h.1.down.bias"] == ("dp:Shard(0)", "tp:Replicate")
