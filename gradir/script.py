"""Run a script, or a module, as ``python`` does: as ``__main__``, with arguments and a place to import from."""

from __future__ import annotations

import importlib.util
import io
import os
import pkgutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Final

from gradir.errors import SpecError
from gradir.files import working_folder

_MAIN: Final = "__main__"


class NoScriptError(SpecError):
    """There is no such script to run."""


@contextmanager
def program_arguments(words: Sequence[str], *, for_good: bool = False) -> Iterator[None]:
    """Have ``sys.argv`` hold these words inside; with ``for_good`` afterwards too."""
    before, sys.argv = sys.argv, [*words]
    try:
        yield
    finally:
        if not for_good:
            sys.argv = before


def run_script(name: str, arguments: Sequence[str], *, is_module: bool, for_good: bool) -> None:
    """Run the script of that name, a folder or archive with a ``__main__``, or with ``is_module`` a module."""
    main, path = ModuleType(_MAIN), sys.path.copy()
    before = sys.modules[_MAIN]
    with program_arguments([name, *arguments], for_good=for_good):
        try:
            code = _prepared(main, name, is_module=is_module)
            sys.modules[_MAIN] = main
            exec(code, vars(main))  # noqa: S102 (the user asked for it)
        finally:
            # Threads and exit handlers of the script may still look for it.
            if not for_good:
                sys.modules[_MAIN] = before
                sys.path[:] = path


def _prepared(main: ModuleType, name: str, *, is_module: bool) -> CodeType:
    """Return the code to run as ``__main__``, and set ``sys.path`` as Python does."""
    if is_module:
        sys.path.insert(0, working_folder())
        spec = _module(name)
        sys.argv[0] = spec.origin or name
        return _of_module(main, name, spec)
    # Python names the script as it was called, and imports from beside what a link leads to.
    path = os.path.join(working_folder(), name)  # noqa: PTH118 (a path would be tidied)
    importer: Any = pkgutil.get_importer(name) if Path(name).exists() else None
    if importer is not None:
        inside: ModuleSpec | None = importer.find_spec(_MAIN)
        if inside is None:
            raise NoScriptError(f"{name}: there is no __main__.py in it")
        sys.path.insert(0, path)
        return _of_module(main, name, inside)
    try:
        with io.open_code(path) as file:
            source = file.read()
    except OSError as error:
        raise NoScriptError(f"{name}: cannot be run: {error.strerror}") from error
    sys.path.insert(0, str(Path(os.path.realpath(path)).parent))
    main.__file__, main.__loader__ = path, SourceFileLoader(_MAIN, path)
    # Python sets it for a script, and typeshed's ModuleType has no such attribute.
    vars(main)["__cached__"] = None
    # By itself, since a loader would keep it compiled beside the script, which Python does of modules alone.
    code: CodeType = compile(source, path, "exec", dont_inherit=True)
    return code


def _module(name: str) -> ModuleSpec:
    for called in (name, f"{name}.{_MAIN}"):
        try:
            spec = importlib.util.find_spec(called)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{called}.".startswith(f"{error.name}."):
                raise
            spec = None
        if spec is None or spec.submodule_search_locations is None:
            break
    if spec is None or spec.loader is None:
        raise NoScriptError(f"{called}: no such module here")
    return spec


def _of_module(main: ModuleType, name: str, spec: ModuleSpec) -> CodeType:
    loader: Any = spec.loader
    code: CodeType | None = loader.get_code(spec.name)
    if code is None:
        raise NoScriptError(f"{name}: there is no code of it to run")
    main.__spec__, main.__loader__, main.__package__ = spec, loader, spec.parent
    if spec.has_location:
        main.__file__ = spec.origin
        vars(main)["__cached__"] = spec.cached
    return code
