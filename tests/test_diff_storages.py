"""Names of storages, which follow from the order in which slots save them."""

from __future__ import annotations

from msgspec.structs import replace
from reports import render_details

from gradir import patch
from gradir.diffs.compare import compare
from gradir.ir import Graph, Node, Ref, Saved


def sharing(first: str, second: str) -> Graph:
    """Two layers that save one tensor, and a product that takes both."""
    saved = Saved("mat1", "float32", (2,), 8)
    weights = [
        Node(f"{name}.weight", role="parameter", scope=name, names=(f"{name}.weight",)) for name in (first, second)
    ]
    one, two = (
        Node(f"{name}/mm:1", op="mm", scope=name, inputs=(Ref(f"{name}.weight", 0),), saved=(saved,))
        for name in (first, second)
    )
    two = replace(two, saved=(replace(saved, storage=f"{one.id}.mat1"),))
    last = Node("bmm:1", op="bmm", inputs=(Ref(one.id, 0), Ref(two.id, 0)))
    return Graph.of([*weights, one, two, last])


def test_exchanged_arguments_are_reported_without_consequences() -> None:
    sides = sharing("q", "k"), sharing("k", "q")
    diff = compare(*sides)
    assert [change.id for change in diff.changes] == ["bmm:1", "order"]
    lines = render_details(diff, sides).splitlines()
    assert "      in[0]: q/mm:1 -> k/mm:1" in lines
    assert "      in[1]: k/mm:1 -> q/mm:1" in lines
    assert "storage" not in "\n".join(lines)
    assert patch(sides[0], diff) == sides[1]


def test_another_name_of_a_storage_alone_is_a_difference() -> None:
    one = sharing("q", "k")
    *weights, q, k, mm = one.nodes.values()
    slot = q.saved[0]
    nodes = [
        *weights,
        replace(q, saved=(replace(slot, storage="k/mm:1.mat1"),)),
        replace(k, saved=(replace(slot, storage=""),)),
        mm,
    ]
    other = Graph.of(nodes)
    assert [(change.id, change.fields[0].name) for change in compare(one, other).changes] == [("indices", "storages")]


def test_a_storage_that_is_shared_no_more_is_reported() -> None:
    one = sharing("q", "k")
    *weights, q, k, mm = one.nodes.values()
    other = Graph.of([*weights, q, replace(k, saved=(replace(k.saved[0], storage=""),)), mm])
    assert [field.name for change in compare(one, other).changes for field in change.fields] == ["saved.mat1.storage"]
