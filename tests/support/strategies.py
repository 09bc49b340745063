"""Hypothesis strategies for whole graphs."""

from __future__ import annotations

from functools import cache
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st

from gradir.ir import Builder, Cut, Graph, NonFinite, Producer, Saved, Scope, Source, TensorMeta
from gradir.ir.build import Value

many = settings(max_examples=10 * settings().max_examples)
"""For a property of many cases, each of which takes no time."""

texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
words = st.sampled_from(["add", "mul", "t", "addmm", "end", "a b", 'q"', "x:1", "u/v", "é"])
scopes = st.sampled_from(["", "a", "a.b", "a.b.c", "layers.0", "layers.1", "a/b"])
int64s = st.integers(-(2**63), 2**63 - 1)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    int64s,
    st.floats(allow_nan=False, allow_infinity=False),
    texts,
    st.sampled_from([NonFinite("nan"), NonFinite("inf"), NonFinite("-inf")]),
)
lists = st.lists(st.one_of(scalars, st.lists(scalars, max_size=3).map(tuple)), max_size=3).map(tuple)
attrs = st.dictionaries(texts, st.one_of(scalars, lists), max_size=3)
shapes = st.one_of(st.none(), st.lists(st.one_of(st.integers(0, 9), st.just("s0")), max_size=3).map(tuple))
dtypes = st.sampled_from([None, "float32", "bfloat16", "int64"])
metas = st.builds(TensorMeta, dtypes, shapes, st.sampled_from(["cpu", "cuda:0"]))


saved_slots = st.builds(
    Saved,
    words,
    dtypes,
    shapes,
    st.one_of(st.none(), st.integers(0, 1000)),
    storage=st.sampled_from(["", "shared"]),
    state=st.sampled_from(["held", "freed", "hooked"]),
)

# What every graph draws from is made once: hypothesis looks through each strategy that it has not seen yet.
_place = st.integers(0, 99)
_place_or_none = st.one_of(st.none(), _place)
_tensors = st.lists(st.tuples(texts, metas, st.sampled_from(["leaf", "parameter"]), scopes), min_size=1, max_size=3)
_functions = st.fixed_dictionaries(
    {
        "inputs": st.lists(_place_or_none, max_size=3),
        "outputs": st.lists(metas, min_size=1, max_size=2),
        "native": texts,
        "scope": scopes,
        "names": st.lists(texts, max_size=2),
        "attrs": attrs,
        "saved": st.lists(st.tuples(saved_slots, _place_or_none), max_size=2),
        "opaque": st.booleans(),
        "source": st.one_of(st.none(), st.builds(Source, texts, st.integers(0, 99), texts)),
    }
)
_outputs = st.lists(st.tuples(_place, _place_or_none), min_size=1, max_size=3)
_scopes = st.lists(
    st.builds(Scope, scopes, texts, texts, st.integers(0, 3), training=st.sampled_from([None, True, False])),
    unique_by=lambda scope: scope.path,
)
_cuts = st.lists(st.builds(Cut, texts, st.lists(texts, max_size=2).map(tuple), scopes, metas), max_size=2)
_producers = st.builds(Producer, texts, texts, texts, attrs)


def _at(place: int | None, values: list[Value]) -> Value | None:
    return None if place is None else values[place % len(values)]


@cache
def graphs(max_functions: int = 12) -> st.SearchStrategy[Graph]:
    """Valid graphs: a random DAG over a few leaves, with several outputs."""
    functions = st.lists(st.tuples(words, _functions), max_size=max_functions)
    return st.builds(_graph, _tensors, functions, _outputs, _scopes, _cuts, _producers)


def _graph(
    tensors: list[tuple[str, TensorMeta, str, str]],
    functions: list[tuple[str, dict[str, Any]]],
    outputs: list[tuple[int, int | None]],
    scopes: list[Scope],
    cuts: list[Cut],
    producer: Producer,
) -> Graph:
    b = Builder()
    values = [b.tensor(name, meta, role=role, scope=scope) for name, meta, role, scope in tensors]
    for op, drawn in functions:
        inputs = [_at(place, values) for place in drawn["inputs"]]
        saved = [(slot, _at(place, values)) for slot, place in drawn["saved"]]
        value = b.function(op, **{**drawn, "inputs": inputs, "saved": saved})
        values.append(value)
        values.extend(value.output(nr) for nr in range(1, len(drawn["outputs"])))
    bases = [value for value in values if not value.output_nr]
    for number, (place, base) in enumerate(outputs):
        b.output(values[place % len(values)], str(number), base=_at(base, bases))
    return b.build(scopes=scopes, cuts=cuts, producer=producer)


_META = TensorMeta("float32", (2, 3))


@st.composite
def stacks(draw: st.DrawFn) -> tuple[Graph, int]:
    """Blocks made by one recipe, each taking what the one before gave, and shared inputs; with its length."""
    b = Builder()
    state = [b.tensor(f"x{number}", _META) for number in range(draw(st.integers(1, 2)))]
    shared = b.tensor("shared", _META)
    sources = [*range(-len(state) - 1, 0)]
    recipe = [
        draw(st.lists(st.sampled_from([None, *sources, *range(number)]), min_size=1, max_size=3))
        for number in range(draw(st.integers(1, 5)))
    ]
    gives = draw(st.lists(st.integers(0, len(recipe) - 1), min_size=len(state), max_size=len(state)))
    length = draw(st.integers(2, 4))
    for block in range(length):
        made: list[Value] = []
        known = [*state, shared]
        for number, slots in enumerate(recipe):
            values = [None if slot is None else made[slot] if slot >= 0 else known[slot] for slot in slots]
            made.append(b.function(f"op{number}", values, [_META], scope=f"h.{block}.m{number % 2}"))
        state = [made[place] for place in gives]
    for number, value in enumerate(state):
        b.output(value, str(number))
    return b.build(), length
