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
    "gradir.cli.rank_files": """\
>>> fill_in_own_rank("run.{rank}-of-{world}.gir", {"RANK": "3", "WORLD_SIZE": "16"})
'run.3-of-16.gir'

Raises:
    SpecError: each of several processes would write the same file, or a variable of the launcher is no number.

>>> read_launcher({"RANK": "3", "WORLD_SIZE": "16"}), read_launcher({"RANK": "0", "WORLD_SIZE": "1"})
((3, 16), None)

Raises:
    SpecError: a variable of the launcher is no number, or the rank is out of range.
""",
    "gradir.cli.many_ranks": """\
>>> mesh = Rank(0, 8, coordinates={"dp": 0, "tp": 0}, groups={"dp": (0, 4), "tp": (0, 1, 2, 3)})
>>> choose_ranks(mesh, []), choose_ranks(mesh, [((6, 8), ("dp:Replicate", "tp:Shard(0)"))])
((0, 3, 4, 7), (0, 2, 3, 4, 6, 7))
>>> choose_ranks(Rank(0, 8, coordinates={"tp": 0}, groups={"tp": (0, 1)}), []), choose_ranks(Rank(0, 8), [])
((0, 1, 6, 7), (0, 7))
""",
    "gradir.ir.jsontext": """\
>>> print(json_text({"a": "</script>\\x9b", "b": [None, 1]}))
{"a":"\\u003c/script>\\u009b","b":[null,1]}

>>> "".join(json_lines([{"a": 1}, {"a": 2}]))
'\\n{"a":1},\\n{"a":2}\\n'

>>> print(printable_json('{"a":"\\x9b\\u202e"}'.encode()))
{"a":"\\u009b\\u202e"}

>>> is_too_deep(b"[" * 1000), is_too_deep(b'{"":[' * 501), is_too_deep(rb'["\\"' + b"[" * 1001 + b'"]')
(False, True, False)
""",
    "gradir.diffs.field_changes": """\
>>> type_at(Node, ("saved", "mat1", 2, "bytes")) == type_at(Saved, ("bytes",))
True

>>> names_field("attrs.*_sizes", "attrs.self_sizes"), names_field("saved.mat", "saved.mat1.bytes")
(True, False)

>>> from gradir.vocabulary import Vocabulary
>>> setting_changes(None, Node("mul:1", attrs={"other": 0.5, "alpha": 1}), Vocabulary(defaults={"alpha": "1"}))
[FieldChange(path=('attrs', 'other'), before=UNSET, after=0.5)]
""",
    "gradir.ir.saved": """\
>>> a, b = (Node(f"{op}:1", saved=(Saved("self", bytes=8, storage="exp:1.result"),)) for op in ("mul", "sin"))
>>> saved = SavedBytes({"mul:1": a, "sin:1": b})
>>> saved.add(a, "fc"), saved.add(b, "head"), saved.total_by_account()
(None, None, {'fc': 8})

>>> read_merged(Node("x", ext={"merged": ((None, "held", 11, 0, 88), "held")}))
[Merged(path=None, state='held', slots=11, unsized=0, bytes=88)]

>>> bytes_beyond_slots(Node("fc", role="module", attrs={"saved_bytes": 96}))
96
>>> bytes_beyond_slots(Node("x", ext={"merged": ((None, "held", 11, 0, 88), (None, "", 0, 0, 4))}))
88
""",
    "gradir_exporters._box_looks": """\
>>> wrap_text("no_grad (linear) at net.py:41: encoder.layers.0.attention.weight and 2 more")
['no_grad (linear) at net.py:41:', 'encoder.layers.0.attention.weight', 'and 2 more']
>>> wrap_text("a_model_with_a_long_name.encoder_layers.first")
['a_model_with_a_long_name.encoder_', 'layers.first']

>>> list(arrange_in_rows("output", ["a", "b", "c"], 2))
[('output', 'a'), ('output', 'b'), ('a', 'c')]
""",
    "gradir.git.configuration": """\
>>> ours = b'[diff "gradir"]\\n\\ttextconv = x\\n[difftool "gradir"]\\n\\tcmd = y\\n'
>>> remove_sections(b"# mine\\n" + ours)
b'# mine\\n'

>>> add_block("*.png binary\\n", ["*.gir diff=gradir"])
'*.png binary\\n# gradir: begin\\n*.gir diff=gradir\\n# gradir: end\\n'
""",
    "gradir.claims": """\
>>> other_format("model.onnx").partition(",")[0], other_format("model.gir")
('an ONNX model', '')

>>> reader_of("net.gir")
''
""",
    "gradir.passes.translating": """\
>>> _operand_sizes((((2,), (0,)), ((), ())), [(5, 7, 8), (8, 2, 4)])
((8, 1, 35), (8, 1, 8))

>>> parameter_shape((8, 2, 4), ())
(2, 4, 8)
""",
    "gradir.watches.watch_formats": """\
>>> json_line(Step(1, 1, 0.5))
'{"type":"step","number":1,"backward":1,"loss":0.5}\\n'

>>> short_number(0.123456789), short_number("nan"), short_number(None)
('0.1235', 'nan', '')
""",
    "gradir_exporters._mermaid_picture": """\
>>> print(escape_label("h.0.attn <x>"))
h.0.attn #60;x#62;

>>> print(shorten_text("a\\x1b\\u202e"), shorten_text(" "), shorten_text(""))
a\\x1b\\u202e ␣ (empty)
""",
    "gradir.codecs.compression": """\
>>> compression_for("model.gir.gz", None), compression_for("model.gir.gz", "none")
('gzip', None)
""",
    "gradir.codecs.faults": """\
>>> split_message(ValueError("Expected `str`, got `int` - at `$.op`"))
('expected `str`, got `int`', '$.op')
""",
    "gradir.diffs.matching.renames": """\
>>> tensor_rename("g.g", "g.g.g"), rename("g.g", "g.g.g")
(Rename(before='g', after='g.g'), Rename(before='g.g', after='g.g.g'))
""",
    "gradir.diffs.merging.values": """\
>>> merge_orders(["abc", "axbc", "abcy"])
(['a', 'x', 'b', 'c', 'y'], False)
""",
    "gradir.distributed.words": """\
>>> span([3]), span([0, 2, 1, 5]), span(range(0, 100, 2))
('rank 3', 'ranks 0-2, 5', 'ranks 0, 2, 4, 6, 8, 10 and 44 more')
""",
    "gradir.forwards": """\
>>> forward_name("a/loss.gir"), forward_name("loss.gir.zst"), forward_name("a.b/loss")
('a/loss.forward.gir', 'loss.forward.gir.zst', 'a.b/loss.forward')
""",
    "gradir.ir.totals": """\
>>> tensor_elements(TensorMeta(shape=(2, 3))), tensor_elements(TensorMeta(shape=(2**62,) * 100 + (0,)))
(6, 0)
""",
    "gradir.markdown": """\
>>> code_span("a|b"), code_span("`")
('`a\\\\|b`', '`` ` ``')
""",
    "gradir.pytest_plugin": """\
>>> _file_name("test_it[a/b]")
'test_it[a%2Fb]'
""",
    "gradir.review.relative_changes": """\
>>> relative_name("h.1.fc", "h.1.fc/exp:1"), relative_name("h.1.fc", "h.0/add:2")
(RelativeName(above=0, rest='/exp:1', step=0), RelativeName(above=2, rest='/add:2', step=-1))
""",
    "gradir.spec": """\
>>> parse_described("ids=int64[1,8]")
Described(name='ids', dtype='int64', shape=(1, 8))
""",
    "gradir.watches.page": """\
>>> _row_height(1), _row_height(20), _row_height(200)
(28, 16, 3.2)
""",
    "gradir.webpage": """\
>>> hash_for_policy("")
"'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='"
""",
    "gradir.ir.name_ranges": """\
>>> ranges(["h.0.attn", "h.1.attn", "h.2.attn", "h.0.mlp.fc", "h.1.mlp.fc", "h.2.mlp.fc"])
'h.{0..2}.{attn,mlp.fc}'
>>> ranges(["ln.weight", "ln.bias", "attn.proj.weight", "attn.proj.bias"])
'{ln,attn.proj}.{weight,bias}'
>>> ranges(["h_0.attn", "h_1.attn", "h_10.attn", "h_2.attn"])
'h_{0..2,10}.attn'
>>> ranges(["h.0", "h.1", "h.3", "h", "a b.{c}"])
'{h{,.{0,1,3}},"a b"."{c}"}'
""",
    "gradir.ir.fields": """\
>>> from gradir.ir.model import Node
>>> [field.name for field in fields_of(Node) if records_in(field)]
['inputs', 'outputs', 'saved', 'source']
""",
    "gradir.frontends.texts": """\
>>> from enum import Enum
>>> text_of(Enum("Mode", {"SUM": "sum"}, type=str).SUM), text_of(1)
('sum', '1')
""",
    "gradir.exporting": """\
>>> picture_options({"theme": "dark"}), picture_options({"depth": 2}), picture_options({"all": True})
({'layers': True, 'theme': 'dark'}, {'depth': 2}, {'all': True})
""",
    "gradir.ir.cuts": """\
>>> from gradir.ir.model import Source
>>> cut = Cut("no_grad", ("a", "b", "c"), op="mul", source=Source("net.py", 41))
>>> cut_text(cut), cut_text(cut, count=True)
('no_grad (mul) at net.py:41: a, b and 1 more', 'no_grad (mul) at net.py:41 (3 parameters)')

>>> graph = Graph.of([], cuts=[Cut("unreached", ("w",)), Cut("detach", ("v",), op="detach")])
>>> [stub.reason for stub in stubs(graph)]
['detach: v', 'unreached: w']

>>> from gradir.ir.model import Producer
>>> a, b = Graph.of([]), Graph.of([], producer=Producer(options={FLOW: True}))
>>> find_graph_without_flow(a, b) is a, find_graph_without_flow(b, a) is a, find_graph_without_flow(b, b)
(True, True, None)
""",
    "gradir.files": """\
>>> import tempfile
>>> with tempfile.TemporaryDirectory() as folder:
...     made = [folder_to_make(f"{folder}/{name}") for name in ("loss.gir", "out/loss.gir")]
...     made == ["", f"{folder}/out"]
True
""",
    "gradir.vocabulary.__init__": """\
>>> Vocabulary(values={"reduction": ("none", "mean")}).value_name("nll_loss", "reduction", 1)
'mean'

>>> Vocabulary(descriptions={"affine=True, bias=True": "affine=True"}).describe_the_same(
...     "8, eps=1e-05, affine=True", "8, eps=1e-05, affine=True, bias=True"
... )
True

>>> from gradir.ir import Graph, Producer
>>> by_hand, unknown = Graph.of([]), Graph.of([], producer=Producer(framework="unheard"))
>>> "view" in vocabulary_of(by_hand).shape_operations, vocabulary_of(unknown) == Vocabulary()
(True, True)
""",
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_each_example_gives_what_it_shows(name: str) -> None:
    module = import_module(name)
    test = doctest.DocTestParser().get_doctest(EXAMPLES[name], dict(vars(module)), name, None, 0)
    assert test.examples
    assert doctest.DocTestRunner().run(test).failed == 0
