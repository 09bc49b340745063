"""Examples of functions that the documentation does not list, in the namespace of their modules."""

from __future__ import annotations

import doctest
from importlib import import_module

import pytest

EXAMPLES = {
    "gradir.watches.charts": """\
>>> print(markup("</script>\\u202e\\n"))
&lt;/script&gt;\\u202e\\n

>>> format_number(0.123456789), format_number("nan"), format_number(None)
('0.1235', 'NaN', 'no value')

>>> find_worst([1.0, None, 3.0]), find_worst([1.0, "inf", "nan"]), find_worst([])
(3.0, 'nan', None)

>>> _round_step(499, 8), _round_step(0.7, 4), _round_step(0, 4)
(100.0, 0.2, 0.0)

>>> columns = Columns([Step(number) for number in range(1, 1201)], rows=1)
>>> len(columns), columns.name(0), columns.place(1200)
(600, 'steps 1-2', 599)

>>> format_count(52380), format_count(None)
('52,380', 'no value')

>>> format_memory(3 * 2**30), format_memory(1000)
('3 GiB', '1000 B')
""",
    "gradir.ir.text": """\
>>> print(quote("red \\x1b[31m"))
"red \\u001b[31m"

>>> value_text((1, 1.0, True, None, "a"))
'[1, 1.0, true, null, "a"]'

>>> amount(2_000), amount(2_000, signed=True), amount(2**63 - 1), amount(-(2**63), signed=True)
('2,000', '+2,000', '≥ 9,223,372,036,854,775,807', '≤ -9,223,372,036,854,775,807')

>>> pluralize(1, "node"), pluralize(2_000, "node"), pluralize(0, "leaf", "leaves")
('1 node', '2,000 nodes', '0 leaves')

>>> short_bytes(1_536_000), short_bytes(12, signed=True)
('1.5 MB', '+12 B')

>>> summarize_error(ValueError("no such\\n key \\x1b"))
'no such key \\\\x1b'

>>> shorten("a long message", 9)
'a lo…sage'
""",
    "gradir.explanations.from_cuts": """\
>>> from gradir.ir import Source
>>> one, two = (Cause("detach", "error", "detach", (name,), Source("net.py", 7)) for name in "ab")
>>> [cause.names for cause in unite_causes([one, two, replace(one, level="info")], {"a": "reached", "b": "cut"})]
[('b', 'a'), ('a',)]
>>> block = [Cause("no_grad", "error", "linear", (f"t.{line}",), Source("net.py", line)) for line in (3, 4, 6)]
>>> [(cause.names, cause.detail) for cause in unite_causes(block, {})]
[(('t.3', 't.4', 't.6'), 'so did the operations at net.py:4, net.py:6')]
>>> used = [replace(two, kind="withheld", names=(name,), detail=f"used at {name}.py:3") for name in "ab"]
>>> [(cause.names, cause.detail) for cause in unite_causes(used, {})]
[(('a', 'b'), 'used at a.py:3, b.py:3')]
""",
    "gradir.diffs.sequences": """\
>>> longest_increasing([(0, 5), (1, 1), (2, 2), (3, 0), (4, 7)])
[(1, 1), (2, 2), (4, 7)]

>>> find_overtaken([("h.0", "h.0"), ("h.1", "h.2"), ("h.2", "h.3")])
>>> find_overtaken([("h.0", "h.0"), ("h.1", "h.2"), ("h.2", "h.1")])
('h.2', 'h.1')

>>> cheapest_alignment([3, 3, 3], [3, 3], lambda x, y: abs(x - y - 1))
[(1, 0), (2, 1)]

>>> align([1, 2, 9, 3], [1, 8, 3], [Gap(0, 4, 0, 3)])
([(0, 0), (3, 2)], [Gap(start=1, end=3, other_start=1, other_end=2)])
""",
    "gradir.review.wording": """\
>>> field_value_texts(FieldChange(("in", 0), Ref("h.5/add:1", 0), Ref("h.5/add:1", 0)))
('h.5/add:1', 'another h.5/add:1')

>>> unknown_sizes(0, 3), unknown_sizes(58, 0)
('unknown for 3 slots', 'unknown for 58 slots before')

>>> wrap_text("+1 -0 ~0 cuts; +0 -1 ~0 nodes; edges -1", 26)
['+1 -0 ~0 cuts;', '  +0 -1 ~0 nodes; edges -1']
""",
    "gradir.review.united": """\
>>> from gradir.review.reviewing import review_graphs
>>> united = UnionGraph(review_graphs(Graph.of([Node("x")]), Graph.of([Node("y", op="exp")])))
>>> [(node.id, dict(node.ext)) for node in united.graph.nodes.values()]
[('x', {'diff': 'removed'}), ('y', {'diff': 'added'})]
""",
    "gradir.vocabulary.causes": """\
>>> describe_cause("exit", "item", ["a", "b", "c", "d", "e", "f"]).text
'item turns a tensor into plain numbers, which cuts a, b, c, d and 2 more'
>>> describe_cause("frozen", "", ["g.0.bias"]).text, describe_cause("frozen", "", ["g.0.bias", "g.1.bias"]).text
('g.0.bias has requires_grad=False', 'g.{0,1}.bias have requires_grad=False')
>>> describe_cause("detach", "detach", ["a"], pattern="teacher").text
'detach() cuts a: it is part of a teacher, whose results are targets'

>>> format_names(["g.0.weight", "g.0.bias", "g.2.weight", "g.2.bias"]), format_names(["weight", "bias"])
('g.{0,2}.{weight,bias}', 'weight, bias')
""",
    "gradir.passes.shared_words": """\
>>> from gradir.ir import Builder, Producer
>>> b = Builder()
>>> w, x = (b.tensor(name, TensorMeta("float32", (2, 2)), role="parameter") for name in ("fc_1.kernel", "x"))
>>> y = b.function("dot_general", [x, w], [TensorMeta("float32", (2, 2))])
>>> z = b.function("logistic", [y], [TensorMeta("float32", (2, 2))])
>>> b.output(b.function("mul", [y, z], [TensorMeta("float32", (2, 2))]))
>>> shared = translate_to_shared_terms(b.build(producer=Producer(framework="jax")), with_modules=False)
>>> [(node.id, node.native) for node in shared.nodes.values() if node.op]
[('fc.1/matmul:1', 'dot_general'), ('silu:1', 'logistic, mul')]

>>> shared_name("h_0.ln_1.scale"), shared_name("h.0.ln_1.weight")
('h.0.ln.1.weight', 'h.0.ln.1.weight')
""",
    "gradir.frontends.walks": """\
>>> list(find_reachable("a", {"a": "bc", "b": "c", "c": "a"}.__getitem__))
['a', 'b', 'c']

>>> lengths: dict[str, int] = {}
>>> compute_bottom_up("ab", lengths, lambda text: [text[1:]] if text else [], len), lengths
(2, {'': 0, 'b': 1, 'ab': 2})

>>> list(follow(3, lambda number: number - 1 or None))
[3, 2, 1]
""",
    "gradir.ir.memo": """\
>>> table = Table([""])
>>> [table["a"], table["b"], table["a"], table[""]], list(table)
([1, 2, 1, 0], ['', 'a', 'b'])

>>> group_by_key((len(word), word) for word in ("a", "to", "b"))
{1: ['a', 'b'], 2: ['to']}

>>> len({exact_key(value) for value in (1, 1.0, True, "1", (1,), (1.0,), 0.0, -0.0)})
8
>>> exact_key(2**70) is None
True
""",
    "gradir_exporters._box_words": """\
>>> from gradir.ir.model import Node, Source
>>> failure_lines(Node("mm", ext={"failed": "ValueError: no\\nat all"}, source=Source("net.py", 9)))
['× ValueError: no …', 'net.py:9']

>>> from gradir.ir import Scope
>>> frame_name("×49", Scope("cell.×49", detail="each feeds the next")), frame_name("fc", Scope("fc", "Linear", "3"))
('×49, each feeds the next', 'fc (Linear)')
>>> frame_name("scan", Scope("scan", rounds=5))
'scan (×5)'

>>> from gradir.ir import Builder, TensorMeta
>>> b = Builder()
>>> w = b.tensor("fc.w", TensorMeta("float32", (3,)), role="parameter", scope="fc")
>>> b.output(b.function("exp", [w], [TensorMeta("float32", (3,))], scope="fc"))
>>> drawn, words = inline_parameters(b.build())
>>> list(drawn.nodes), words
(['fc/exp:1', 'output'], {'fc/exp:1': 'w [3]'})

>>> weight_texts(Node("fc", role="module", attrs={"weights": (("weight", (2, 3)), ("bias", None), "?")}))
['weight [2, 3]', 'bias [?]']
""",
    "gradir.frontends.pytorch.explaining.naming": """\
>>> list_first(["exp at a.py:1", "mul at a.py:2"]), list_first("abcde")
('exp at a.py:1, mul at a.py:2', 'a, b, c and 2 more')
""",
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_each_example_gives_what_it_shows(name: str) -> None:
    module = import_module(name)
    test = doctest.DocTestParser().get_doctest(EXAMPLES[name], dict(vars(module)), name, None, 0)
    assert test.examples
    assert doctest.DocTestRunner().run(test).failed == 0
