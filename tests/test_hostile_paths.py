"""What is done with a graph takes memory in proportion to its document, however deep and long the paths in it are."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plugins import BUILT_IN
from reports import cut_changed_part, markdown, outcomes, render_details, render_text
from steps import measure_memory

import gradir
from gradir import codecs, passes, registry
from gradir.diffs.changes import Diff
from gradir.diffs.diff_json import encode
from gradir.diffs.ignoring import ignore_fields, normalize_diff
from gradir.errors import GradirError
from gradir.ir import Graph, Node, Ref, Scope, TensorMeta
from gradir.ir.module_tree import DEEPEST, Ancestors, scope_depth, split_path, walk_up
from gradir.review.conditions import parse_conditions

SIZE = 1_500
PROMISED_PER_BYTE = 300
"""What docs/format.md promises: bytes of memory for each byte of the JSON form, of both for a diff, and a mebibyte."""

PROMISED_OF_LEVELS = {"dot": 600, "cytoscape": 2_000}
"""The same for the exporters that spell each level of a path."""

Job = Callable[[], object]

_WIDE = "\N{GRINNING FACE}"
"""One such character makes each other one in its text take four bytes."""

_LEVELS = 64
"""As many as are told apart anywhere."""


def pairs(size: int) -> dict[str, tuple[bytes, bytes]]:
    """By name, each of some ``size`` times ten bytes."""
    return {**_deep(size), **_crowds(size), **_lists(size), **_products(size)}


def _document(nodes: Sequence[Any], scopes: Sequence[Any] = (), cuts: Sequence[Any] = ()) -> bytes:
    document = {"format": "gir", "version": "1.0", "scopes": scopes, "cuts": cuts, "nodes": nodes}
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()


def _both(make: Callable[[Any], bytes], before: Any, after: Any) -> tuple[bytes, bytes]:
    return make(before), make(after)


def _path(count: int, component: str = "a") -> str:
    return ".".join([component] * count)


def _function(scope: str, number: int = 1, op: str = "f", **fields: Any) -> dict[str, Any]:
    return {"id": f"{scope}/{op}:{number}" if scope else f"{op}:{number}", "op": op, "scope": scope, **fields}


def _parameter(path: str, role: str = "parameter") -> dict[str, Any]:
    name = f"{path}.w"
    tensor = {"dtype": "float32", "shape": [2]}
    return {"id": name, "role": role, "scope": path, "names": [name], "out": [tensor]}


def _scope(path: str, trainable: int = 2) -> dict[str, Any]:
    return {"path": path, "class": "C", "own": 2, "total": 2, "trainable": trainable}


def _deep(size: int) -> dict[str, tuple[bytes, bytes]]:
    """One path with very many components."""
    deep = _path(size)
    counted = ".".join(f"{number:x}" for number in range(size))

    def one(path: str) -> bytes:
        return _document([_function(path)])

    def listed(path: str) -> bytes:
        return _document([_parameter(path), _function(path)], [{"path": "", "class": "M"}, _scope(path)])

    def owned(trainable: int) -> bytes:
        return _document([_parameter(deep, "parameter" if trainable else "buffer")], [_scope(deep, trainable)])

    def cut(path: str) -> bytes:
        found = {"kind": "unreached", "names": [f"{path}.w"], "scope": path}
        return _document([_function("")], cuts=[found] if path else [])

    def keeping(path: str) -> bytes:
        slot = {"slot": "s", "bytes": 4, "storage": path}
        return _document([_function("", number, saved=[slot]) for number in (1, 2)])

    return {
        "head renamed": _both(one, f"x.{deep}", f"y.{deep}"),
        "tail renamed": _both(one, f"{deep}.x", f"{deep}.y"),
        "all renamed": _both(one, deep, _path(size, "b")),
        "numbers": _both(one, _path(size, "0"), _path(size, "1")),
        "shifted": _both(one, f"0.{_path(size, '0')}", f"1.{_path(size, '0')}"),
        "empty components": _both(one, "." * size, "." * (size + 1)),
        "id apart": _both(lambda path: _document([{"id": "f:1", "op": "f", "scope": path}]), f"x.{deep}", f"y.{deep}"),
        "came": _both(lambda path: _document([_function(""), *([_function(path)] if path else [])]), "", deep),
        "listed": _both(listed, f"x.{deep}", f"y.{deep}"),
        "different components": _both(listed, f"x.{counted}", f"y.{counted}"),
        "frozen": _both(owned, 2, 0),
        "cut renamed": _both(cut, f"x.{deep}", f"y.{deep}"),
        "cut gone": _both(cut, deep, ""),
        "storage": _both(keeping, f"x.{deep}", f"y.{deep}"),
        "key of an attribute": _both(lambda value: _document([_function("", attrs={"." * size: value})]), 1, 2),
    }


def _crowds(size: int) -> dict[str, tuple[bytes, bytes]]:
    """Several paths, each deep."""
    few = int(size**0.5)
    deep = _path(few)

    def renamed(head: str) -> bytes:
        paths = [f"{number}.{head}.{deep}" for number in range(few)]
        return _document([_function(path) for path in paths], [_scope(path) for path in paths])

    def changed(op: str) -> bytes:
        return _document([_function(f"{number}.{deep}", op=op) for number in range(few)])

    def ladder(head: str) -> bytes:
        paths = [f"{head}.{_path(number)}" for number in range(1, few)]
        inputs = [[], *([[f"{path}/f:1", 0]] for path in paths)]
        nodes = [_function(path, **{"in": refs}) for path, refs in zip(paths, inputs, strict=False)]
        return _document(nodes, [{"path": ""}, *({"path": path, "class": "C", "calls": 1} for path in paths)])

    def wide(head: str, length: int = 200) -> bytes:
        count = size // length
        paths = [f"{_WIDE}{head}{number}{'x' * (length - 2 * _LEVELS)}.{_path(_LEVELS - 1)}" for number in range(count)]
        return _document([_function(path) for path in paths])

    return {
        "names of numbers": _both(
            lambda number: _document([{"id": "w", "role": "leaf", "names": [_path(few, number) for _ in range(few)]}]),
            "0",
            "1",
        ),
        "crowd renamed": _both(renamed, "x", "y"),
        "crowd changed": _both(changed, "f", "g"),
        "ladder renamed": _both(ladder, "x", "y"),
        "ladder of numbers": _both(ladder, "0", "1"),
        "wide renamed": _both(wide, "x", "y"),
        "one wide renamed": _both(lambda head: wide(head, size), "x", "y"),
        "wide came": (_document([_function("")]), wide("x")),
    }


def _lists(size: int) -> dict[str, tuple[bytes, bytes]]:
    """One record with very many entries."""
    places = range(size)
    two = [_function("", number) for number in (1, 2)]

    def one(field: str, value: object, **others: Any) -> bytes:
        return _document([*two, _function("", 3, **{field: value}, **others)])

    def sized(one: int) -> bytes:
        return _document([{"id": "w", "role": "parameter", "out": [{"shape": [one] * size}]}])

    def cut(kinds: Sequence[str]) -> bytes:
        return _document([], cuts=[{"kind": kind, "names": [f"a.{at}.w"]} for kind in kinds for at in places])

    def numbered(digit: str) -> bytes:
        # More digits than Python reads.
        paths = f"l.{digit * 5_000}", f"l.{digit * 5_000}1"
        return _document([_function(path) for path in paths], [_scope(path) for path in paths])

    return {
        "inputs": _both(lambda source: one("in", [[source, 0]] * size), "f:1", "f:2"),
        "outputs": _both(lambda dtype: one("out", [{"dtype": dtype}] * size), "a", "b"),
        "slots": _both(lambda slot: one("saved", [{"slot": slot, "bytes": 4}] * size), "a", "b"),
        "attributes": _both(lambda key: one("attrs", {f"{key}{at}": at for at in places}), "a", "b"),
        "entries": _both(lambda value: one("attrs", {"a": [value] * size}), 1, 2),
        "sizes": _both(sized, 7, 8),
        "cuts": _both(cut, ["a"], []),
        "digits": _both(numbered, "1", "2"),
    }


def _products(size: int) -> dict[str, tuple[bytes, bytes]]:
    """What is long in a module that lies deep, where each module of the table lies in the one before."""
    few = int(size**0.5)
    table = [{"path": _path(number), "class": "C", "calls": 1} for number in range(1, few)]
    deepest = _path(few - 1)

    def of_lines(letter: str) -> bytes:
        return _document([], [*table[:-1], {**table[-1], "detail": "\n".join(letter * size)}])

    def of_shapes(shapes: Sequence[Sequence[int]]) -> bytes:
        made = [_function(deepest, number, out=[{"shape": shape}]) for number, shape in enumerate(shapes)]
        taken = {"id": "output", "role": "output", "in": [[node["id"], 0] for node in made]}
        return _document([*made, taken], table)

    return {
        "lines in a deep module": _both(of_lines, "a", "b"),
        "a long shape from a deep module": _both(of_shapes, [[7] * size], [[8] * size]),
        "many shapes from a deep module": _both(
            of_shapes, [[number, 7] for number in range(few)], [[number, 8] for number in range(few)]
        ),
    }


def of_one(graph: Graph) -> Iterator[tuple[str, Job]]:
    """Every pass, exporter and codec."""
    deepest = max((scope_depth(node.scope) for node in graph.nodes.values()), default=0)
    for depth in (1, deepest):
        yield f"fold {depth}", lambda depth=depth: passes.fold(graph, depth)
    yield "rollup", lambda: passes.rollup(graph)
    yield "hide", lambda: passes.hide_shape_ops(graph)
    yield "drop", lambda: passes.drop(graph, ["views", "parameter", "accumulate_grad", "saved"])
    yield (
        "focus on a module",
        lambda: passes.focus(graph, max((node.scope for node in graph.nodes.values()), default="")),
    )
    yield "focus on a glob", lambda: passes.focus(graph, "*.*f*a*/f:1")
    for name in BUILT_IN:
        yield f"export {name}", lambda name=name: registry.export(name, graph, {})
    for style in ("markdown", "json"):
        yield f"export summary {style}", lambda style=style: registry.export("summary", graph, {"style": style})
    everything = {"show_saved": True, "show_attrs": True, "legend": True}
    yield "export dot with all", lambda: registry.export("dot", graph, everything)
    yield "export tree from leaves", lambda: registry.export("tree", graph, {"start": "leaves"})
    for form in ("json", "msgpack"):
        yield f"save {form}", lambda form=form: codecs.encode(graph, form)


def of_two(a: Graph, b: Graph) -> Iterator[tuple[str, Job]]:
    """The comparison and all that is made of it."""
    found: list[Diff] = []
    sides = (a, b)
    yield "diff", lambda: found.append(gradir.diff(a, b))
    (diff,) = found
    yield "brief in 80 columns", lambda: render_details(diff, sides, width=80)
    yield "text", lambda: render_text(diff, sides)
    yield "json", lambda: encode(diff)
    yield "markdown", lambda: markdown(a, b, diff)
    yield "normalized", lambda: normalize_diff(diff)
    yield "ignoring", lambda: ignore_fields(diff, ["attrs.e*", "*s.x", "saved.*.bytes"])
    yield (
        "conditions",
        lambda: list(outcomes(diff, sides, parse_conditions("cuts,nodes,params,saved-bytes>5%,edges>1"))),
    )
    parts: list[Graph] = []
    yield "changed part", lambda: parts.append(cut_changed_part(a, b, diff))
    for name in ("dot", "mermaid"):
        yield f"export {name}", lambda name=name: registry.export(name, parts[0], {})
    yield "patch", lambda: gradir.patch(a, diff)


def assert_one_line(error: GradirError) -> None:
    assert str(error).isprintable()


def peak_of(job: Job) -> int:
    """The most memory, in bytes, that something took; one clear error is a result too."""

    def run() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                job()
            except GradirError as refusal:
                assert_one_line(refusal)

    return measure_memory(run)[1]


def promised(name: str) -> int:
    return next((most for word, most in PROMISED_OF_LEVELS.items() if word in name.split()), PROMISED_PER_BYTE)


@pytest.fixture(scope="module", autouse=True)
def _imported() -> None:
    """What is imported when it is first needed is no memory of the graph's."""
    a, b = map(gradir.loads, pairs(16)["listed"])
    for _, job in chain(of_one(a), of_two(a, b)):
        peak_of(job)


@pytest.mark.parametrize(
    ("name", "documents"), pairs(SIZE).items(), ids=lambda value: value if isinstance(value, str) else ""
)
def test_memory_is_in_proportion_to_the_document(name: str, documents: tuple[bytes, bytes]) -> None:
    graphs = [gradir.loads(data) for data in documents]
    for what, job in of_one(graphs[0]):
        assert peak_of(job) < promised(what) * len(documents[0]) + (1 << 20), (name, what)
    for what, job in of_two(*graphs):
        assert peak_of(job) < promised(what) * sum(map(len, documents)) + (1 << 20), (name, what)


def ladder(levels: int, **last: object) -> list[Scope]:
    """A table in which each module lies in the one before."""
    paths = [".".join("a" * level) for level in range(levels + 1)]
    return [*(Scope(path, "C", calls=1) for path in paths[:-1]), Scope(paths[-1], "C", calls=1, **last)]


def test_lines_of_deep_modules_are_indented_to_a_limit() -> None:
    lines = registry.export("modules", Graph.of([], ladder(200, detail="one\ntwo")), {}).splitlines()
    margins = [len(line) - len(line.lstrip()) for line in lines]
    assert margins[:65] == [2 * level for level in range(65)]
    assert max(margins) == 2 * DEEPEST
    assert [line.strip() for line in lines[200:204]] == ["(a): C(", "one", "two", ")"]


def layers_of(graph: Graph) -> list[Any]:
    found: list[Any] = json.loads(registry.export("summary", graph, {"style": "json"}))["layers"]
    return found


def leaving(shapes: list[tuple[int, ...]], scopes: list[Scope]) -> Graph:
    made = [
        Node(f"f:{number}", op="f", scope=scopes[-1].path, outputs=(TensorMeta("float32", shape),))
        for number, shape in enumerate(shapes)
    ]
    inputs = tuple(Ref(node.id, 0) for node in made)
    return Graph.of([*made, Node("output", role="output", inputs=inputs)], scopes)


def test_shapes_that_are_reported_for_each_module_above_are_few_and_short() -> None:
    scopes = ladder(3)
    for sizes, shown in ((64, [[7] * 64]), (65, [None])):
        assert [layer["output_shapes"] for layer in layers_of(leaving([(7,) * sizes], scopes))][1:] == [shown] * 3
    for count, shown in ((16, [[number] for number in range(16)]), (17, None)):
        graph = leaving([(number,) for number in range(count)], scopes)
        assert [layer["output_shapes"] for layer in layers_of(graph)][1:] == [shown] * 3


@pytest.mark.parametrize("levels", [10, DEEPEST - 2, DEEPEST - 1, DEEPEST, 200])
def test_a_renamed_module_is_found_however_deep_its_path_is(levels: int) -> None:
    def model(head: str) -> Graph:
        path = ".".join([head, *"a" * levels])
        return Graph.of([Node(f"{path}/f:1", op="f", scope=path)], [Scope(""), Scope(path, "C")])

    a, b = model("x"), model("y")
    diff = gradir.diff(a, b)
    assert [(change.kind, change.subject, change.old_id, change.id) for change in diff.changes] == [
        ("renamed", "module", "x", "y")
    ]
    assert gradir.patch(a, diff) == b


def test_going_up_from_a_path_takes_few_steps() -> None:
    path = ".".join(str(number) for number in range(1_000))
    found = list(walk_up(path))
    assert len(found) == DEEPEST
    assert found[0] == path
    assert found[1:] == [".".join(str(number) for number in range(count)) for count in range(DEEPEST - 1, 0, -1)]
    assert split_path(path) == (found[1], path[len(found[1]) + 1 :])


@given(st.lists(st.text("ab.", max_size=6)), st.text("ab.", max_size=4))
def test_ancestors_of_a_path_are_found_among_sorted_paths(paths: list[str], path: str) -> None:
    assert (path in Ancestors(paths)) == (not path or any(f"{other}.".startswith(f"{path}.") for other in paths))
