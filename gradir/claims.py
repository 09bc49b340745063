"""Choose the front-end for an object, a request or a file. Choosing one imports no framework."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache
from importlib.util import find_spec
from typing import Final

from gradir import registry
from gradir.errors import CaptureError
from gradir.protocols import Frontend
from gradir.request import FEATURES, CaptureRequest, list_options

_CAPTURE: Final = "e.g. gradir capture net.py:Net --input 'float32[1,3]' -o net.gir"
# Files that users have beside their models, by suffix; each front-end lists those of its framework.
_OTHER_FORMATS: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        (".safetensors", ".npz", ".h5"), f"a file of weights, without a graph; capture the model, {_CAPTURE}"
    ),
    ".onnx": f"an ONNX model, which has no autograd graph; capture the program that it was exported from, {_CAPTURE}",
    ".ipynb": "a notebook; call gradir.capture(loss).save('loss.gir') in a cell, or move the model to a .py file",
}


def choose_frontend(request: CaptureRequest) -> str:
    """Return the name of the front-end for a request: the chosen one, or the one that claims its objects."""
    target, needed = request.target, {feature for _, feature in features_of(request)}
    if request.frontend is None and request.is_program and callable(target):
        names = _find_claimants(find_loaded_kinds(), target, needed) or _find_general(usable_kinds())
        return expect_one(names, _describe(target))
    others = () if request.is_program else (request.inputs, request.kwargs, request.model, request.params)
    return find_claimant(target, *others, chosen=request.frontend, needed=needed)


def find_claimant(*objects: object, chosen: str | None = None, needed: Collection[str] = ()) -> str:
    """Return the chosen front-end, or the one with all ``needed`` features that claims an object or its content."""
    if chosen is not None:
        registry.frontend(chosen)
        return chosen
    loaded = find_loaded_kinds()
    for part in _walk_contents(objects):
        if names := _find_claimants(loaded, part, needed):
            return expect_one(names, _describe(part))
    # If none claims it, the only front-end whose framework is loaded raises the best error.
    general = _find_general(loaded)
    return expect_one(general if len(general) == 1 else (), _describe(objects[0]))


def expect_feature(name: str, feature: str, spelled: str = "") -> Frontend:
    """Return the front-end of a name, which must have a feature; ``spelled`` is the option that asks for it."""
    found = registry.frontend(name)
    if feature in found.features:
        return found
    others = [other for other, kind in kinds().items() if feature in kind.features and _is_installed(kind.framework)]
    have = f"of those installed {' and '.join(others) or 'none'} can"
    option = f" ({spelled})" if spelled else ""
    ability = f"{FEATURES[feature]}{option}" if feature in FEATURES else f"take {spelled or feature}"
    raise CaptureError(f"front-end {name!r} cannot {ability}: {have}")


def describe_lacking(feature: str) -> Iterator[str]:
    """Yield a sentence for each loaded front-end that lacks a feature."""
    loaded = find_loaded_kinds()
    for name in _find_general(loaded):
        if feature not in loaded[name].features:
            yield f"front-end {name!r} cannot {FEATURES[feature]}"


# The cache makes gradir report a broken front-end once.
@cache
def kinds() -> Mapping[str, type[Frontend]]:
    """Return the classes of the installed front-ends by name, and warn of broken ones."""
    return registry.frontend.working(registry.frontend.kind)


def other_format(path: str) -> str:
    """Describe a file by its name with the command that works instead; return an empty text if it is unknown."""
    suffix = path[path.rfind(".") :].lower() if "." in path else ""
    known = _OTHER_FORMATS.get(suffix, "")
    return known or next(filter(None, (getattr(kind, "files", {}).get(suffix) for kind in kinds().values())), "")


def reader_of(path: str) -> str:
    """Return the front-end that reads files of this name, or an empty text if none does."""
    suffix = path[path.rfind(".") :].lower() if "." in path else ""
    return next((name for name, kind in kinds().items() if suffix in getattr(kind, "reads", ())), "")


def advice(error: BaseException | None) -> str:
    """Return how to install the framework that an import did not find, for the end of an error."""
    name = error.name if isinstance(error, ModuleNotFoundError) else None
    installs = dict.fromkeys(kind.install for kind in kinds().values() if kind.framework == name)
    return "".join(f"; {install}" for install in installs)


def features_of(request: CaptureRequest) -> Iterator[tuple[str, str]]:
    """Yield the options given in a request, each with the feature that it needs."""
    for option, each in list_options().items():
        value = getattr(request, option)
        # A tensor compares elementwise, so only values of plain types are compared.
        is_default = value is each.default or (isinstance(value, (bool, int, str, tuple)) and value == each.default)
        feature = each.option.values.get(value, each.option.needs) if isinstance(value, str) else each.option.needs
        if feature and not is_default:
            yield option, feature


def spell_option(request: CaptureRequest, option: str) -> str:
    """Return an option as the caller writes it, in Python or on the command line."""
    value = getattr(request, option)
    if not request.is_program:
        return f"{option}={value!r}" if isinstance(value, (bool, int, str)) else option
    flag = str(list_options()[option].flag)
    return f"{flag} {value}" if isinstance(value, str) else flag


def find_loaded_kinds() -> dict[str, type[Frontend]]:
    """Return the front-ends whose framework is loaded."""
    # None in sys.modules forbids an import.
    return {name: kind for name, kind in kinds().items() if sys.modules.get(kind.framework) is not None}


def _find_claimants(loaded: Mapping[str, type[Frontend]], value: object, needed: Collection[str] = ()) -> list[str]:
    names = []
    for name, kind in loaded.items():
        with registry.frontend.failing(name):
            if kind.claims(value):
                names.append(name)
    fitting = [name for name in names if loaded[name].features >= {*needed}] or names
    preceded = {other for name in fitting for other in getattr(loaded[name], "before", ())}
    return [name for name in fitting if name not in preceded]


def _find_general(names: Mapping[str, type[Frontend]]) -> list[str]:
    return [name for name, kind in names.items() if not getattr(kind, "before", ())]


def usable_kinds() -> dict[str, type[Frontend]]:
    """Return the front-ends whose framework is loaded, or could be if none is."""
    return find_loaded_kinds() or {name: kind for name, kind in kinds().items() if _is_installed(kind.framework)}


def _walk_contents(objects: Iterable[object]) -> Iterator[object]:
    # A container may contain itself.
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


def _describe(value: object) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else f"an object of type {type(value).__name__}"


def expect_one(names: Iterable[str], subject: str) -> str:
    """Return the single name; without one, or with several, raise an error about the ``subject`` of the capture."""
    found = [*names]
    if len(found) == 1:
        return found[0]
    if found:
        raise CaptureError(
            f"{' and '.join(found)} may all capture {subject}: choose one with frontend={found[0]!r}, "
            f"on the command line --frontend {found[0]}"
        )
    offers = []
    for name, kind in kinds().items():
        lack = f" ({kind.framework} is not loaded)"
        if sys.modules.get(kind.framework) is not None:
            lack = ""
        elif not _is_installed(kind.framework):
            lack = f" ({kind.framework} is not installed: {kind.install})"
        offers.append(f"{name} takes {kind.takes}{lack}")
    raise CaptureError(f"no front-end captures {subject}: {'; '.join(offers) or 'none is installed'}")


def _is_installed(framework: str) -> bool:
    return sys.modules.get(framework) is not None or find_spec(framework) is not None
