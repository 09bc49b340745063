"""Import the object that a PROGRAM names, parse its ``--input``, and run a script as ``python`` does."""

from __future__ import annotations

import importlib
import importlib.util
import io
import os
import pkgutil
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from operator import attrgetter
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Final, NamedTuple, TypeVar

from gradir.errors import CaptureError, GradirError, SpecError, did_you_mean
from gradir.files import working_folder

T = TypeVar("T")

_INPUT: Final = re.compile(r"(?:(?P<name>[A-Za-z_]\w*)=)?(?P<dtype>[a-z]\w*)\[(?P<shape>[\d,\s]*)\]")


class Described(NamedTuple):
    """An input: its keyword or ``None``, the framework's name of its dtype, and its sizes."""

    name: str | None
    dtype: str
    shape: tuple[int, ...]


def parse_described(text: str) -> Described:
    """Return the parts of an input given as ``dtype[shape]`` or ``name=dtype[shape]``."""
    match = _INPUT.fullmatch(text.strip())
    if match is None:
        raise CaptureError(
            f"--input {text!r}: expected dtype[sizes] or name=dtype[sizes], such as float32[1,3,224,224]"
        )
    try:
        shape = tuple(int(size) for size in match["shape"].split(",")) if match["shape"].strip() else ()
    except ValueError as error:
        raise CaptureError(f"--input {text!r}: the sizes must be integers separated by commas") from error
    return Described(match["name"], match["dtype"], shape)


def load_target(spec: str) -> object:
    """Import the object that a PROGRAM names, with its file's directory or the current one on the path."""
    location, _, attribute = spec.rpartition(":")
    if not location or not attribute:
        raise SpecError(f"expected path/to/file.py:name or package.module:name, not {spec!r}; see gradir help program")
    if location.endswith(".py") or "/" in location or "\\" in location:
        module = _load_file(Path(location))
    else:
        with _import_from(location, Path(working_folder()), location):
            module = importlib.import_module(location)
    try:
        return attrgetter(attribute)(module)
    except AttributeError as error:
        names = [
            name
            for name, value in vars(module).items()
            if not name.startswith("_")
            and getattr(value, "__module__", module.__name__) == module.__name__
            and not isinstance(value, ModuleType)
        ]
        defines = ", ".join(names[:20]) or "nothing public"
        hint = did_you_mean(attribute, names)
        raise SpecError(f"{location} has no attribute {attribute!r}{hint}; it defines {defines}") from error
    except Exception as error:
        raise SpecError(f"{spec} raised {describe_error(error)}") from error


def called(target: Callable[[], T], name: str = "") -> T:
    """Call a user's function and return the result."""
    try:
        return target()
    except (GradirError, KeyboardInterrupt):
        raise
    except BaseException as error:
        name = name or getattr(target, "__qualname__", type(target).__name__)
        text = describe_error(error)
        lacks_arguments = re.match(rf"TypeError: {re.escape(name)}(\.__init__)?\(\) missing ", text)
        advice = "; write a function without arguments that calls it, and name that" if lacks_arguments else ""
        raise SpecError(f"{name} raised {text}{advice}") from error


@contextmanager
def calling_on_import(calls: Mapping[str, Callable[[], None]]) -> Iterator[None]:
    """Call a module's function right after the module is imported inside the context."""
    finder = _CallingFinder(calls)
    # Python must ask it before the finder that knows the module.
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


class _CallingFinder(MetaPathFinder):
    """Finds no module itself, but makes the loaders of other finders call a function."""

    def __init__(self, calls: Mapping[str, Callable[[], None]]) -> None:
        self._calls = calls

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name not in self._calls:
            return None
        # Only later finders, since another of this class may come first.
        later = sys.meta_path[sys.meta_path.index(self) + 1 :]
        found = (finder.find_spec(name, path, target) for finder in later if hasattr(finder, "find_spec"))
        spec = next(filter(None, found), None)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_call(module: ModuleType) -> None:
                execute(module)
                # An archive has one loader for all modules.
                if module.__name__ == name:
                    self._calls[name]()

            spec.loader.exec_module = execute_and_call  # type: ignore[method-assign]
        return spec


def describe_error(error: BaseException) -> str:
    """Return a user's own exception as one short line."""
    name = type(error).__name__
    try:
        text = " ".join(str(error).split())
    except Exception:  # noqa: BLE001 (the `__str__` of a user's class may raise anything)
        return name
    return (f"{name}: {text}" if text else name)[:500]


def _load_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise SpecError(f"{path}: no such file")
    # As if a script beside the file imported it. Names of classes in the capture contain this name, and must not
    # contain the directory.
    spec = importlib.util.spec_from_file_location(path.stem, path.resolve())
    if spec is None or spec.loader is None:
        raise SpecError(f"{path}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    with _import_from(str(path), path.resolve().parent):
        previous = sys.modules.get(path.stem)
        sys.modules[path.stem] = module
        try:
            spec.loader.exec_module(module)
        finally:
            if previous is not None:
                sys.modules[path.stem] = previous
    return module


@contextmanager
def _import_from(name: str, directory: Path, module: str = "") -> Iterator[None]:
    """Add a directory to ``sys.path`` inside, and convert errors to a `SpecError` about ``name``."""
    entry = str(directory)
    sys.path.insert(0, entry)
    try:
        yield
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing is not None and f"{module}.".startswith(f"{missing}."):
            raise SpecError(f"{name}: no such module here") from error
        advice = "; install it where gradir runs" if missing is not None else ""
        raise SpecError(f"{name} raised {describe_error(error)}{advice}") from error
    finally:
        # The program may have removed the entry.
        if entry in sys.path:
            sys.path.remove(entry)


_MAIN: Final = "__main__"


class NoScriptError(SpecError):
    """A script that does not exist or cannot be run."""


@contextmanager
def program_arguments(words: Sequence[str], *, for_good: bool = False) -> Iterator[None]:
    """Set ``sys.argv`` inside; with ``for_good`` it stays."""
    before, sys.argv = sys.argv, [*words]
    try:
        yield
    finally:
        if not for_good:
            sys.argv = before


def run_script(name: str, arguments: Sequence[str], *, is_module: bool, for_good: bool) -> None:
    """Run a script, a folder or archive with a ``__main__``, or with ``is_module`` a module."""
    main, path = ModuleType(_MAIN), sys.path.copy()
    before = sys.modules[_MAIN]
    with program_arguments([name, *arguments], for_good=for_good):
        try:
            code = _prepare_code(main, name, is_module=is_module)
            sys.modules[_MAIN] = main
            exec(code, vars(main))  # noqa: S102 (the user asked for it)
        finally:
            # Threads and exit handlers of the script may still use them.
            if not for_good:
                sys.modules[_MAIN] = before
                sys.path[:] = path


def _prepare_code(main: ModuleType, name: str, *, is_module: bool) -> CodeType:
    """Return the code to run as ``__main__``, and set ``sys.path`` as Python does."""
    if is_module:
        sys.path.insert(0, working_folder())
        spec = _find_module(name)
        sys.argv[0] = spec.origin or name
        return _load_code(main, name, spec)
    # Python keeps the script's name from the command line, and imports from the folder of a link's target.
    path = os.path.join(working_folder(), name)  # noqa: PTH118 (a path would be tidied)
    importer: Any = pkgutil.get_importer(name) if Path(name).exists() else None
    if importer is not None:
        inside: ModuleSpec | None = importer.find_spec(_MAIN)
        if inside is None:
            raise NoScriptError(f"{name}: has no __main__.py; name a script in it")
        sys.path.insert(0, path)
        return _load_code(main, name, inside)
    try:
        with io.open_code(path) as file:
            source = file.read()
    except OSError as error:
        raise NoScriptError(f"{name}: cannot be run: {error.strerror}") from error
    sys.path.insert(0, str(Path(os.path.realpath(path)).parent))
    main.__file__, main.__loader__ = path, SourceFileLoader(_MAIN, path)
    # Python sets it for a script, and typeshed's ModuleType has no such attribute.
    vars(main)["__cached__"] = None
    # Not by the loader, which would write bytecode beside the script; Python does that for modules only.
    code: CodeType = compile(source, path, "exec", dont_inherit=True)
    return code


def _find_module(name: str) -> ModuleSpec:
    for module in (name, f"{name}.{_MAIN}"):
        try:
            spec = importlib.util.find_spec(module)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{module}.".startswith(f"{error.name}."):
                raise
            spec = None
        if spec is None or spec.submodule_search_locations is None:
            break
    if spec is None or spec.loader is None:
        raise NoScriptError(f"{module}: no such module here")
    return spec


def _load_code(main: ModuleType, name: str, spec: ModuleSpec) -> CodeType:
    loader: Any = spec.loader
    code: CodeType | None = loader.get_code(spec.name)
    if code is None:
        raise NoScriptError(f"{name}: has no code to run")
    main.__spec__, main.__loader__, main.__package__ = spec, loader, spec.parent
    if spec.has_location:
        main.__file__ = spec.origin
        vars(main)["__cached__"] = spec.cached
    return code
