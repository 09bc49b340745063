"""Readable node ids that survive edits elsewhere in the program.

=====================  ============================  ==================================
node                   id                            example
=====================  ============================  ==================================
function               ``scope/op:ordinal``          ``layers.3.attn/addmm:2``
named tensor           its name                      ``layers.3.attn.weight``
gradient accumulator   ``tensor/accumulate_grad:1``  ``fc.bias/accumulate_grad:1``
unnamed leaf           ``leaf:ordinal``              ``leaf:1``
captured output        ``output`` or ``output:path`` ``output:loss``, ``output:0``
view base              ``output/base``               ``output:0/base``
folded module          its path, ``/`` for the root  ``layers.3``, ``layers.3#2``
storage                its owner, or ``id.slot``     ``fc.weight``, ``fc/addmm:1.mat1``
=====================  ============================  ==================================

An ordinal counts from 1 within its scope and op, in canonical order, so a node added to one module renumbers no other
module. ``/``, ``:``, ``~``, spaces and control characters in names are percent-encoded as in RFC 3986. A repeated name
gets the suffix ``~2``. Only this module creates or parses ids.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable
from functools import lru_cache

# The characters after a module's path in a name or an id: before a component, or before an operation.
PATH_SEPARATORS = "./"
_ACCUMULATES = "accumulate_grad"
_ROOT = "/"  # no path of a module encodes to it
_REMOVED = "\0"  # no id of a graph ends in it
# int() of the digits in a hostile id takes quadratic time, and Python refuses more than 4,300.
_LONGEST_ORDINAL = 9
_ORDINAL = re.compile(r"[:~][0-9]+")
_INDEX = re.compile(r"(?<![^.:/~])[0-9]+(?![^.:/~])")
_NUMBER = re.compile(r"(?<![^.:/~_])[0-9]+(?![^.:/~])")
_NUMBERED = re.compile(r"([^.]*_|)(0|[1-9][0-9]{0,8})", re.ASCII)
_PART = re.compile(r" \(\d+\)\Z")
_is_all_plain = re.compile(r"[A-Za-z0-9_.-]*").fullmatch
_RESERVED = frozenset(" /:%~\"'`<>\\|{}")


def encode_component(text: str) -> str:
    """Percent-encode the characters that an id may not contain.

    >>> encode_component("layers.0.weight"), encode_component("a/b c")
    ('layers.0.weight', 'a%2Fb%20c')
    """
    if _is_all_plain(text):
        return text
    return "".join(char if char.isprintable() and char not in _RESERVED else _percent(char) for char in text)


def _percent(char: str) -> str:
    # A name may contain a lone surrogate, which plain UTF-8 refuses.
    return "".join(f"%{byte:02X}" for byte in char.encode("utf-8", "surrogatepass"))


# The names of modules and operations repeat at every node. The size is limited, since a file may have a million names.
_encoded = lru_cache(maxsize=4096)(encode_component)


def function_prefix(scope: str, op: str) -> str:
    """Return a function's id without its ordinal, from encoded components."""
    return f"{scope}/{op}:" if scope else f"{op}:"


@lru_cache(maxsize=4096)
def _prefix(scope: str, op: str) -> str:
    return function_prefix(_encoded(scope), _encoded(op))


def module_id(path: str, part: int = 1) -> str:
    """Return the id of a folded module, or of a numbered part of one."""
    return (encode_component(path) or _ROOT) + (f"#{part}" if part > 1 else "")


def is_root(node_id: str) -> bool:
    """Return whether an id is that of the folded root, or of a part of it."""
    return node_id.startswith(_ROOT)


def part_name(name: str, part: int) -> str:
    """Return the name of a part of a folded module."""
    return f"{name} ({part})" if part > 1 else name


def whole_name(name: str) -> str:
    """Return the name of a folded module from the name of a part."""
    return _PART.sub("", name)


def mark_as_removed(name: str) -> str:
    """Return an id for a removed node whose former id belongs to another node."""
    return name + _REMOVED


def replace_prefix(name: str, before: str, after: str) -> str:
    """Return a path, name or id with the prefix ``before`` replaced.

    >>> replace_prefix("layers.0/tanh:1", "layers.0", "layers.0-11")
    'layers.0-11/tanh:1'
    >>> replace_prefix("layers.01", "layers.0", "layers.0-11")
    'layers.01'
    """
    rest = name[len(before) :]
    return after + rest if name.startswith(before) and rest[:1] in PATH_SEPARATORS else name


def starts_with_module(node_id: str, path: str) -> bool:
    """Return whether an id starts with the path of a module.

    >>> starts_with_module("cell.×49/mul:1", "cell.×49"), starts_with_module("mul:1", "×24")
    (True, False)
    """
    return bool(path) and replace_prefix(node_id, encode_component(path), "") != node_id


def output_path(node_id: str) -> str:
    """Return the encoded path in the id of an output."""
    return node_id.partition(":")[2]


def nest_id(node_id: str, module: str) -> str:
    """Return the id of a node after its graph was put into a module.

    >>> nest_id("h.0/mm:1", "stage1"), nest_id("w", "stage1"), nest_id("mm:1", "stage1"), nest_id("output", "stage1")
    ('stage1.h.0/mm:1', 'stage1.w', 'stage1/mm:1', 'stage1/output')
    """
    head = node_id.partition("/")[0]
    return f"{module}{'/' if ':' in head or head in ('', 'output') else '.'}{node_id}"


def split_tensor(node_id: str) -> tuple[str, str]:
    """Split an id into the tensor that it is derived from and the rest with its slash."""
    head, slash, rest = node_id.partition("/")
    return head, slash + rest


def split_id(node_id: str) -> tuple[str, str]:
    """Split an id into its path and the rest: an operation, or a tensor's whole id.

    >>> split_id("fc/addmm:1"), split_id("fc.weight"), split_id("fc.weight/accumulate_grad:1")[0]
    (('fc', 'addmm:1'), ('', 'fc.weight'), 'fc.weight')
    """
    path, _, rest = node_id.rpartition("/")
    return path, rest


def relative_id(node_id: str, base_id: str) -> str:
    """Return an id relative to another one, or unchanged if they share no path.

    >>> [relative_id(node_id, "h.0.fc/t:1") for node_id in ("h.0.fc/mm:1", "h.0.fc.bias", "h.1")]
    ['./mm:1', '.bias', '...1']
    """
    path, slash, name = node_id.partition("/")
    base_path, base_slash, _ = base_id.partition("/")
    parts, base = path.split("."), base_path.split(".")
    if not base_slash:
        base.pop()
    most = min(len(base), len(parts) - (not slash))
    common = next((place for place in range(most) if parts[place] != base[place]), most)
    if not common or parts[common:][:1] == [""]:
        return node_id
    return "." * (len(base) - common + 1) + ".".join(parts[common:]) + slash + name


def strip_accumulator(node_id: str, operations: Collection[str]) -> str:
    """Return the tensor whose gradient a node accumulates, or its own id.

    >>> strip_accumulator("fc.weight/accumulate_grad:1", {"accumulate_grad"})
    'fc.weight'
    >>> strip_accumulator("fc/addmm:1", {"accumulate_grad"})
    'fc/addmm:1'
    """
    tensor, operation = split_id(node_id)
    return tensor if stem(operation) in operations else node_id


def id_suffix(node_id: str, tensor: str) -> str:
    """Return the suffix after a tensor's id in an id derived from it, with its slash, else an empty text."""
    return node_id[len(tensor) :] if tensor and node_id.startswith(f"{tensor}/") else ""


def is_named(node_id: str, name: str) -> bool:
    """Return whether an id is that of a named tensor, with or without a suffix.

    >>> is_named("fc.weight", "fc.weight"), is_named("fc.weight~2", "fc.weight"), is_named("fc.weight~x", "fc.weight")
    (True, True, False)
    """
    wanted = encode_component(name)
    return node_id == wanted or (node_id.startswith(f"{wanted}~") and node_id[len(wanted) + 1 :].isdecimal())


def stem(node_id: str) -> str:
    """Return the part of an id before the ordinal of a leaf or the path of an output."""
    return node_id.partition(":")[0]


def split_ordinal(node_id: str) -> tuple[str, int]:
    """Split an id into the text before its ordinal and the ordinal, which is 0 if there is none.

    >>> split_ordinal("fc/addmm:12"), split_ordinal("fc.0"), split_ordinal("a:01"), split_ordinal(":٣")
    (('fc/addmm:', 12), ('fc.0', 0), ('a:01', 0), (':٣', 0))
    """
    head, colon, tail = node_id.rpartition(":")
    if not colon or not tail.isascii() or not tail.isdigit() or tail[0] == "0" or len(tail) > _LONGEST_ORDINAL:
        return node_id, 0
    return head + colon, int(tail)


def remove_ordinal(operation: str) -> str:
    """Return an operation without its ordinal."""
    return _ORDINAL.sub("", operation)


def mask_indices(name: str) -> str:
    """Return a path, a name or an id with ``*`` for each part that is a number.

    >>> mask_indices("layers.3.attn/addmm:2")
    'layers.*.attn/addmm:*'
    """
    return _INDEX.sub("*", name)


def mask_numbers(name: str) -> str:
    """Return a path, a name or an id with ``*`` for each number that ends a component.

    >>> mask_numbers("layers_3.attn/addmm:2"), mask_numbers("layers.3.fc1")
    ('layers_*.attn/addmm:*', 'layers.*.fc1')
    """
    return _NUMBER.sub("*", name)


def split_index(component: str) -> tuple[str, int] | None:
    """Split a path component such as ``h_2`` into a list and an index; return ``None`` if it is no list entry.

    The entries of a list are ``0``, ``1`` inside the list, or ``h_0``, ``h_1`` in the module that owns it.

    >>> split_index("h_10"), split_index("3"), split_index("fc1"), split_index("h_01")
    (('h_', 10), ('', 3), None, None)
    """
    found = _NUMBERED.fullmatch(component)
    return (found[1], int(found[2])) if found else None


def storage_key(node_id: str, slot: str) -> str:
    """Return the key of a storage without an owner in the graph, from the first slot that saved it."""
    return f"{node_id}.{slot}"


def split_last(name: str) -> tuple[str, str]:
    """Split a `storage_key` into node and slot, or a tensor's name into module and own name."""
    first, _, last = name.rpartition(".")
    return first, last


class IdAllocator:
    """Create the ids of one graph; call it in canonical order.

    >>> ids = IdAllocator()
    >>> ids.function("fc", "addmm"), ids.function("fc", "addmm"), ids.tensor("fc.weight")
    ('fc/addmm:1', 'fc/addmm:2', 'fc.weight')
    """

    def __init__(self) -> None:
        self._counts: defaultdict[str, dict[str, int]] = defaultdict(dict)
        self._claim = FreeIds().free

    def function(self, scope: str, op: str) -> str:
        """Return the id of the next ``op`` within ``scope``."""
        counts = self._counts[op]
        ordinal = counts[scope] = counts.get(scope, 0) + 1
        return f"{_prefix(scope, op)}{ordinal}"

    def accumulator(self, tensor_id: str) -> str:
        """Return the id of the node that accumulates a leaf's gradient."""
        return self._claim(f"{tensor_id}/{_ACCUMULATES}:1")

    def tensor(self, name: str) -> str:
        """Return the id of a named tensor, or of the next unnamed leaf."""
        return self._claim(encode_component(name)) if name else self.function("", "leaf")

    def output(self, path: str) -> str:
        """Return the id of an output; ``path`` is its place in the captured containers."""
        return self._claim(self._output(path))

    def base(self, path: str) -> str:
        """Return the id of the base of the view at ``path``."""
        return self._claim(f"{self._output(path)}/base")

    @staticmethod
    def _output(path: str) -> str:
        return f"output:{encode_component(path)}" if path else "output"


class FreeIds:
    """Create ids that differ from given and ``taken`` ones, in constant time.

    >>> ids = FreeIds()
    >>> ids.free("leaf:1"), ids.free("fc.weight"), ids.free("fc.weight"), ids.next("leaf:")
    ('leaf:1', 'fc.weight', 'fc.weight~2', 'leaf:2')
    """

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = set(taken)
        self._counts: defaultdict[str, int] = defaultdict(int)

    def free(self, wanted: str) -> str:
        """Return an id, with the next free suffix if it is taken."""
        claimed = wanted
        while claimed in self._taken:
            self._counts[wanted] += 1
            claimed = f"{wanted}~{self._counts[wanted] + 1}"
        self._taken.add(claimed)
        return claimed

    def next(self, prefix: str) -> str:
        """Return the id with the next free ordinal."""
        self._counts[prefix] += 1
        while f"{prefix}{self._counts[prefix]}" in self._taken:
            self._counts[prefix] += 1
        return self.free(f"{prefix}{self._counts[prefix]}")
