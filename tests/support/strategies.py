"""Hypothesis strategies for whole graphs."""

from __future__ import annotations

from hypothesis import strategies as st

from gradir.ir import Builder, Cut, Graph, NonFinite, Producer, Saved, Scope, Source, TensorMeta
from gradir.ir.build import Value

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


@st.composite
def saved_slots(draw: st.DrawFn) -> Saved:
    return Saved(
        draw(words),
        draw(dtypes),
        draw(shapes),
        draw(st.one_of(st.none(), st.integers(0, 1000))),
        storage=draw(st.sampled_from(["", "shared"])),
        state=draw(st.sampled_from(["held", "freed", "hooked"])),
    )


@st.composite
def graphs(draw: st.DrawFn, max_functions: int = 12) -> Graph:
    """A valid graph: a random DAG over a few leaves, with several outputs."""
    b = Builder()
    values = [
        b.tensor(draw(texts), draw(metas), role=draw(st.sampled_from(["leaf", "parameter"])), scope=draw(scopes))
        for _ in range(draw(st.integers(1, 3)))
    ]
    for _ in range(draw(st.integers(0, max_functions))):
        inputs = draw(st.lists(st.one_of(st.none(), st.sampled_from(values)), max_size=3))
        outputs = draw(st.lists(metas, min_size=1, max_size=2))
        value = b.function(
            draw(words),
            inputs,
            outputs,
            native=draw(texts),
            scope=draw(scopes),
            names=draw(st.lists(texts, max_size=2)),
            attrs=draw(attrs),
            saved=[
                (slot, draw(st.sampled_from([None, *values]))) for slot in draw(st.lists(saved_slots(), max_size=2))
            ],
            opaque=draw(st.booleans()),
            source=draw(st.one_of(st.none(), st.builds(Source, texts, st.integers(0, 99), texts))),
        )
        values.append(value)
        values.extend(value.output(nr) for nr in range(1, len(outputs)))
    bases = [value for value in values if not value.output_nr]
    for number in range(draw(st.integers(1, 3))):
        b.output(draw(st.sampled_from(values)), str(number), base=draw(st.one_of(st.none(), st.sampled_from(bases))))
    paths = draw(st.lists(scopes, unique=True))
    return b.build(
        scopes=[
            Scope(
                path,
                draw(texts),
                draw(texts),
                draw(st.integers(0, 3)),
                training=draw(st.sampled_from([None, True, False])),
            )
            for path in paths
        ],
        cuts=draw(st.lists(st.builds(Cut, texts, st.lists(texts, max_size=2).map(tuple), scopes, metas), max_size=2)),
        producer=draw(st.builds(Producer, texts, texts, texts, attrs)),
    )


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
