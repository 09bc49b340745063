"""Tests for plug-ins of other packages; run ``python -m pytest --pyargs gradir.testing`` with the name of one.

``--gradir-frontend NAME --gradir-program PROGRAM`` tests a front-end. ``--gradir-exporter NAME``, ``--gradir-renderer
NAME`` and ``--gradir-pass NAME`` test the others, with options given as ``--gradir-option KEY=VALUE``.
"""

from __future__ import annotations

import builtins
import io
import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

import gradir
from gradir import Builder, Graph, TensorMeta, claims, registry
from gradir.ir.validate import problems
from gradir.options import fill_options
from gradir.protocols import Frontend
from gradir.request import FEATURES

_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "hostile": ("a,b", "quote \"'`", "line\nbreak", "</script><b>", "\u202eabc", "\x1b[31m\x00", "", "[a](b)|{c}"),
    "deep": ("x",) * 5_000,
    "empty": (),
}
_BOUNDARIES: Final = ((builtins, "open"), (io, "open"), (os, "open"), (socket, "socket"), (subprocess, "Popen"))
_KINDS: Final = ("exporter", "renderer", "pass")


class _Plugin(NamedTuple):
    """An exporter, a renderer or a pass, with the options to test it with."""

    kind: str
    name: str
    options: Mapping[str, str]

    def run(self, graph: Graph) -> Any:
        """Return the text of an exporter or renderer, or the graph of a pass."""
        if self.kind == "exporter":
            return registry.export(self.name, graph, self.options)
        if self.kind == "renderer":
            return registry.render(self.name, gradir.diff(_chain(("op",)), graph), self.options)
        options = fill_options(registry.pass_(self.name).options, self.options, self.name, strict=False)
        return registry.run_pass(self.name, graph, options)


def _python(*arguments: str | Path, seed: int = 0, status: tuple[int, ...] = (0,)) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": str(seed), "PYTHONUTF8": "1"}
    command = [sys.executable, *map(str, arguments)]
    done = subprocess.run(command, env=environment, capture_output=True, encoding="utf-8", check=False)
    assert done.returncode in status, done.stderr
    return done.stdout


def _get_option(request: pytest.FixtureRequest, option: str) -> str:
    if not request.config.getoption(option):
        pytest.skip(f"needs {option}")
    return str(request.config.getoption(option))


@pytest.fixture(scope="module")
def frontend(request: pytest.FixtureRequest) -> str:
    return _get_option(request, "--gradir-frontend")


@pytest.fixture(scope="module", params=_KINDS)
def plugin(request: pytest.FixtureRequest) -> _Plugin:
    kind: str = request.param
    name = _get_option(request, f"--gradir-{kind}")
    finder: Any = {"exporter": registry.exporter, "renderer": registry.renderer, "pass": registry.pass_}[kind]
    given = dict(text.partition("=")[::2] for text in request.config.getoption("--gradir-option"))
    known = finder(name).options.__struct_fields__
    return _Plugin(kind, name, {key: value for key, value in given.items() if key in known})


@pytest.fixture(scope="module")
def captures(request: pytest.FixtureRequest, frontend: str, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    program, folder = _get_option(request, "--gradir-program"), tmp_path_factory.mktemp("captures")
    # The second process has to choose the front-end itself.
    for seed, more in enumerate((["--frontend", frontend], ["--verify"])):
        _python("-m", "gradir", "capture", program, "-o", folder / f"{seed}.gir", *more, seed=seed)
    return [folder / "0.gir", folder / "1.gir"]


def test_importing_the_frontend_loads_no_framework(frontend: str) -> None:
    code = "import sys; from gradir import registry; registry.frontend.kind(sys.argv[1]); print(*sys.modules)"
    loaded = {*_python("-c", code, frontend).split()}
    assert not loaded & {kind.framework for kind in claims.kinds().values()}


def test_features_and_methods_agree(frontend: str) -> None:
    kind = registry.frontend.kind(frontend)
    assert kind.features <= {*FEATURES}
    assert {name for name in FEATURES if hasattr(Frontend, name) and hasattr(kind, name)} <= kind.features


def test_a_program_gives_the_same_bytes_twice(captures: list[Path]) -> None:
    assert len({path.read_bytes() for path in captures}) == 1


def test_a_program_is_explained(request: pytest.FixtureRequest, captures: list[Path], frontend: str) -> None:
    if gradir.load(captures[0]).producer.options.get("graph") == "forward":
        pytest.skip("it captures a forward pass")
    command = ("-m", "gradir", "explain", _get_option(request, "--gradir-program"), "--frontend", frontend)
    shown = _python(*command, "--format", "json", status=(0, 1))
    assert json.loads(shown)["statuses"], "the graph names no parameter and no leaf"


def test_the_graph_survives_files_and_exporters(captures: list[Path], frontend: str) -> None:
    graph = gradir.load(captures[0])
    assert graph.producer.framework == registry.frontend.kind(frontend).framework
    assert not [*problems(graph)]
    assert all(gradir.loads(gradir.dumps(graph, format=form)) == graph for form in ("json", "msgpack"))
    assert all(registry.export(name, graph, {}) for name in registry.exporter_names())


@pytest.mark.parametrize("graph", _NAMES)
def test_a_graph_gives_what_fits_the_plugin(plugin: _Plugin, graph: str) -> None:
    made = plugin.run(_chain(_NAMES[graph]))
    assert plugin.kind != "pass" or not [*problems(made)]
    assert plugin.kind == "pass" or made.endswith("\n"), "the text does not end in a newline"


def test_a_graph_gives_the_same_in_every_process(plugin: _Plugin) -> None:
    code = "import sys; from gradir.testing import _show; _show(*sys.argv[1:])"
    arguments = (plugin.kind, plugin.name, json.dumps(plugin.options))
    assert _python("-c", code, *arguments, seed=1) == _python("-c", code, *arguments, seed=2)


def test_a_plugin_reads_and_writes_nothing(plugin: _Plugin, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = _chain(_NAMES["hostile"])
    # Only the first run imports modules.
    plugin.run(graph)

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a plug-in reads and writes nothing")

    for module, name in _BOUNDARIES:
        monkeypatch.setattr(module, name, refuse)
    plugin.run(graph)


@pytest.mark.parametrize("graph", _NAMES)
def test_a_pass_returns_a_graph_itself_that_it_leaves_as_it_is(plugin: _Plugin, graph: str) -> None:
    if plugin.kind != "pass":
        pytest.skip("it is not a pass")
    given = _chain(_NAMES[graph])
    made = plugin.run(given)
    assert made is given or made != given


def _show(kind: str, name: str, options: str) -> None:
    for names in _NAMES.values():
        made = _Plugin(kind, name, json.loads(options)).run(_chain(names))
        sys.stdout.write(gradir.dumps(made).decode() if kind == "pass" else made)


def _chain(names: tuple[str, ...]) -> Graph:
    builder, meta = Builder(), TensorMeta("float32", ("n", 2))
    value = builder.tensor("w", meta, role="parameter", scope="m")
    for name in names:
        value = builder.function(name or "op", [value, None], [meta], names=[name], attrs={name: name})
    builder.output(value)
    return builder.build() if names else Graph.of([])
