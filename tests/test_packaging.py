"""What pip installs: two packages, their entry points, and a core that works and starts without torch."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Iterator
from configparser import ConfigParser
from email.parser import Parser
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from plugins import BUILT_IN
from samples import everything

import gradir

ROOT = Path(__file__).parent.parent
FRAMEWORKS = ("jax", "numpy", "tensorflow", "torch")


def build(source: Path, target: Path, *kinds: str) -> None:
    arguments = [argument for kind in kinds for argument in ("-t", kind)]
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(target), *arguments]
    subprocess.run(command, cwd=source, check=True, capture_output=True, timeout=120)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the wheel and the source distribution."""
    target = tmp_path_factory.mktemp("built")
    build(ROOT, target, "sdist", "wheel")
    return target


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    (path,) = built.glob("*.whl")
    return path


def names_in(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return sorted(archive.namelist())


def read(wheel: Path, name: str) -> str:
    with zipfile.ZipFile(wheel) as archive:
        return archive.read(f"gradir-{gradir.__version__}.dist-info/{name}").decode()


def test_the_wheel_ships_two_packages(wheel: Path) -> None:
    assert {name.partition("/")[0] for name in names_in(wheel)} == {
        "gradir",
        "gradir_exporters",
        f"gradir-{gradir.__version__}.dist-info",
    }


def test_the_wheel_ships_every_module_of_the_tree(wheel: Path) -> None:
    def files(folder: Path) -> Iterator[str]:
        for path in folder.rglob("*"):
            if path.is_file() and path.suffix != ".pyc":
                yield path.relative_to(folder.parent).as_posix()

    packaged = {name for name in names_in(wheel) if ".dist-info/" not in name}
    schemas = {f"gradir/schemas/{path.name}" for path in (ROOT / "schemas").glob("[!_]*") if path.suffix != ".py"}
    assert packaged == {*files(ROOT / "gradir"), *files(ROOT / "exporters" / "gradir_exporters"), *schemas}
    assert {"gradir/py.typed", "gradir_exporters/py.typed"} <= packaged


def test_the_wheel_registers_the_command_and_the_plugins(wheel: Path) -> None:
    points = ConfigParser()
    points.read_string(read(wheel, "entry_points.txt"))
    assert set(points.sections()) == {
        "console_scripts",
        "gradir.exporters",
        "gradir.frontends",
        "gradir.passes",
        "gradir.renderers",
        "gradir.vocabularies",
        "pytest11",
    }
    assert dict(points["pytest11"]) == {"gradir": "gradir.pytest_plugin"}
    assert dict(points["console_scripts"]) == {"gradir": "gradir.cli:main"}
    assert set(points["gradir.frontends"]) == {"export", "jax", "torch"}
    assert set(points["gradir.vocabularies"]) == {"jax", "torch"}
    assert tuple(sorted(points["gradir.exporters"])) == BUILT_IN


def requirements_of(wheel: Path) -> list[Requirement]:
    metadata = Parser().parsestr(read(wheel, "METADATA"))
    return [Requirement(line) for line in metadata.get_all("Requires-Dist", [])]


def test_the_wheel_needs_torch_only_as_an_extra(wheel: Path) -> None:
    requirements = requirements_of(wheel)
    core = {requirement.name for requirement in requirements if requirement.marker is None}
    assert core == {"argcomplete", "graphviz", "markdown-it-py", "mermaid-py", "msgpack", "msgspec", "pydot", "rich"}
    assert {str(requirement.marker) for requirement in requirements if requirement.name == "torch"} == {
        'extra == "torch"'
    }
    assert {str(requirement.marker) for requirement in requirements if requirement.name == "tomli"} == {
        'python_version < "3.11"'
    }


@pytest.mark.parametrize(
    ("system", "machine", "is_needed"),
    [
        ("linux", "x86_64", True),
        ("linux", "aarch64", True),
        ("darwin", "x86_64", True),
        ("darwin", "arm64", True),
        ("win32", "AMD64", True),
        ("win32", "ARM64", True),
        ("linux", "armv7l", False),
        ("linux", "i686", False),
        ("linux", "riscv64", False),
        ("win32", "x86", False),
        ("freebsd14", "amd64", False),
        ("emscripten", "wasm32", False),
    ],
)
def test_the_wheel_needs_graphviz_pure_where_that_has_a_wheel(
    system: str, machine: str, is_needed: bool, wheel: Path
) -> None:
    markers = [requirement.marker for requirement in requirements_of(wheel) if requirement.name == "graphviz-pure"]
    environment = {"sys_platform": system, "platform_machine": machine, "extra": ""}
    assert [marker.evaluate(environment) for marker in markers if marker].count(True) == is_needed


def test_the_wheel_holds_the_license(wheel: Path) -> None:
    assert read(wheel, "licenses/LICENSE").startswith("MIT License")
    assert Parser().parsestr(read(wheel, "METADATA"))["License-Expression"] == "MIT"


def test_the_source_distribution_builds_the_same_wheel(built: Path, wheel: Path, tmp_path: Path) -> None:
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        archive.extractall(tmp_path / "source", filter="data")
    (source,) = (tmp_path / "source").iterdir()
    build(source, tmp_path, "wheel")
    (again,) = tmp_path.glob("*.whl")
    assert names_in(again) == names_in(wheel)
    assert {"LICENSE", "Makefile", "README.md"} <= {entry.name for entry in source.iterdir()}
    # `make release-check` runs its tests.
    for folder in ("benchmarks", "examples", "release", "schemas", "tests"):
        programs = {
            path.relative_to(ROOT) for path in (ROOT / folder).rglob("*.py") if "node_modules" not in path.parts
        }
        assert programs <= {path.relative_to(source) for path in (source / folder).rglob("*.py")}


def needed_by(name: str) -> Iterator[Distribution]:
    """The distributions that an installation of ``name`` brings with it, without its extras."""
    waiting, seen = [name], {name}
    while waiting:
        for line in distribution(waiting.pop()).requires or ():
            requirement = Requirement(line)
            wanted = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
            if wanted and requirement.name.lower() not in seen:
                seen.add(requirement.name.lower())
                waiting.append(requirement.name)
                yield distribution(requirement.name)


@pytest.fixture(scope="module")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program directory of an environment that holds the wheel and what it declares that it needs: nothing else."""
    home = tmp_path_factory.mktemp("bare")
    venv.create(home, symlinks=True)
    command = [sys.executable, "-m", "pip", "--python", str(home / "bin" / "python")]
    subprocess.run([*command, "install", "--quiet", "--no-deps", "--no-index", wheel], check=True, timeout=120)
    (site,) = home.glob("lib/python*/site-packages")
    for needed in needed_by("gradir"):
        for top in {file.parts[0] for file in needed.files or () if file.parts[0] not in ("..", "__pycache__")}:
            (site / top).symlink_to(needed.locate_file(top).resolve())
    return home / "bin"


@pytest.fixture(scope="module")
def gir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gir") / "sample.gir"
    everything().save(path)
    return path


def run(program: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    outside = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"}
    environment = {key: value for key, value in os.environ.items() if key not in outside} | {"PYTHONUTF8": "1"}
    command = [str(program), *map(str, arguments)]
    # Not in the repository, where the current directory would stand in for the installed package.
    return subprocess.run(
        command, cwd=program.parent, env=environment, capture_output=True, encoding="utf-8", timeout=60, check=False
    )


def test_the_bare_environment_has_no_framework(bare: Path) -> None:
    code = f"from importlib.util import find_spec; print([n for n in {FRAMEWORKS} if find_spec(n)])"
    assert run(bare / "python", "-c", code).stdout == "[]\n"


def test_gradir_starts_without_torch(bare: Path) -> None:
    result = run(bare / "python", "-c", "import gradir; print(gradir.__file__)")
    assert result.returncode == 0, result.stderr
    assert Path(result.stdout.strip()).is_relative_to(bare.parent)
    result = run(bare / "gradir", "--version")
    assert (result.returncode, result.stdout, result.stderr) == (0, f"gradir {gradir.__version__}\n", "")


@pytest.mark.parametrize("exporter", BUILT_IN)
def test_every_exporter_works_without_torch(bare: Path, gir: Path, exporter: str) -> None:
    result = run(bare / "gradir", "export", gir, "--to", exporter)
    assert (result.returncode, result.stderr) == (0, "")
    names = {"file": Path(gir).name} if exporter == "html" else {}
    assert result.stdout == gradir.export(gradir.load(gir), exporter, **names)


@pytest.mark.parametrize("command", ["validate", "info", "summary"])
def test_reading_commands_work_without_torch(bare: Path, gir: Path, command: str) -> None:
    result = run(bare / "gradir", command, gir)
    assert (result.returncode, result.stderr) == (0, "")


def test_diff_works_without_torch(bare: Path, gir: Path, tmp_path: Path) -> None:
    assert run(bare / "gradir", "diff", gir, gir).returncode == 0
    changed = tmp_path / "changed.gir"
    changed.write_bytes(gir.read_bytes().replace(b'"alpha":1', b'"alpha":2'))
    result = run(bare / "gradir", "diff", gir, changed)
    assert (result.returncode, result.stderr) == (1, "")
    assert "alpha" in result.stdout


def test_capture_without_torch_says_how_to_get_it(bare: Path, tmp_path: Path) -> None:
    spec = tmp_path / "spec.py"
    spec.write_text("loss = None\n")
    result = run(bare / "gradir", "capture", f"{spec}:loss", "-o", tmp_path / "model.gir")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.count("\n") == 1
    assert "gradir[torch]" in result.stderr
    assert not (tmp_path / "model.gir").exists()


def test_no_command_but_capture_imports_a_framework(bare: Path, gir: Path) -> None:
    # In the environment of the tests, where torch is there to be imported.
    code = (
        "import sys\n"
        "from gradir.cli import main\n"
        f"for command in ['export', '--to', 'plain'], ['validate'], ['info'], ['summary'], ['diff', {str(gir)!r}]:\n"
        f"    assert main([*command, {str(gir)!r}]) == 0\n"
        f"sys.exit(str([name for name in {FRAMEWORKS} if name in sys.modules]))"
    )
    assert run(Path(sys.executable), "-c", code).stderr == "[]\n"
