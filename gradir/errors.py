"""Every error that gradir raises on purpose.

Each message is one line that says what is wrong and, where there is one, what to do about it. The command line prints
it after ``gradir:`` and exits with status 2.
"""

from __future__ import annotations

__all__ = [
    "CaptureError",
    "ExportError",
    "FormatError",
    "GradirError",
    "GradirWarning",
    "GraphError",
    "NewerFormatError",
    "PassError",
    "SpecError",
]


class GradirError(Exception):
    """Base class of gradir's errors."""


class GraphError(GradirError):
    """A graph that breaks a rule of the IR: an unknown input, a repeated id, a wrong order."""


class FormatError(GradirError):
    """A file that is not a readable GIR document."""


class NewerFormatError(FormatError):
    """A GIR document that only a newer gradir can read."""


class CaptureError(GradirError):
    """Something that cannot be captured, such as a tensor without a graph."""


class SpecError(CaptureError):
    """A ``gradir capture`` SPEC that cannot be found, imported or called."""


class ExportError(GradirError):
    """An unknown exporter, an unknown option, or a graph the target format cannot hold."""


class PassError(GradirError):
    """A pass that cannot do what was asked: a pattern that names no node, a number of hops below 0."""


class GradirWarning(UserWarning):
    """Something that was done, but perhaps not as expected."""
