"""Text of the boxes and frames of a graph, which each format escapes in its own way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeGuard, cast

from gradir.ir import Graph, Node, TensorMeta, marks
from gradir.ir.edges import sources
from gradir.ir.frozen import NOTHING
from gradir.ir.memo import Memo, group_by_key
from gradir.ir.model import Scope, first_known
from gradir.ir.module_tree import class_text
from gradir.ir.saved import whole_number
from gradir.ir.text import escape_unprintable, pluralize, short_bytes, shorten
from gradir.vocabulary import vocabulary_of

# Replaces the role of an unchanged node in a diff.
CONTEXT: Final = "context"
# Replaces the role of a node without a value in an overlay.
NO_VALUE: Final = "bare"
# Replaces every role that gradir has no look for.
OTHER: Final = "other"
# The role of the box that says why gradient ends, and the kind of the line from there.
CUT: Final = "cut"
# The look of a CUT box in a legend that lists parameters outside the graph, not a place in a program.
UNREACHED: Final = "\0unreached"
# Follows the role of a box whose operation raised; alone, its look in the legend. No role of a file starts with NUL.
FAILED: Final = "\0failed"
# Follows the role of a box that the option focus selected; alone, its look in the legend.
FOCUSED: Final = "\0focus"

ROLES: Final = {
    "parameter": "parameter",
    "leaf": "leaf",
    "input": "input",
    "function": "function",
    "module": "folded module",
    "buffer": "buffer",
    **{mark: f"{sign} {mark}" for mark, sign in marks.SIGNS.items()},
    CONTEXT: "as before",
    NO_VALUE: "nothing said",
    "saved": "saved tensor",
    "view_base": "base of a view",
    "output": "output",
    CUT: "where gradients end",
    UNREACHED: "parameters not in the graph",
    FOCUSED: "asked for",
    FAILED: "× raised here",
}
LINES: Final = {
    "data": "data",
    "removed": "data no more",
    "view": "to its view",
    "inplace": "to what writes to it",
    "saved": "to a tensor it saved",
    "buffer": "to where it is saved",
    CUT: "data without gradient",
}

# A layer with more parameters shows the number of the others.
_MOST_WEIGHTS: Final = 8
# A function with more slots shows the number of the empty ones instead.
_MOST_SLOTS: Final = 4
# A box wider than its neighbours would push them apart.
_LONGEST_ERROR: Final = 80
_LONGEST_FILE: Final = 60


class Words:
    """The lines of the boxes of one picture; each distinct tensor is written once."""

    def __init__(
        self, graph: Graph, *, shapes: bool = True, native: bool = False, inline: Mapping[str, str] = NOTHING
    ) -> None:
        """Take the options ``shapes`` and ``native``, and in ``inline`` the last lines of boxes by node id."""
        self._inline = inline
        self._scopes = graph.scopes
        self._loops = any(scope.rounds for scope in graph.scopes.values())
        self._shapes = shapes
        self.on_lines = shapes and any(map(marks.is_layer, graph.nodes.values()))
        """Whether lines show the tensors instead of boxes, since the boxes of layers show parameters."""
        tensors = (tensor for node in graph.nodes.values() for tensor in node.outputs)
        dtypes = Counter(tensor.dtype for tensor in tensors) if self.on_lines else {}
        self._usual_dtype = max(dtypes, key=dtypes.__getitem__, default=None)
        self._native = native
        self._unread = marks.find_unread_outputs(graph.nodes.values())
        self._tensors = Memo(str)
        self._used = _find_used_outputs(graph)
        # The output of a gradient accumulator is that of its tensor, whose box shows it.
        self._accumulators: Collection[str] = vocabulary_of(graph).accumulators

    def lines(self, node: Node) -> list[str]:
        """Return the lines in the box of a node."""
        if node.role != "module":
            title, below = self.title(node), self.lines_below(node)
            return [title, *below] if title else below
        name = node.names[0] if node.names else ""
        # The frame around the box already shows the rest of the path.
        short = (name or node.op or node.id).removeprefix(f"{node.scope}." if node.scope else "")
        scope = self._scopes.get(name)
        kind = Scope(name, node.native if node.native != short else "", rounds=scope.rounds if scope else 0)
        title = frame_name(short, scope if stands_for_steps(scope) else kind)
        contents = [*_module_counts(node)]
        if marks.is_layer(node):
            # Two parameters a line: a weight beside its bias.
            texts = weight_texts(node, shapes=self._shapes)
            contents = [" · ".join(texts[at : at + 2]) for at in range(0, len(texts), 2)]
        return [title, *self._result_lines(node), *contents, *failure_lines(node)]

    def title(self, node: Node) -> str:
        """Return the name of a node; without one, nothing if it has an operation, or else its id."""
        if node.id in self._unread:
            return marks.UNREAD
        return (node.names[0] if node.names else "") or ("" if node.op or node.native else node.id)

    def on_line(self, node: Node, output_nr: int) -> str:
        """Return the shape of an output, with its dtype unless that is the most frequent one."""
        if output_nr >= len(node.outputs):
            return ""
        tensor = node.outputs[output_nr]
        return str(tensor) if tensor.dtype != self._usual_dtype else str(TensorMeta("", tensor.shape))

    def lines_below(self, node: Node) -> list[str]:
        """Return the lines below the name of a node: the operation and its result."""
        operation = (node.native or node.op) if self._native else (node.op or node.native)
        if None in node.inputs:
            operation += _slots_text(node)
        if node.ext and (before := marks.operation_before(node)):
            operation = f"{before} → {operation}"
        if marks.is_backward(node) and "backward" not in operation:
            operation += " (backward)"
        lines = [operation] if operation else []
        if node.opaque:
            lines.append("(opaque)")
        if node.op not in self._accumulators:
            lines += self._result_lines(node)
        lines += [self._inline[node.id]] if node.id in self._inline else []
        return lines + failure_lines(node) if node.ext else lines

    def notes(self, nodes: Collection[Node], *, framed: bool, marked: bool, joined: bool) -> Iterator[str]:
        """Yield the notes of a legend on empty slots and on nodes that are drawn once for several.

        ``framed``: there are frames. ``marked``: it is a diff. ``joined``: one line may represent several tensors.
        """
        if any(None in node.inputs and _slots_text(node) for node in nodes):
            yield "None: an input that nothing flows through"
        # A folded module shows its number in its name.
        if (marked or framed) and any(marks.times(node) > 1 and (marked or node.role != "module") for node in nodes):
            yield "×N in a box: N equal changes" if marked else "×N at a frame: one is drawn of N equal steps or layers"
        if self._loops and framed:
            yield "(×N) at a frame: the body of a loop of N rounds"
        if joined:
            yield "×N at a line: N tensors"

    def slot_lines(self, slot: str, tensor: TensorMeta, state: str) -> list[str]:
        """Return the name of a saved slot, its state if unusual, and the tensor."""
        name = slot if state == "held" else f"{slot} ({state})"
        return [name, self._tensors[tensor]] if self._shapes else [name]

    def _result_lines(self, node: Node) -> list[str]:
        tensors = node.outputs
        if len(tensors) > 1:
            used = self._used.get(node.id, ())
            tensors = tuple([tensors[nr] for nr in sorted(used) if nr < len(tensors)]) or tensors
        tensor = first_known(tensors)
        if tensor is None or not self._shapes or self.on_lines:
            return []
        return [f"{self._tensors[tensor]}, {len(tensors) - 1:,} more" if len(tensors) > 1 else self._tensors[tensor]]


def failure_lines(node: Node) -> list[str]:
    r"""Return the first line of the error that a node raised, then the line of the program."""
    if not (error := marks.failure(node)):
        return []
    first, *others = error.strip().splitlines() or [""]
    lines = [f"× {shorten(escape_unprintable(first), _LONGEST_ERROR)}{' …' if others else ''}"]
    if node.source is not None:
        lines.append(f"{shorten(escape_unprintable(node.source.file), _LONGEST_FILE)}:{node.source.line}")
    return lines


def border(node: Node, is_marked: bool) -> str:
    """Return the suffix of the role of a box with its own border; in a diff (``is_marked``) focus has none."""
    return FAILED if marks.failure(node) else FOCUSED if marks.is_focus(node) and not is_marked else ""


class Legend(NamedTuple):
    """The meaning of the looks of a picture: those of boxes by role, and those of lines by kind."""

    title: str
    boxes: Mapping[str, str]
    lines: Mapping[str, str]
    notes: Sequence[str]


def frame_name(name: str, scope: Scope | None) -> str:
    """Return the name of a module and its class if known; a frame of equal steps shows whether each feeds the next."""
    if stands_for_steps(scope):
        return f"{name}, {scope.detail}"
    class_name = class_text(scope) if scope else ""
    return f"{name} ({class_name})" if class_name else name


def keeps_frame(scope: Scope | None) -> bool:
    """Return whether only this frame shows how equal steps follow each other, or how often a loop runs."""
    return stands_for_steps(scope) or (scope is not None and scope.rounds > 0)


def stands_for_steps(scope: Scope | None) -> TypeGuard[Scope]:
    """Return whether a module is a frame of equal steps."""
    return scope is not None and scope.detail != "" and not scope.class_name


def inline_parameters(graph: Graph) -> tuple[Graph, dict[str, str]]:
    """Return the graph without parameters that one function takes, and their text by function.

    A parameter with a mark of a diff or an overlay stays.
    """
    # Imported here, since most pictures need no pass.
    from gradir.passes.wiring import without

    nodes, accumulators = graph.nodes, vocabulary_of(graph).accumulators
    users = group_by_key((source, node.id) for node in nodes.values() for source in sources(node))
    inlined: set[str] = set()
    words: dict[str, list[str]] = {}
    for node in nodes.values():
        if node.role != "parameter" or node.ext:
            continue
        chain, takers = [node.id], users.get(node.id, [])
        while len(takers) == 1 and nodes[takers[0]].op in accumulators and not nodes[takers[0]].ext:
            chain += takers
            takers = users.get(takers[0], [])
        if len(takers) == 1 and nodes[takers[0]].role == "function":
            user = nodes[takers[0]]
            name = node.label.removeprefix(f"{user.scope}." if user.scope else "")
            size = f" {TensorMeta('', node.shape)}" if node.shape is not None else ""
            words.setdefault(user.id, []).append(f"{name}{size}")
            inlined.update(chain)
    return without(graph, inlined, lambda _: False), {user: " · ".join(texts) for user, texts in words.items()}


def _slots_text(node: Node) -> str:
    """Return the input slots of a function if some lack a gradient, or their number if there are many."""
    if node.role != "function":
        return ""
    elided, lost = marks.get_marked_slots(node, marks.ELIDED), marks.lost_slots(node)
    inputs = [(slot, ref) for slot, ref in enumerate(node.inputs) if slot not in lost]
    slots = ["·" if ref is not None or slot in elided else "None" for slot, ref in inputs]
    empty = slots.count("None")
    if not empty:
        return ""
    return f"({', '.join(slots)})" if len(slots) <= _MOST_SLOTS else f"({empty:,} of {len(slots):,} None)"


def weight_texts(node: Node, *, shapes: bool = True) -> list[str]:
    """Return the names and shapes of a layer's parameters, and the number of omitted ones."""
    pairs = cast("tuple[object, ...]", node.attrs[marks.WEIGHTS])
    # A file may hold anything there.
    found = [pair for pair in pairs if isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], str)]
    texts: list[str] = []
    for name, shape in found[:_MOST_WEIGHTS]:
        sizes = ", ".join(map(str, shape)) if isinstance(shape, tuple) else "?"
        texts.append(f"{name} [{sizes}]" if shapes else name)
    return [*texts, f"{len(found) - _MOST_WEIGHTS:,} more"] if len(found) > _MOST_WEIGHTS else texts


def _module_counts(node: Node) -> Iterator[str]:
    for name, noun in (("nodes", "node"), ("parameters", "parameter")):
        if count := whole_number(node.attrs, name):
            yield pluralize(count, noun)
    if shared := whole_number(node.attrs, "shared_parameters"):
        yield f"{pluralize(shared, 'parameter')} of an earlier part"
    if saved := whole_number(node.attrs, "saved_bytes"):
        yield f"{short_bytes(saved)} saved"


def _find_used_outputs(graph: Graph) -> dict[str, set[int]]:
    used: dict[str, set[int]] = {node.id: set() for node in graph.nodes.values() if len(node.outputs) > 1}
    for node in graph.nodes.values() if used else ():
        for ref in node.inputs:
            if ref is not None and ref.id in used:
                used[ref.id].add(ref.output_nr)
    return used
