"""Tests for plug-ins of other packages; run ``python -m pytest --pyargs gradir.testing`` with the name of one.

``--gradir-frontend NAME --gradir-program PROGRAM`` tests a front-end, ``--gradir-exporter NAME`` an exporter.
"""

from __future__ import annotations

import builtins
import io
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

import gradir
from gradir import Builder, Graph, TensorMeta, capturing, registry
from gradir.errors import ExportError
from gradir.ir.validate import problems
from gradir.protocols import Frontend
from gradir.request import FEATURES

_HOSTILE: Final = ("a,b", "quote \"'`", "line\nbreak", "</script><b>", "\u202eabc", "\x1b[31m\x00", "", "[a](b)|{c}")
_DEEP: Final = ("x",) * 5_000
_BOUNDARIES: Final = ((builtins, "open"), (io, "open"), (os, "open"), (socket, "socket"), (subprocess, "Popen"))


def _python(*arguments: str | Path, seed: int = 0) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": str(seed), "PYTHONUTF8": "1"}
    command = [sys.executable, *map(str, arguments)]
    done = subprocess.run(command, env=environment, capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def _asked(request: pytest.FixtureRequest, option: str) -> str:
    if not request.config.getoption(option):
        pytest.skip(f"needs {option}")
    return str(request.config.getoption(option))


@pytest.fixture(scope="module")
def frontend(request: pytest.FixtureRequest) -> str:
    return _asked(request, "--gradir-frontend")


@pytest.fixture(scope="module")
def exporter(request: pytest.FixtureRequest) -> str:
    return _asked(request, "--gradir-exporter")


@pytest.fixture(scope="module")
def captures(request: pytest.FixtureRequest, frontend: str, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Captures by two processes; the second one finds the front-end by what it claims."""
    program, folder = _asked(request, "--gradir-program"), tmp_path_factory.mktemp("captures")
    verify = ["--verify"] if "verify" in registry.frontend.kind(frontend).features else []
    for seed, more in enumerate((["--frontend", frontend], verify)):
        _python("-m", "gradir", "capture", program, "-o", folder / f"{seed}.gir", *more, seed=seed)
    return [folder / "0.gir", folder / "1.gir"]


def test_importing_the_frontend_loads_no_framework(frontend: str) -> None:
    code = "import sys; from gradir import registry; registry.frontend.kind(sys.argv[1]); print(*sys.modules)"
    loaded = {*_python("-c", code, frontend).split()}
    assert not loaded & {kind.framework for kind in capturing.kinds().values()}


def test_features_and_methods_agree(frontend: str) -> None:
    kind = registry.frontend.kind(frontend)
    assert kind.features <= {*FEATURES}
    assert {name for name in FEATURES if hasattr(Frontend, name) and hasattr(kind, name)} <= kind.features


def test_a_program_gives_the_same_bytes_twice(captures: list[Path]) -> None:
    assert len({path.read_bytes() for path in captures}) == 1


def test_the_graph_survives_files_and_exporters(captures: list[Path], frontend: str) -> None:
    graph = gradir.load(captures[0])
    assert graph.producer.framework == registry.frontend.kind(frontend).framework
    assert not [*problems(graph)]
    assert all(gradir.loads(gradir.dumps(graph, format=form)) == graph for form in ("json", "msgpack"))
    assert all(registry.export(name, graph, {}) for name in registry.exporter_names())


@pytest.mark.parametrize("names", [_HOSTILE, _DEEP, ()], ids=["hostile", "deep", "empty"])
def test_a_graph_gives_the_same_text_in_every_process(exporter: str, names: tuple[str, ...], tmp_path: Path) -> None:
    _chain(names).save(tmp_path / "a.gir")
    for seed in (1, 2):
        out = tmp_path / f"{seed}.out"
        _python("-m", "gradir", "export", tmp_path / "a.gir", "--to", exporter, "-o", out, seed=seed)
    assert (tmp_path / "1.out").read_bytes() == (tmp_path / "2.out").read_bytes()
    assert registry.export(exporter, _chain(names), {}).endswith("\n")


def test_an_exporter_is_pure_and_refuses_unknown_options(exporter: str, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = _chain(_HOSTILE)
    with pytest.raises(ExportError):
        registry.export(exporter, graph, {"no-such-option": 1})
    # Only the first export imports modules.
    registry.export(exporter, graph, {})
    for module, name in _BOUNDARIES:
        monkeypatch.setattr(module, name, _refuse)
    registry.export(exporter, graph, {})


def _refuse(*_: Any, **__: Any) -> None:
    raise AssertionError("an exporter reads and writes nothing")


def _chain(names: tuple[str, ...]) -> Graph:
    builder, meta = Builder(), TensorMeta("float32", ("n", 2))
    value = builder.tensor("w", meta, role="parameter", scope="m")
    for name in names:
        value = builder.function(name or "op", [value, None], [meta], names=[name], attrs={name: name})
    builder.output(value)
    return builder.build() if names else Graph.of([])
