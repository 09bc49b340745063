"""The records of nodes, tensors and scopes in GIR 1.x.

A field is declared only with its record: its type, its default, and the rest in `About`. Checks, file formats, diffs
and exporters read the declarations from `gradir.ir.fields`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Annotated, Final, Literal, NamedTuple, Union

import msgspec
from msgspec.structs import force_setattr

from gradir.ir.frozen import NOTHING, FrozenDict, freeze

# The roles that gradir itself writes. The vocabulary is open: a reader keeps a role it does not know.
ROLES: Final = (
    "function",  # an operation, also one that accumulates the gradient of a leaf
    "leaf",  # a tensor that requires grad and is no module's parameter
    "parameter",  # a leaf that a module owns
    "buffer",  # a tensor that a module owns and that receives no gradient
    "input",  # an argument or tensor without gradient that operations read
    "output",  # a tensor that was captured
    "view_base",  # the tensor an output is a view of
    "saved",  # a tensor saved for backward, drawn as a node of its own
    "module",  # a whole module folded into one node
)

# Roles of tensors without a gradient, which are in a graph only because an operation saved them.
NO_GRADIENT_ROLES: Final = frozenset({"buffer", "input"})
# msgspec omits a field only if its value is the same object as the default.
_FUNCTION: Final = "function"
_CPU: Final = "cpu"
_STRIDED: Final = "strided"
_HELD: Final = "held"
# Whether this Python creates several empty tuples. msgspec would write those that are not the default.
HAS_MANY_EMPTY_TUPLES: Final = sys.version_info < (3, 11)
# The largest integer of a file, which also represents any larger size or sum: msgspec writes and reads 64 bits.
INT64_MAX: Final = 2**63 - 1


def clamp_size(count: int) -> int:
    """Limit a size, or a sum of sizes, to 64 bits.

    A file may state sizes whose product Python cannot print and no float can represent.

    >>> clamp_size(24), clamp_size(2**64), clamp_size(-(2**64))
    (24, 9223372036854775807, -9223372036854775807)
    """
    # This runs for every size, and most are small.
    return count if -INT64_MAX <= count <= INT64_MAX else max(-INT64_MAX, min(count, INT64_MAX))


class About(NamedTuple):
    """Properties of a field besides its name, type and default.

    ``compared`` is its class for comparisons: ``structure``, ``type``, ``detail``, ``place`` or ``free``. ``refers``
    is set if the value is, or starts with, a node's id. ``inside`` names the field whose node contains the slot that
    the value numbers. ``since`` is the first version of the format with the field.

    ``merged`` says how a merge treats a field of the head: ``both`` sides' edits, ``either``, or ``neither``.
    """

    compared: Literal["structure", "type", "detail", "place", "free"] = "detail"
    refers: bool = False
    since: tuple[int, int] = (1, 0)
    inside: str = ""
    merged: Literal["both", "either", "neither"] = "both"


Int64 = Annotated[int, msgspec.Meta(ge=-INT64_MAX - 1, le=INT64_MAX)]
# A float that JSON can represent. NaN and infinity exist only in MessagePack, so the encodings would differ.
Float64 = Annotated[float, msgspec.Meta(ge=-sys.float_info.max, le=sys.float_info.max)]
Count = Annotated[int, msgspec.Meta(ge=0, le=INT64_MAX)]

Size = Annotated[
    Union[Count, str],
    msgspec.Meta(
        extra={"expected": "an integer from 0 to 2**63 - 1, or text for a size that is not known, such as 'batch'"}
    ),
]
Shape = tuple[Size, ...]
"""Sizes by dimension; a string is a symbolic size."""


class Record(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Base of the IR's records: immutable, compared by value, written without defaults.

    `gradir.ir.json_documents` reports unknown keys of a document.
    """


def share_empty_tuples(record: Record) -> None:
    """Replace empty tuples by the default object, see `HAS_MANY_EMPTY_TUPLES`."""
    for field in record.__struct_fields__:
        if getattr(record, field) == ():
            force_setattr(record, field, ())


# gc=False: immutable records form no cycles, and the garbage collector would visit each repeatedly.
class NonFinite(Record, frozen=True, gc=False):
    """A float that JSON cannot represent.

    >>> NonFinite("-inf")
    NonFinite(float='-inf')
    """

    float: Annotated[Literal["nan", "inf", "-inf"], msgspec.Meta(extra={"expected": "'nan', 'inf' or '-inf'"})]


AttrScalar = Union[None, bool, Int64, Float64, str, NonFinite]
AttrRow = tuple[Union[AttrScalar, tuple[AttrScalar, ...]], ...]
AttrValue = Union[AttrScalar, tuple[Union[AttrScalar, AttrRow], ...]]
"""The value of an attribute: a scalar, or a list of scalars and of lists, three deep. Integers fit in 64 bits."""


class TensorMeta(Record, frozen=True, gc=False):
    """The properties of a tensor without its values.

    ``dtype`` and ``shape`` are ``None`` if unknown, and ``device`` in a trace. ``placements`` is the distribution
    over each dimension of a mesh (``dp:Shard(0)``); the shape is the global one.

    >>> str(TensorMeta("float32", (8, 3)))
    'float32[8, 3]'
    """

    dtype: str | None = None
    shape: Shape | None = None
    device: str | None = _CPU
    layout: str = _STRIDED
    placements: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if HAS_MANY_EMPTY_TUPLES:
            share_empty_tuples(self)
        if self.device is not _CPU and self.device == _CPU:
            force_setattr(self, "device", _CPU)
        if self.layout is not _STRIDED and self.layout == _STRIDED:
            force_setattr(self, "layout", _STRIDED)

    def __str__(self) -> str:
        sizes = "?" if self.shape is None else ", ".join(map(str, self.shape))
        return f"{'?' if self.dtype is None else self.dtype}[{sizes}]"


def first_known(tensors: tuple[TensorMeta, ...]) -> TensorMeta | None:
    """Return the first tensor with a known property, else the first one, or ``None``."""
    for tensor in tensors:
        if tensor.dtype is not None or tensor.shape is not None:
            return tensor
    return tensors[0] if tensors else None


# A list, since a document has more references than anything else.
class Ref(Record, frozen=True, gc=False, array_like=True):
    """One output of one node, written ``[id, output_nr]``."""

    id: str
    output_nr: Count


class Source(Record, frozen=True, gc=False):
    """A line of the user's program; ``file`` is relative to the directory of the capture."""

    file: str
    line: Count
    function: str = ""


class Saved(Record, frozen=True, gc=False):
    """A tensor that a function saves for its backward: one saved slot.

    ``bytes`` is the size of the storage. Slots with equal ``storage`` keys share a storage, whose bytes count once. A
    key is the id of the leaf, parameter or buffer that owns the storage, or ``node_id.slot`` of the first slot that
    saved it.

    ``state`` is ``held``, ``recomputed`` (by a checkpoint), ``freed`` (by a backward pass), ``hooked`` (packed by a
    hook), ``stale`` (modified in place since) or ``unread`` (the framework hides it).
    """

    slot: str
    dtype: str | None = None
    shape: Shape | None = None
    bytes: Count | None = None
    origin: Ref | None = None
    storage: Annotated[str, About(refers=True)] = ""
    state: str = _HELD

    def __post_init__(self) -> None:
        if self.state is not _HELD and self.state == _HELD:
            force_setattr(self, "state", _HELD)

    @property
    def tensor(self) -> TensorMeta:
        """Return the slot's dtype and shape as a `TensorMeta`."""
        return TensorMeta(self.dtype, self.shape)


class Node(Record, frozen=True, gc=False, rename={"inputs": "in", "outputs": "out"}):
    """One vertex of the graph.

    ``inputs`` has an entry for each input slot, ``None`` without a gradient, and ``outputs`` one for each output.
    ``op`` is the framework-neutral name and ``native`` the framework's own. ``base`` is set on an output that is a
    view. In a forward graph, ``kinds`` has for each input slot ``data`` (read), ``view`` or ``inplace``; it is empty
    if all are read.

    >>> node = Node("fc/addmm:1", op="addmm", native="AddmmBackward0", scope="fc")
    >>> node.label, node.role
    ('addmm', 'function')
    """

    id: Annotated[str, About("place")]
    role: Annotated[str, About("structure")] = _FUNCTION
    op: Annotated[str, About("structure")] = ""
    native: str = ""
    scope: Annotated[str, About("place")] = ""
    names: Annotated[tuple[str, ...], About("place")] = ()
    inputs: Annotated[tuple[Ref | None, ...], About("structure")] = ()
    outputs: Annotated[tuple[TensorMeta, ...], About("type")] = ()
    attrs: Mapping[str, AttrValue] = NOTHING
    saved: tuple[Saved, ...] = ()
    base: Annotated[str | None, About("structure", refers=True)] = None
    opaque: Annotated[bool, About("structure")] = False
    source: Annotated[Source | None, About("free")] = None
    ext: Annotated[Mapping[str, AttrValue], About("free")] = NOTHING
    kinds: Annotated[tuple[str, ...], About("structure")] = ()

    def __post_init__(self) -> None:
        if self.role is not _FUNCTION and self.role == _FUNCTION:
            force_setattr(self, "role", _FUNCTION)
        attrs = self.attrs
        if attrs is not NOTHING and (type(attrs) is not FrozenDict or not attrs):
            force_setattr(self, "attrs", freeze(attrs))
        if self.ext is not NOTHING:
            force_setattr(self, "ext", freeze(self.ext))
        if HAS_MANY_EMPTY_TUPLES:
            share_empty_tuples(self)

    @property
    def label(self) -> str:
        """Return a short label: the first name, else the operation, else the id."""
        return self.names[0] if self.names else self.op or self.id

    @property
    def tensor(self) -> TensorMeta | None:
        """Return the first known output, or ``None``.

        >>> str(Node("f", outputs=(TensorMeta(), TensorMeta("float32", (3,)))).tensor)
        'float32[3]'
        """
        return first_known(self.outputs)

    @property
    def dtype(self) -> str | None:
        """Return the dtype of `tensor`; ``None`` if unknown."""
        return None if self.tensor is None else self.tensor.dtype

    @property
    def shape(self) -> Shape | None:
        """Return the shape of `tensor`; ``None`` if unknown."""
        return None if self.tensor is None else self.tensor.shape


class Scope(Record, frozen=True, gc=False, rename={"class_name": "class"}):
    """One module of the module tree.

    ``own``, ``total`` and ``trainable`` count parameter elements: of the module itself, of its subtree, and of those
    that require grad. ``calls`` counts recorded forward calls. ``detail`` is the module's description
    (``in_features=3``). ``training`` is its mode, ``None`` if unknown. ``rounds`` counts the iterations of a loop
    whose body is in the graph once.
    """

    path: Annotated[str, About("place")]
    class_name: str = ""
    detail: str = ""
    calls: Count = 0
    own: Count = 0
    total: Count = 0
    trainable: Count = 0
    training: bool | None = None
    rounds: Count = 0


class Cut(Record, frozen=True, gc=False):
    """A place where gradient does not flow.

    In every graph, ``kind`` is ``unreached`` (a parameter that requires grad is not in the graph) or ``hidden`` (the
    same, but an opaque function may reach it). ``names`` are the parameter's names and ``scope`` its module.

    A recorded forward pass adds places where a value continues without its gradient. ``kind`` is the reason
    (``detach``, ``no_grad``, ``nondifferentiable`` …), ``op`` the operation, ``names`` the leaves before it and
    ``scope`` the module that ran it. In a trace, the ``kind`` of a parameter outside the graph is ``unused``,
    ``integer``, ``stop_gradient``, ``nondifferentiable`` or ``custom_rule``.

    ``source`` is the user's line and ``via`` a library's. ``meant`` names the pattern that allows the cut. ``at`` is
    the node whose value is cut, ``into`` the node that uses the result, and ``slot`` its input slot, if known.
    """

    kind: str
    names: Annotated[tuple[str, ...], About("place")] = ()
    scope: Annotated[str, About("place")] = ""
    tensor: TensorMeta | None = None
    op: str = ""
    source: Annotated[Source | None, About("free")] = None
    via: Annotated[Source | None, About("free")] = None
    meant: str = ""
    at: Annotated[str, About("free", refers=True)] = ""
    into: Annotated[str, About("free", refers=True)] = ""
    slot: Annotated[Count | None, About("free", inside="into")] = None

    @property
    def is_place(self) -> bool:
        """Return whether the cut is a place in a program, and not a parameter.

        >>> Cut("detach", ("w",), op="detach").is_place, Cut("unreached", ("w",)).is_place
        (True, False)
        """
        return bool(self.op) or self.source is not None

    def __post_init__(self) -> None:
        if HAS_MANY_EMPTY_TUPLES:
            share_empty_tuples(self)


class Producer(Record, frozen=True):
    """The producer of the graph: versions of gradir and the framework, and capture options."""

    gradir: str = ""
    framework: str = ""
    framework_version: str = ""
    options: Mapping[str, AttrValue] = NOTHING

    def __post_init__(self) -> None:
        force_setattr(self, "options", freeze(self.options))
