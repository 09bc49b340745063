"""Whether two graphs compute the same, in whatever operations they are written.

`terms` has what a computation comes to, equal for equal ones, and `reading` makes it of a graph.
"""

from gradir.diffs.computing.reading import Same, computes_the_same

__all__ = ["Same", "computes_the_same"]
