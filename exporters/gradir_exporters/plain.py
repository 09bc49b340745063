"""Plain text for reviews and ``git diff``: a block per node, one fact a line.

docs/plain.ebnf has the grammar. Two texts are equal exactly when the graphs are, apart from the producer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import chain
from typing import Annotated, Any, ClassVar, Final

from msgspec import Meta
from msgspec.structs import replace

from gradir.ir import AttrValue, Cut, Graph, Node, Saved, Scope, Source, TensorMeta
from gradir.ir.jsontext import further_facts, further_text
from gradir.ir.memo import AttributeCache, Memo
from gradir.ir.model import Record
from gradir.ir.text import quote, ref_text, tensor_text, value_text, word
from gradir.progress import steps
from gradir.protocols import Options

# These words start blocks of other kinds, so a role of the same name is quoted.
_BLOCK_WORDS: Final = frozenset({"scope", "cut"})
_HEAD: Final = "gradir plain 1"
_INDENT: Final = "    "


class PlainOptions(Options, frozen=True, kw_only=True):
    """The length of the text."""

    brief: Annotated[bool, Meta(description="a line for each node, its name first")] = False


class PlainExporter:
    """Plain text, one fact a line, made for diffs.

    >>> from gradir.ir import Ref
    >>> graph = Graph.of([Node("x", role="leaf", outputs=(TensorMeta("float32", (3,)),)),
    ...                   Node("exp:1", op="exp", native="ExpBackward0", inputs=(Ref("x", 0),))])
    >>> print(PlainExporter().export(graph, PlainOptions()), end="")
    gradir plain 1
    leaf x
        out float32[3]
    function exp:1 = exp(x)
        native ExpBackward0
    >>> print(PlainExporter().export(graph, PlainOptions(brief=True)), end="")
    gradir plain 1 in brief
    leaf x float32[3]
    function exp:1 = exp(x)
    """

    suffix: ClassVar[str] = ".txt"
    options: ClassVar[type[Options]] = PlainOptions

    def export(self, graph: Graph, options: PlainOptions) -> str:
        """Return the graph as plain text, by the grammar of docs/plain.ebnf."""
        if options.brief:
            return "".join(f"{line}\n" for line in _brief_lines(graph))
        lines = [_HEAD, *chain.from_iterable(map(_scope_lines, graph.scopes.values()))]
        lines.extend(chain.from_iterable(map(_cut_lines, graph.cuts)))
        cache = _Cache()
        for node in steps("writing the nodes", graph.nodes.values()):
            lines.append(_node_head(node, cache.words))
            _add_node_facts(lines, node, cache)
        lines.append("")
        return "\n".join(lines)


def _brief_lines(graph: Graph) -> Iterator[str]:
    yield f"{_HEAD} in brief"
    for scope in graph.scopes.values():
        facts = map(str.strip, _scope_lines(replace(scope, calls=0, total=0, trainable=0)))
        yield " ".join([*facts, *(["frozen"] if scope.own and not scope.trainable else [])])
    for cut in graph.cuts:
        brief = replace(cut, source=None, via=None, scope="", at="", into="", slot=None)
        yield " ".join(map(str.strip, _cut_lines(brief)))
    words = Memo(word)
    for node in graph.nodes.values():
        outputs = ", ".join(map(_tensor, node.outputs))
        yield " ".join(filter(None, [_node_head(node, words), outputs, *_brief_facts(node)]))


def _brief_facts(node: Node) -> Iterator[str]:
    yield from (f"{word(name)}={value_text(value)}" for name, value in sorted(node.attrs.items()))
    yield from _further(node)
    # A storage with a key counts only at the slot that saved it first.
    own = [slot.bytes for slot in node.saved if not slot.storage]
    states = dict.fromkeys(word(slot.state) for slot in node.saved if slot.state != "held")
    if any(own) or None in own or states:
        yield " ".join(["saved", str(sum(filter(None, own))), *(["?"] if None in own else []), *states])
    if node.opaque:
        yield "opaque"


class _Cache:
    def __init__(self) -> None:
        self.words = Memo(word)
        self.tensors = Memo(_tensor)
        self.attrs = AttributeCache(partial(_value_lines, "attr"))
        self.ext = AttributeCache(partial(_value_lines, "ext"))


def _scope_lines(scope: Scope) -> Iterator[str]:
    yield f"scope {word(scope.path)} {word(scope.class_name)}" if scope.class_name else f"scope {word(scope.path)}"
    if scope.detail:
        yield f"{_INDENT}detail {quote(scope.detail)}"
    yield from _further(scope)
    if scope.training is not None:
        yield f"{_INDENT}mode {'train' if scope.training else 'eval'}"


def _cut_lines(cut: Cut) -> Iterator[str]:
    yield " ".join(("cut", word(cut.kind), *map(word, cut.names)))
    for key, text in _OF_CUTS.items():
        value = getattr(cut, key)
        if value not in ("", None):
            yield f"{_INDENT}{key} {text(value)}"
    yield from _further(cut)


def _node_head(node: Node, words: Memo[str, str]) -> str:
    role = quote(node.role) if node.role in _BLOCK_WORDS else words[node.role]
    if not node.op and not node.inputs:
        return f"{role} {word(node.id)}"
    inputs = ", ".join(["-" if ref is None else ref_text(ref) for ref in node.inputs])
    return f"{role} {word(node.id)} = {words[node.op] if node.op else ''}({inputs})"


def _add_node_facts(lines: list[str], node: Node, cache: _Cache) -> None:
    words, tensors = cache.words, cache.tensors
    if node.native:
        lines.append(f"{_INDENT}native {words[node.native]}")
    if node.scope:
        lines.append(f"{_INDENT}scope {words[node.scope]}")
    lines += [f"{_INDENT}name {word(name)}" for name in node.names]
    lines += [f"{_INDENT}out {tensors[tensor]}" for tensor in node.outputs]
    if node.attrs:
        lines += cache.attrs(node.attrs)
    lines += [_write_saved(saved, cache) for saved in node.saved]
    if node.base is not None:
        lines.append(f"{_INDENT}base {word(node.base)}")
    if node.opaque:
        lines.append(f"{_INDENT}opaque")
    if node.source is not None:
        lines.append(f"{_INDENT}source {_place(node.source, words.__getitem__)}")
    if node.ext:
        lines += cache.ext(node.ext)
    lines += _further(node)


def _further(record: Record) -> Iterator[str]:
    return (f"{_INDENT}{key} {text}" for key, text in further_facts(record))


def _place(source: Source, word: Callable[[str], str]) -> str:
    function = f" in {word(source.function)}" if source.function else ""
    return f"{word(source.file)} line {source.line}{function}{further_text(source)}"


def _write_saved(saved: Saved, cache: _Cache) -> str:
    line = f"{_INDENT}saved {cache.words[saved.slot]} {cache.tensors[saved.tensor]}"
    if saved.bytes is not None:
        line += f" bytes {saved.bytes}"
    if saved.origin is not None:
        line += f" of {ref_text(saved.origin)}"
    if saved.storage:
        line += f" storage {word(saved.storage)}"
    if saved.state != "held":
        line += f" state {cache.words[saved.state]}"
    return line + further_text(saved)


def _value_lines(kind: str, values: Mapping[str, AttrValue]) -> list[str]:
    # Equal graphs may have their attributes in another order.
    return [f"{_INDENT}{kind} {word(name)} = {value_text(values[name])}" for name in sorted(values)]


def _tensor(tensor: TensorMeta) -> str:
    device = "" if tensor.device == "cpu" else f" device {'?' if tensor.device is None else word(tensor.device)}"
    layout = "" if tensor.layout == "strided" else f" layout {word(tensor.layout)}"
    return f"{tensor_text(tensor)}{device}{layout}{further_text(tensor)}"


# Writes each field of a cut that has its own line.
_OF_CUTS: Final[Mapping[str, Callable[[Any], str]]] = {
    "scope": word,
    "tensor": _tensor,
    "op": word,
    **dict.fromkeys(("source", "via"), partial(_place, word=word)),
    **dict.fromkeys(("meant", "at", "into"), word),
    "slot": str,
}
