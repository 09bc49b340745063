"""Graphs of two frameworks in the words that both share."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from samples import chain, everything, hostile
from strategies import graphs

import gradir
from gradir.ir import Builder, Graph, Producer, Scope, TensorMeta
from gradir.ir.build import Value
from gradir.ir.validate import check_all
from gradir.passes.rules import Term, parse_condition, parse_rule, parse_term
from gradir.passes.shared_words import shared_name, translate_to_shared_terms
from gradir.passes.translating import parameter_shape
from gradir.review.reviewing import review_graphs
from gradir.vocabulary.jax import VOCABULARY as JAX
from gradir.vocabulary.pytorch import VOCABULARY as TORCH
from gradir.vocabulary.shared import RULES

PORTS = Path(__file__).parent / "ports"
X = TensorMeta("float32", (4, 8))
ROW = TensorMeta("float32", (4,))


def below(term: Term) -> list[Term]:
    return [term, *(each for child in term.inputs for each in below(child))]


def variables(term: Term) -> set[str]:
    named = {each.name for each in below(term) if each.kind == "value" and not each.name.isdecimal()}
    return named | {each.alias for each in below(term) if each.alias}


@pytest.mark.parametrize("text", RULES)
def test_a_rule_makes_nothing_that_its_pattern_does_not_have(text: str) -> None:
    rule = parse_rule(text)
    assert rule.pattern.kind == "word"
    assert variables(rule.replacement) <= variables(rule.pattern)
    assert rule.condition in ("", "mean", "last", "lead")


@pytest.mark.parametrize("words", [TORCH, JAX], ids=["torch", "jax"])
def test_every_operation_has_a_term_of_its_slots(words) -> None:
    for key, text in words.shared.items():
        op, _ = parse_condition(key)
        assert op, key
        if "(" in text:
            assert all(name.isdecimal() for name in variables(parse_term(text)) | {"0"}), key


@pytest.mark.parametrize(
    "text", ["mul(x", "mul x)", "mul(x))", "", "~", "mul(x, a=)", "mul(x[0])", "x.y", "1.5", "(" * 40, "~" * 100_000]
)
def test_a_term_that_is_written_otherwise_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a term"):
        parse_term(text)


class Written:
    """Writes a graph as JAX traces one."""

    def __init__(self) -> None:
        self.b = Builder()
        self.x = self.b.tensor("x", X, role="parameter")

    def __call__(self, op: str, *inputs: Value | None, shape: TensorMeta = X, **attrs: object) -> Value:
        return self.b.function(op, inputs, [shape], attrs=attrs)

    def parameter(self, name: str) -> Value:
        return self.b.tensor(name, TensorMeta("float32", (8,)), role="parameter")

    def shared(self, value: Value) -> list[str]:
        self.b.output(value)
        graph = translate_to_shared_terms(self.b.build(producer=Producer(framework="jax")))
        return [node.op for node in graph.nodes.values() if node.op]

    def mean(self, value: Value, count: float = 8.0) -> Value:
        return self("div", self("reduce_sum", value, shape=ROW, axes=(1,)), None, shape=ROW, in1=count)

    def softmax(self, value: Value) -> Value:
        raised = self("exp", self("sub", value, None))
        return self("div", raised, self("reduce_sum", raised, shape=ROW, axes=(1,)))


def test_a_sum_is_a_mean_where_it_is_divided_by_how_many_it_adds() -> None:
    w = Written()
    assert w.shared(w.mean(w.x)) == ["mean"]
    w = Written()
    assert w.shared(w.mean(w.x, 7.0)) == ["sum", "div"]


@pytest.mark.parametrize(("constants", "word"), [({"in1": 0.0}, "relu"), ({"in1": 1.0}, "maximum"), ({}, "maximum")])
def test_a_maximum_is_a_relu_only_beside_a_zero_that_is_known(constants: dict[str, float], word: str) -> None:
    w = Written()
    assert w.shared(w("max", w.x, None, **constants)) == [word]


def test_symbolic_sizes_of_a_parameter_come_after_numbers() -> None:
    assert parameter_shape(("s0", 8, 1, 2), ()) == (2, 8, "s0")


def test_softmax() -> None:
    w = Written()
    assert w.shared(w.softmax(w.x)) == ["softmax"]
    w = Written()
    shifted = w("sub", w.x, None)
    log = w("log", w("reduce_sum", w("exp", shifted), shape=ROW, axes=(1,)), shape=ROW)
    assert w.shared(w("sub", shifted, log)) == ["log_softmax"]
    # Of another exponential it is none.
    w = Written()
    assert w.shared(w("div", w("exp", w.x), w("reduce_sum", w("exp", w.x), shape=ROW, axes=(1,)))) != ["softmax"]


@pytest.mark.parametrize("axes", [(1,), (0,)])
def test_a_norm_is_known_by_what_it_averages(axes: tuple[int, ...]) -> None:
    w = Written()

    def mean(value: Value) -> Value:
        count = 8.0 if axes == (1,) else 4.0
        shape = TensorMeta("float32", (32 // int(count),))
        return w("div", w("reduce_sum", value, shape=shape, axes=axes), None, shape=shape, in1=count)

    centred = w("sub", w.x, mean(w.x))
    variance = w("max", None, w("sub", mean(w("square", w.x)), w("square", mean(w.x))), in0=0.0)
    scaled = w("mul", w("rsqrt", w("add", variance, None)), w.parameter("scale"))
    found = w.shared(w("add", w("mul", centred, scaled), w.parameter("bias")))
    assert found == ["layer_norm" if axes == (1,) else "batch_norm"]


def test_a_residual_is_no_bias_of_a_norm() -> None:
    w = Written()
    centred = w("sub", w.x, w.mean(w.x))
    y = w("tanh", w.x)
    normed = w("mul", centred, w("rsqrt", w("add", w.mean(w("square", centred)), None)))
    assert w.shared(w("add", normed, y)) == ["layer_norm", "tanh", "add"]


def test_gelu_of_either_kind_says_which() -> None:
    w = Written()
    inner = w("add", w.x, w("mul", None, w("integer_pow", w.x, y=3)))
    outer = w("mul", None, w("add", None, w("tanh", w("mul", None, inner))))
    w.b.output(w("mul", w.x, outer))
    by_tanh = translate_to_shared_terms(w.b.build(producer=Producer(framework="jax")))
    w = Written()
    w.b.output(w("mul", w("mul", None, w.x), w("erfc", w("mul", w("neg", w.x), None))))
    exactly = translate_to_shared_terms(w.b.build(producer=Producer(framework="jax")))
    found = [next(dict(n.attrs) for n in g.nodes.values() if n.op == "gelu") for g in (by_tanh, exactly)]
    assert found == [{"approximate": "tanh"}, {"approximate": "none"}]


def test_attention_is_one_word_with_masks_and_factors() -> None:
    w = Written()
    q, k, v = (w(name, w.x) for name in ("tanh", "exp", "sin"))
    scores = w("select_n", None, None, w("div", w("dot_general", w("mul", q, None), k), None))
    assert w.shared(w("dot_general", v, w.softmax(scores))) == ["tanh", "exp", "sin", "attention"]


def test_equal_operations_elsewhere_stay() -> None:
    w = Written()
    sigmoid = w("logistic", w.x)
    assert w.shared(w("add", w("mul", w.x, sigmoid), sigmoid)) == ["silu", "sigmoid", "add"]


@pytest.mark.parametrize(("with_modules", "ids"), [(True, ["a/mul:1", "a/add:1"]), (False, ["a/mul:1", "b/add:1"])])
def test_an_operation_is_in_the_module_that_ran_it_or_in_that_of_its_parameter(
    with_modules: bool, ids: list[str]
) -> None:
    b = Builder()
    a_w, b_w = (b.tensor(f"{path}.w", X, role="parameter", scope=path) for path in "ab")
    value = b.function("mul", [b.tensor("x", X, role="parameter"), a_w], [X], scope="a")
    b.output(b.function("add", [value, b_w], [X], scope="a"))
    graph = b.build(scopes=[Scope("a", "A", calls=1), Scope("b", "B")], producer=Producer(framework="jax"))
    shared = translate_to_shared_terms(graph, with_modules=with_modules)
    assert [node.id for node in shared.nodes.values() if node.op] == ids


def test_an_operation_without_a_shared_term_keeps_its_name() -> None:
    w = Written()
    w.b.output(w.b.function("mystery", [w.x], [X], opaque=True))
    shared = translate_to_shared_terms(w.b.build(producer=Producer(framework="jax")))
    assert [(node.op, node.native) for node in shared.nodes.values() if node.op] == [("mystery", "mystery")]


def test_factors_that_are_constants_are_one() -> None:
    w = Written()
    assert w.shared(w("mul", w("mul", None, w("mul", w.x, None)), None)) == ["mul"]


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_a_norm_without_gradient_is_its_scale_and_shift(framework: str) -> None:
    b = Builder()
    scale, bias = (b.tensor(name, ROW, role="parameter") for name in ("ln.weight", "ln.bias"))
    if framework == "torch":
        value = b.function("native_layer_norm", [None, scale, bias], [X])
    else:
        value = b.function("add", [b.function("mul", [None, b.function("mul", [None, scale], [X])], [X]), bias], [X])
    b.output(value)
    shared = translate_to_shared_terms(b.build(producer=Producer(framework=framework)))
    assert [node.op for node in shared.nodes.values() if node.op] == ["mul", "add"]


def test_names_are_those_of_all_frameworks() -> None:
    assert shared_name("layers_3.attn.kernel") == shared_name("layers.3.attn.weight")
    assert shared_name("wte.embedding") == "wte.weight"
    assert shared_name("a_b_c") == "a_b_c"


def test_two_parameters_that_would_be_called_the_same_keep_their_names() -> None:
    b = Builder()
    one, other = (b.tensor(name, X, role="parameter") for name in ("fc.kernel", "fc.scale"))
    b.output(b.function("mul", [one, other], [X]))
    shared = translate_to_shared_terms(b.build(producer=Producer(framework="jax")))
    assert {node.names[0] for node in shared.nodes.values() if node.names} == {"fc.kernel", "fc.scale"}


@given(graphs())
def test_any_graph_can_be_described(graph: Graph) -> None:
    for framework in ("", "jax", "torch"):
        made = Graph.of(graph.nodes.values(), graph.scopes.values(), graph.cuts, Producer(framework=framework))
        for with_modules in (True, False):
            shared = translate_to_shared_terms(made, with_modules=with_modules)
            check_all(shared)
            assert gradir.loads(gradir.dumps(shared)) == shared
            # Of what an output depends on nothing is lost but what is one with something else.
            assert sum(n.role == "output" for n in shared.nodes.values()) == sum(
                n.role == "output" for n in graph.nodes.values()
            )
        assert not review_graphs(made, made, vocabulary=True)


@given(graphs(), graphs())
def test_a_difference_has_two_sides(one: Graph, other: Graph) -> None:
    there, back = (review_graphs(*pair, vocabulary=True) for pair in ((one, other), (other, one)))
    assert bool(there) == bool(back)
    for form in ("text", "markdown", "json", "dot"):
        assert there.to(form)


@pytest.mark.parametrize("graph", [hostile(), everything()], ids=["hostile", "everything"])
def test_hostile_names_and_every_record_are_taken(graph: Graph) -> None:
    shared = translate_to_shared_terms(graph)
    check_all(shared)
    assert not review_graphs(graph, graph, vocabulary=True)
    assert "\x1b" not in str(gradir.diff(graph, Graph.of([]), vocabulary=True))


def test_a_deep_graph_is_reported_in_no_time_of_its_depth() -> None:
    graph = chain(20_000)
    assert len(translate_to_shared_terms(graph).nodes) == len(graph.nodes)


@pytest.mark.parametrize("op", ["div", "neg", "add"])
def test_a_long_chain_of_one_word_is_not_gone_through_again_and_again(op: str) -> None:
    w = Written()
    value = w.x
    for _ in range(20_000):
        value = w(op, value, None) if op != "neg" else w(op, value)
    assert len(w.shared(w.mean(value))) == 20_001


def test_another_framework_is_reported_with_advice() -> None:
    a = Graph.of(everything().nodes.values(), producer=Producer(framework="torch", framework_version="2.13"))
    b = Graph.of([], producer=Producer(framework="jax", framework_version="0.10"))
    assert "the frameworks differ: torch 2.13 and jax 0.10" in str(gradir.diff(a, b))
    assert "--vocabulary" in str(gradir.diff(a, b))
    assert "--vocabulary" not in str(gradir.diff(a, b, vocabulary=True))
    assert "--vocabulary" not in str(gradir.diff(a, Graph.of([])))


def test_a_parameter_without_gradient_is_one_whatever_the_framework_says_of_it() -> None:
    def graph(framework: str, kind: str, name: str) -> Graph:
        cut = gradir.Cut(kind, (name,), tensor=TensorMeta("float32", (2, 3)))
        return Graph.of([], [], [cut], Producer(framework=framework))

    a, b = graph("torch", "unreached", "h.0.weight"), graph("jax", "stop_gradient", "h_0.kernel")
    assert not gradir.diff(a, b, vocabulary=True)
    assert gradir.diff(a, graph("jax", "unused", "h_1.kernel"), vocabulary=True)
