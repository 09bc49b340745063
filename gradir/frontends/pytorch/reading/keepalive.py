"""Free a deep graph without overflowing the C stack.

From torch 2.13 on, Python frees a node that it has seen, with one C stack frame for each node below. Some 2,400 nodes
overflow a stack of 512 kB, and 40,000 nodes overflow the usual 8 MB. A capture has to see all nodes.

So this module holds references to the nodes of a deep graph. It drops those that nobody else owns, consumers before
producers, after each cyclic garbage collection and at each capture of another deep graph. It holds all of the last
graph while the captured tensors live.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import sys
import threading
from operator import is_
from typing import TYPE_CHECKING, Any, Final

import torch
from torch.autograd.function import FunctionCtx

if TYPE_CHECKING:
    from gradir.frontends.pytorch.reading.walk import Walk

# The longest path, in nodes, that every supported stack size frees by itself.
SAFE_DEPTH = 1_000
# Whether freeing a node frees its Python object too, even without a reference from Python.
_NODES_KEEP_THEIR_OBJECTS: Final = torch.__version__ >= torch.torch_version.TorchVersion("2.13")
# Every node of the last deep graph, while its roots live.
_whole: list[Any] = []
# The nodes of that graph that made the captured tensors.
_roots: list[Any] = []
# Each node held on its own, with the number of edges into it from such nodes.
_consumers: dict[Any, int] = {}
# Those without a held consumer, which can be released next.
_frontier: dict[Any, None] = {}
# The producers of Python nodes, by id(): a node cannot list them once torch has freed it.
_python_producers: dict[int, list[Any]] = {}
_changing = threading.Lock()
# A releasable node is in this many dicts of this module.
_OWNERS: Final = 2


def protect(walked: Walk) -> None:
    """Hold the nodes of a graph that is too deep to free itself."""
    release_dead()
    roots = list(dict.fromkeys(walked.roots))
    is_held = len(roots) == len(_roots) > 0 and all(map(is_, roots, _roots))
    if _NODES_KEEP_THEIR_OBJECTS and not is_held and walked.has_path_of(SAFE_DEPTH + 1):
        hold(walked)


def hold(walked: Walk) -> None:
    """Hold all visited nodes of a graph."""
    if not _NODES_KEEP_THEIR_OBJECTS:
        return
    with _changing:
        _take_apart()
        _whole.extend(fn for fn, edges in walked.edges.items() if edges)
        _roots.extend(dict.fromkeys(walked.roots))
        for fn in _whole:
            if isinstance(fn, FunctionCtx):
                _python_producers[id(fn)] = [child for child, _ in walked.edges[fn]]
    if _on_collection not in gc.callbacks:
        gc.callbacks.append(_on_collection)


def count_held_nodes() -> int:
    """Return the number of nodes that this module holds."""
    return len(_consumers.keys() | set(_whole))


def release_dead() -> int:
    """Release the nodes that nobody else owns, and return their number."""
    if not _changing.acquire(blocking=False):
        # A collection may begin during a change.
        return 0
    try:
        # Counted each time: after a failed torch.compile, a frame evaluator may add a reference to each argument.
        own = _own_references()
        # The loop variable, _whole and _roots each hold a root once, and these dicts may hold it too.
        if any(_references(fn) == own - _OWNERS + 2 + (fn in _consumers) + (fn in _frontier) for fn in _roots):
            _take_apart()
        before = len(_consumers)
        pending = list(_frontier)
        while pending:
            # Rebinding the name frees the node of the previous round.
            fn = pending.pop()
            if _references(fn) == own:
                pending.extend(_release(fn))
        return before - len(_consumers)
    finally:
        _changing.release()


def _take_apart() -> None:
    """Hold each node of the last deep graph on its own."""
    added = [fn for fn in _whole if fn not in _consumers]
    _consumers.update(dict.fromkeys(added, 0))
    for fn in added:
        for producer in _producers(fn):
            _consumers[producer] += 1
            _frontier.pop(producer, None)
    _frontier.update(dict.fromkeys(fn for fn in added if not _consumers[fn]))
    _whole.clear()
    _roots.clear()


def _producers(fn: Any) -> list[Any]:
    known = _python_producers.get(id(fn))
    following = [child for child, _ in fn.next_functions] if known is None else known
    return [child for child in following if child in _consumers]


def _release(fn: Any) -> list[Any]:
    """Release a node, and return the nodes that have no held consumer left."""
    producers = _producers(fn)
    _python_producers.pop(id(fn), None)
    del _consumers[fn], _frontier[fn]
    freed = []
    for producer in producers:
        _consumers[producer] -= 1
        if _consumers[producer] == 0:
            _frontier[producer] = None
            freed.append(producer)
    return freed


def _own_references() -> int:
    """Count the references to a node that only _consumers and _frontier hold, in code like that of `release_dead`."""
    # The count differs between Python releases: 3.14 borrows some references.
    key = object()
    held, frontier, pending = {key: 0}, {key: None}, [key]
    del key
    fn = pending.pop()
    count = _references(fn)
    held.clear()
    frontier.clear()
    return count


def _references(fn: Any) -> int:
    return sys.getrefcount(fn)


def _on_collection(phase: str, info: dict[str, int]) -> None:  # noqa: ARG001
    if phase == "stop":
        release_dead()


@atexit.register
def _leave_to_the_system() -> None:
    # The interpreter would clear the dicts in any order while the user's tensors still own nodes.
    for holder in (_whole, _roots, _consumers, _frontier, _python_producers):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(holder))
