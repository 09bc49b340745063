"""What the box of a folded module says, in every picture."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gradir.ir.saved import whole_number
from gradir.ir.text import counted, short_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gradir.ir import Node

__all__ = ["given", "module_counts"]


def given(node: Node) -> str:
    """The dtype and shape of what a node gives, and how many tensors there are beside; nothing where it gives none.

    >>> from gradir.ir import Node, TensorMeta
    >>> given(Node("a", outputs=(TensorMeta("float32", (2,)),) * 3)), given(Node("a"))
    ('float32[2], 2 more', '')
    """
    if not node.outputs:
        return ""
    return f"{node.tensor}, {len(node.outputs) - 1} more" if len(node.outputs) > 1 else str(node.tensor)


def module_counts(node: Node) -> Iterator[str]:
    """The nodes, parameters and saved bytes that a folded module stands for, those that there are."""
    for name, noun in (("nodes", "node"), ("parameters", "parameter")):
        if count := whole_number(node.attrs, name):
            yield counted(count, noun)
    if shared := whole_number(node.attrs, "shared_parameters"):
        yield f"{counted(shared, 'parameter')} of an earlier part"
    if kept := whole_number(node.attrs, "saved_bytes"):
        yield f"{short_bytes(kept)} saved"
