"""``.pt2`` files: what torch.export.save wrote, and what a stranger may have written."""

from __future__ import annotations

import copy
import io
import json
import pickle
import random
import tracemalloc
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch", minversion="2.8")

from exported_models import export_model  # noqa: E402

import gradir  # noqa: E402
from gradir import capturing  # noqa: E402
from gradir.cli import main  # noqa: E402
from gradir.errors import FrontendError, GradirError  # noqa: E402
from gradir.frontends.export import archive  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")
PROGRAMS = ("mlp", "tied", "written", "gpt", "cond", "scan", "number")
STATED = "models/model.json"


def read(data: bytes, name: str) -> gradir.Graph:
    return capturing.read(io.BytesIO(data), name)


@cache
def saved(name: str) -> tuple[bytes, gradir.Graph]:
    program, file = export_model(name), io.BytesIO()
    torch.export.save(program, file)
    return file.getvalue(), gradir.capture(program)


@cache
def stated(name: str) -> str:
    with zipfile.ZipFile(io.BytesIO(saved(name)[0])) as archive:
        return archive.read(next(each for each in archive.namelist() if each.endswith(STATED))).decode()


def archive_of(text: str | bytes, *, name: str = f"net/{STATED}", **others: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, text)
        for other, content in others.items():
            archive.writestr(other, content)
    return file.getvalue()


def stating(place: int, number: int, text: str) -> bytes:
    """An archive whose directory states, at a place of its one entry, another number than holds."""
    data = archive_of(text)
    at = data.rfind(b"PK\x01\x02") + place
    return data[:at] + number.to_bytes(2, "little") + data[at + 2 :]


def of_json(document: Any) -> gradir.Graph:
    return read(archive_of(json.dumps(document)), "net.pt2")


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_file_gives_the_bytes_that_the_program_gives(name):
    data, graph = saved(name)
    if torch.__version__ < torch.torch_version.TorchVersion("2.9") and name in {"tied", "gpt"}:
        # torch 2.8 states in a pickle only which parameters are one, so that a file has one name of each.
        assert len(read(data, "net.pt2").nodes) == len(graph.nodes)
        return
    assert gradir.dumps(read(data, "net.pt2")) == gradir.dumps(graph)


def test_the_commands_take_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.chdir(tmp_path)
    Path("net.pt2").write_bytes(saved("mlp")[0])
    assert main(["capture", "net.pt2", "-o", "net.gir"]) == 0
    assert gradir.load("net.gir") == gradir.load("net.pt2")
    assert main(["check", "net.pt2", "--against", "net.gir"]) == 0
    assert main(["diff", "net.gir", "net.pt2"]) == 0
    assert main(["view", "net.pt2", "-o", "net.html"]) == 0
    assert main(["export", "net.pt2", "--to", "mermaid"]) == 0
    assert main(["summary", "net.pt2"]) == 0
    assert main(["info", "net.pt2"]) == 0
    assert "layers.0" in capsys.readouterr().out
    Path("other.pt2").write_bytes(saved("tied")[0])
    assert main(["check", "other.pt2", "--against", "net.gir"]) == 1


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"PK\x03\x04 and nothing more", "broken archive"),
        (b"no archive", "broken archive"),
        (archive_of("{}", name="net/data/aotinductor/model/x.so"), "AOTInductor package"),
        (archive_of("{}", name="net/data.pkl"), "no torch.export program"),
        (archive_of("{"), "models/model.json: Input data was truncated"),
        (archive_of("[" * 2000), "nested deeper than 1,000 levels"),
        (archive_of(b"\xff"), "models/model.json: "),
        (archive_of("{}"), "Object missing required field `graph_module`"),
        (archive_of(" " * 3_000_000), "too large to be read"),
        (archive_of("{}")[:-30], "broken archive"),
        (stating(10, zipfile.ZIP_LZMA, "{}"), "unknown compression method 14"),
        (stating(22, 999, " " * 3_000_000), "too large to be read"),
        (
            archive_of("{}", name="net/models/mod\xe9l.json").replace(b"\xc3\xa9", b"\xff\xfe"),
            "broken archive: 'utf-8'",
        ),
        (archive_of("{}", name="net/\x1b[31m\nmodels/x.json"), "net/\\x1b[31m\\nmodels/x.json: Object missing"),
    ],
    # The bytes have the time in them, and workers must collect the same names.
    ids=lambda each: each if isinstance(each, str) else "archive",
)
def test_an_unreadable_archive_is_one_line_and_status_2(data, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("net.pt2").write_bytes(data)
    assert main(["summary", "net.pt2"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("gradir: net.pt2: ")
    assert error.count("\n") == 1
    assert said in error


def filled_with(form: str, size: int, noise: bytes = b"") -> str:
    """A program with a list of so many bytes of JSON, each entry of this form."""
    entries = f"{form}," * (size // (len(form) + 1))
    return stated("mlp").replace('"inputs": [', f'"inputs": [{entries}{{"{noise.hex()}": 0}},', 1)


def stored(text: str) -> bytes:
    """An archive as torch writes it, without compression."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(f"net/{STATED}", text)
    return file.getvalue()


def test_a_small_archive_that_states_much_json_is_refused(monkeypatch):
    text = filled_with('{"":0}', 2**21, random.Random(0).randbytes(2**14))
    data = archive_of(text)
    assert len(text) < 200 * len(data)
    assert read(data, "net.pt2").nodes
    monkeypatch.setattr(archive, "_MOST_MEMORY", archive.most_memory(text.encode()) - 1)
    with pytest.raises(GradirError, match="too large to be read"):
        read(data, "net.pt2")


@pytest.mark.parametrize("form", ['{"":0}', '{"a":[[],[]]}', '{"a":{"b":[1]}}'])
def test_stored_json_that_would_fill_the_memory_is_refused_before_it_is_decoded(form, monkeypatch):
    data = stored(filled_with(form, 2**25))
    monkeypatch.setattr(archive, "_decode", lambda *_: pytest.fail("it was decoded"))
    with pytest.raises(GradirError, match=r"33,5\d\d,\d\d\d bytes, which is too large to be read"):
        read(data, "net.pt2")


@pytest.mark.parametrize(
    "form",
    ['{"":0}', '{"a":[[],[],[],[]]}', '{"a":{"b":[1]}}', '{"":[[1]]}', '{"":"\u00e9"}', '{"a":[0.5,1e9,999]}'],
)
def test_reading_json_takes_memory_in_proportion_to_its_punctuation(form):
    text = filled_with(form, 2**17)
    data = archive_of(text, name=f"net/{STATED}", noise=random.Random(0).randbytes(2**12))
    tracemalloc.start()
    read(data, "net.pt2")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < archive.most_memory(text.encode())


def test_the_configurations_of_weights_count_with_the_program(monkeypatch):
    text = json.dumps({"config": {}})
    names = [f"net/data/{kind}/model_{kind}_config.json" for kind in ("weights", "constants")]
    file = archive_of(stated("mlp"), **dict.fromkeys(names, text.encode()))
    monkeypatch.setattr(archive, "_LARGEST", len(stated("mlp")) + 2 * len(text))
    assert read(file, "net.pt2").nodes
    monkeypatch.setattr(archive, "_LARGEST", len(stated("mlp")) + 2 * len(text) - 1)
    with pytest.raises(GradirError, match="too large to be read"):
        read(file, "net.pt2")


def test_a_large_program_that_is_stored_as_torch_does_is_read():
    text = stated("mlp").replace("{", "{" + " " * 2**25, 1)
    assert read(stored(text), "net.pt2").nodes.keys() == saved("mlp")[1].nodes.keys()


def test_no_pickle_of_an_archive_is_loaded(monkeypatch):
    class Trap:
        def __reduce__(self):
            return pytest.fail, ("a pickle was loaded",)

    trap = pickle.dumps(Trap())
    data = archive_of(stated("mlp"), **{"net/data/sample_inputs/model.pt": trap, "net/data/weights/weight_0": trap})
    monkeypatch.setattr(pickle, "Unpickler", None)
    assert read(data, "net.pt2").nodes.keys() == saved("mlp")[1].nodes.keys()


def test_no_weight_of_an_archive_is_read(tmp_path):
    path = tmp_path / "net.pt2"
    path.write_bytes(archive_of(stated("mlp")))
    with zipfile.ZipFile(path, "a") as file:
        file.writestr("net/data/weights/weight_0", bytes(2**24))
    tracemalloc.start()
    assert gradir.load(path).nodes.keys() == saved("mlp")[1].nodes.keys()
    assert tracemalloc.get_traced_memory()[1] < 2**23
    tracemalloc.stop()


def test_no_expression_of_an_archive_is_evaluated():
    text = stated("mlp").replace("Symbol('", "__import__('os').system('echo ")
    assert any("__import__" in str(node.shape) for node in read(archive_of(text), "net.pt2").nodes.values())


def test_no_file_is_looked_at_because_a_trace_names_it(monkeypatch):
    text = stated("mlp").replace(str(Path(__file__).parent), "/net/elsewhere/of/theirs")
    monkeypatch.setattr("os.lstat", lambda path, **_: pytest.fail(f"{path} was looked at"))
    sources = {node.source.file for node in read(archive_of(text), "net.pt2").nodes.values() if node.source}
    assert sources == {"exported_models.py"}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda each: each["schema_version"].update(major=99), "schema 99"),
        (lambda each: each["graph_module"]["graph"]["nodes"].pop(0), "which nothing before it makes"),
        (
            lambda each: each["graph_module"]["signature"]["input_specs"][0]["parameter"].pop("parameter_name"),
            "not a name",
        ),
        (
            lambda each: each["graph_module"]["signature"]["input_specs"][0]["parameter"].update(
                parameter_name="a." * 99
            ),
            "not a name of a module or tensor",
        ),
        (
            lambda each: each["graph_module"]["signature"]["input_specs"].__setitem__(-1, {"user_input": {"arg": 5}}),
            "which nothing before it makes",
        ),
        (lambda each: each["graph_module"]["graph"]["nodes"][0].update(target=5), "Expected `str`"),
        (lambda each: each["graph_module"]["graph"]["nodes"][0]["inputs"][0].update(arg={}), "one key"),
    ],
)
def test_a_program_that_does_not_fit_together_is_refused(change, said):
    document = json.loads(stated("mlp"))
    change(document)
    with pytest.raises(GradirError, match=said):
        of_json(document)


def _with_size(text: str) -> Any:
    size = {"as_expr": {"expr_str": text}}
    return lambda module: [each.update(sizes=[size]) for each in module["graph"]["tensor_values"].values()]


@pytest.mark.parametrize(
    "change",
    [
        _with_size("Symbol()"),
        _with_size("Symbol({[]: 1})"),
        _with_size("Mul('\\d', 2)"),
        lambda module: module["graph"]["nodes"][0]["metadata"].update(nn_module_stack=f"k@{'9' * 5000},a,b"),
        lambda module: module["graph"]["nodes"][0]["inputs"].append({"name": "p", "arg": {"as_float": 10**400}}),
        lambda module: module["graph"]["nodes"][0]["inputs"].append({"name": "p", "arg": {"as_tensors": "DEEP"}}),
        lambda module: module["signature"]["output_specs"].insert(0, {"buffer_mutation": {"buffer_name": [1]}}),
    ],
)
@pytest.mark.filterwarnings("error")
def test_odd_values_of_a_program_are_left_out_or_text(change):
    document = json.loads(stated("mlp"))
    change(document["graph_module"])
    text = json.dumps(document).replace('"DEEP"', "[" * 700 + "]" * 700)
    assert len(read(archive_of(text), "net.pt2").nodes) == len(saved("mlp")[1].nodes)


def test_an_operation_whose_bodies_return_nothing_takes_its_operands():
    document = json.loads(stated("cond"))
    for owner, key in places(document):
        if key == "as_graph":
            owner[key]["graph"]["outputs"] = []
    assert next(node for node in of_json(document).nodes.values() if node.op == "cond").inputs


def places(document: Any) -> list[tuple[Any, Any]]:
    """Every object and list of a document, with each of its keys."""
    found, waiting = [], [document]
    while waiting:
        value = waiting.pop()
        keys = value.keys() if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
        found += [(value, key) for key in keys]
        waiting += [value[key] for key in keys]
    return found


VALUES = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=9)
)
JSON = st.recursive(
    VALUES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner), max_leaves=4
)


@given(
    st.sampled_from(("tied", "cond", "number")),
    st.lists(st.tuples(st.integers(0, 10**6), JSON), min_size=1, max_size=3),
)
def test_a_mutant_of_a_program_is_a_graph_that_can_be_saved_or_an_error(name, edits):
    document = copy.deepcopy(json.loads(stated(name)))
    for place, value in edits:
        owner, key = (found := places(document))[place % len(found)]
        owner[key] = value
    error = None
    try:
        graph = of_json(document)
    except GradirError as raised:
        error = raised
    if error is None:
        assert gradir.loads(gradir.dumps(graph)) == graph
    else:
        assert str(error).isprintable(), error
        assert not isinstance(error, FrontendError), error


class _Shared(torch.nn.Module):
    """Parameters and buffers that are parts of one storage, or have none."""

    def __init__(self) -> None:
        super().__init__()
        whole = torch.randn(8)
        self.register_buffer("first", whole[:4])
        self.register_buffer("last", whole[4:])
        self.register_buffer("nothing", torch.zeros(0))
        self.register_buffer("none", torch.zeros(0))

    def forward(self, x):
        return x * self.first + self.last, torch.cat([x, self.nothing, self.none])


def test_parts_of_one_storage_are_not_one_tensor():
    program, file = torch.export.export(_Shared(), (torch.ones(4),)), io.BytesIO()
    torch.export.save(program, file)
    graph = read(file.getvalue(), "net.pt2")
    assert {"first", "last", "nothing", "none"} <= graph.nodes.keys()
    assert graph.nodes == gradir.capture(program).nodes
