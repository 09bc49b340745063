"""A diff as data, for programs and for `gradir.patch`."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from gradir.diffs.document import encode
from gradir.options import NoOptions, Options

if TYPE_CHECKING:
    from gradir.review.comparison import Comparison

__all__ = ["JsonRenderer"]


class JsonRenderer:
    """The whole diff as data, for programs and for 'gradir patch'."""

    suffix: ClassVar[str] = ".json"
    options: ClassVar[type[Options]] = NoOptions

    def render(self, comparison: Comparison, options: NoOptions) -> str:  # noqa: ARG002 (there are none)
        """The document that `gradir.diffs.document` describes.

        Raises:
            FormatError: a record holds what JSON cannot spell.
        """
        return encode(comparison.diff).decode()
