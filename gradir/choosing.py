"""Which front-end an object is for. The front-ends' classes are asked, so that no framework is imported for that."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import cache, partial
from importlib.util import find_spec
from typing import Final, TypeVar

from gradir import registry
from gradir.abilities import (
    Differentiates,
    Exchanges,
    Explains,
    Fakes,
    Flows,
    Records,
    Releases,
    Runs,
    Seeds,
    StandsIn,
    Verifies,
    Watched,
    Watches,
)
from gradir.errors import CaptureError, GradirError, warn
from gradir.ir import Graph
from gradir.protocols import Frontend, Recorder
from gradir.spec import calling_on_import

__all__ = [
    "ABILITIES",
    "able",
    "advice",
    "claiming",
    "kinds",
    "other_format",
    "recording",
    "releasing",
    "running",
    "seeding",
    "standing_in",
    "unable",
    "watching",
]

AbilityT = TypeVar("AbilityT")

ABILITIES: Final[Mapping[type, str]] = {
    Runs: "run on inputs (--input) or note source lines (--sources)",
    Fakes: "run without data (--fake)",
    Seeds: "set a seed (--seed)",
    Verifies: "verify a graph (--verify)",
    Explains: "explain where a gradient ends (gradir explain)",
    Differentiates: "differentiate a function (argnums, has_aux, gradir.explain)",
    Records: "record",
    Flows: "note every operation of a forward (--flow)",
    Exchanges: "note what processes exchange (--collectives)",
    StandsIn: "make a rank without the others (--world)",
    Watches: "capture a script at its backward (gradir run)",
}
"""What a front-end may be unable to do, in words."""

_CAPTURE: Final = "e.g. gradir capture net.py:Net --input 'float32[1,3]' -o net.gir"
_OTHER_FORMATS: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        (".safetensors", ".npz", ".h5"), f"a file of weights, without a graph; capture the model, {_CAPTURE}"
    ),
    ".onnx": f"an ONNX model, which has no autograd graph; capture the program that it was exported from, {_CAPTURE}",
    ".ipynb": "a notebook; call gradir.capture(loss).save('loss.gir') in a cell, or move the model to a .py file",
}
"""Files that people have beside their models, by suffix; a front-end knows those of its framework."""


def able(name: str, ability: type[AbilityT]) -> AbilityT:
    """The front-end of that name, as one that has an ability.

    Raises:
        CaptureError: it has not.
    """
    found = registry.frontend(name)
    if isinstance(found, ability):
        return found
    others = [other for other, kind in kinds().items() if issubclass(kind, ability) and _is_there(kind.framework)]
    raise CaptureError(
        f"front-end {name!r} cannot {ABILITIES[ability]}: of those installed {' and '.join(others) or 'none'} can"
    )


def unable(ability: type) -> Iterator[str]:
    """What the front-ends cannot do whose framework the program has loaded, in words."""
    for name, kind in _loaded().items():
        if not issubclass(kind, ability):
            yield f"front-end {name!r} cannot {ABILITIES[ability]}"


@cache
def kinds() -> Mapping[str, type[Frontend]]:
    """The classes of the installed front-ends by name. One that is broken is warned of and left out."""
    found = {}
    for name in registry.frontend.names():
        try:
            kind = registry.frontend.kind(name)
        except GradirError as error:
            warn(str(error))
            continue
        found[name] = kind
    return found


def claiming(*objects: object, chosen: str | None = None) -> str:
    """The front-end that is chosen, or else that claims the first of some objects, or what is inside, that any claims.

    What nobody claims is left to the only front-end whose framework is loaded, which knows best what is wrong with it.

    Raises:
        CaptureError: nobody claims anything, or several claim the same.
        GradirError: there is no such front-end as was chosen.
    """
    if chosen is not None:
        registry.frontend(chosen)
        return chosen
    loaded = _loaded()
    for part in _parts(objects):
        names = _claimants(loaded, part)
        if names:
            return _only(names, _told(part))
    return _only(loaded if len(loaded) == 1 else (), _told(objects[0]))


def running(target: object, chosen: str | None = None) -> str:
    """The front-end for what a PROGRAM names: one that claims it, or one whose framework the program has loaded.

    Raises:
        CaptureError: there is none, or there are several.
        GradirError: there is no such front-end as was chosen.
    """
    if chosen is not None or not callable(target):
        return claiming(target, chosen=chosen)
    return _only(_claimants(_loaded(), target) or _usable(), _told(target))


def other_format(path: str) -> str:
    """Return what a file is by its name, and the command that works instead; empty for any name that is not known.

    >>> other_format("model.onnx").partition(",")[0], other_format("model.gir")
    ('an ONNX model', '')
    """
    suffix = path[path.rfind(".") :].lower() if "." in path else ""
    known = _OTHER_FORMATS.get(suffix, "")
    return known or next(filter(None, (getattr(kind, "files", {}).get(suffix) for kind in kinds().values())), "")


def recording(model: object, chosen: str | None, *, sources: bool, flow: bool, collectives: bool) -> Recorder:
    """A recorder of the front-end that records a model, or whatever runs where there is none; see `gradir.record`.

    Raises:
        CaptureError: there is none, or there are several, or it cannot do what is asked.
        GradirError: there is no such front-end as was chosen.
    """
    if chosen is not None or model is not None:
        name = claiming(model, chosen=chosen)
    else:
        around = _usable()
        name = _only([name for name, kind in around.items() if issubclass(kind, Records)] or around, "what runs")
    if collectives:
        return able(name, Exchanges).record(model, sources=sources, flow=flow, collectives=True)
    if flow:
        return able(name, Flows).record(model, sources=sources, flow=True)
    return able(name, Records).record(model, sources=sources)


def releasing() -> Iterator[Releases]:
    """The front-ends that may hold something."""
    return (each for each in map(registry.frontend, _loaded()) if isinstance(each, Releases))


def seeding(number: int) -> AbstractContextManager[None]:
    """Have every framework start from a seed: now where it is loaded, else when it is imported inside the context."""
    return _calling_once_loaded(Seeds, lambda name: able(name, Seeds).seed(number))


def standing_in(rank: int, world: int, chosen: str | None) -> AbstractContextManager[None]:
    """Let the program inside be one rank of many, by the front-end that is chosen, or that can; see `StandsIn`.

    Raises:
        CaptureError: none can, or there are several.
    """
    if chosen is None:
        usable = {name: kind for name, kind in _usable().items() if issubclass(kind, StandsIn)}
        chosen = _only(usable or _usable(), "a rank without the others")
    return able(chosen, StandsIn).standing_in(rank, world)


@contextmanager
def watching(step: int, reached: Callable[[Callable[[], Graph]], None]) -> Iterator[Callable[[], int]]:
    """Have every front-end that can watch the program that runs inside, see `Watches`; gives what counts its calls."""
    watched: list[Watched] = []
    with ExitStack() as entered:

        def watch(name: str) -> None:
            watched.append(entered.enter_context(able(name, Watches).watching(step, reached)))

        with _calling_once_loaded(Watches, watch):
            yield lambda: sum(each.calls for each in watched)


def _calling_once_loaded(ability: type, call: Callable[[str], None]) -> AbstractContextManager[None]:
    """Call with the name of every front-end that has an ability, once its framework is loaded."""
    calls = {kind.framework: partial(call, name) for name, kind in kinds().items() if issubclass(kind, ability)}
    for framework, loaded in calls.items():
        if sys.modules.get(framework) is not None:
            loaded()
    return calling_on_import(calls)


def advice(error: BaseException | None) -> str:
    """How to get the framework that an import did not find, to be put behind what was wrong."""
    name = error.name if isinstance(error, ModuleNotFoundError) else None
    return "".join(f"; {kind.install}" for kind in kinds().values() if kind.framework == name)


def _loaded() -> dict[str, type[Frontend]]:
    return {name: kind for name, kind in kinds().items() if sys.modules.get(kind.framework) is not None}


def _claimants(loaded: Mapping[str, type[Frontend]], value: object) -> list[str]:
    names = []
    for name, kind in loaded.items():
        with registry.frontend.failing(name):
            if kind.claims(value):
                names.append(name)
    return names


def _usable() -> dict[str, type[Frontend]]:
    """Those whose framework is loaded, or could be where none is."""
    return _loaded() or {name: kind for name, kind in kinds().items() if _is_there(kind.framework)}


def _parts(objects: Iterable[object]) -> Iterator[object]:
    """Some objects and what is in their tuples, lists and dicts, each in turn."""
    seen: set[int] = set()
    left = [*objects][::-1]
    while left:
        value = left.pop()
        if value is None or isinstance(value, (str, int, float, bytes)) or id(value) in seen:
            continue
        if type(value) not in (tuple, list, dict):
            yield value
        if isinstance(value, (tuple, list, dict)):
            seen.add(id(value))
            left += [*(value.values() if isinstance(value, dict) else value)][::-1]


def _told(value: object) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else f"an object of type {type(value).__name__}"


def _only(names: Iterable[str], what: str) -> str:
    found = [*names]
    if len(found) == 1:
        return found[0]
    if found:
        raise CaptureError(
            f"{' and '.join(found)} may all capture {what}: choose one with frontend={found[0]!r}, "
            f"on the command line --frontend {found[0]}"
        )
    offers = "; ".join(
        f"{name} takes {kind.takes}{_lack(kind.framework, kind.install)}" for name, kind in kinds().items()
    )
    raise CaptureError(f"no front-end captures {what}: {offers or 'none is installed'}")


def _is_there(framework: str) -> bool:
    """Whether a framework is loaded or could be."""
    return sys.modules.get(framework) is not None or find_spec(framework) is not None


def _lack(framework: str, install: str) -> str:
    """What keeps the front-end of a framework from claiming anything."""
    if sys.modules.get(framework) is not None:
        return ""
    return f" ({framework} is not loaded)" if find_spec(framework) else f" ({framework} is not installed: {install})"
