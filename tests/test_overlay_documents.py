"""Documents of overlays and their schema."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from strategies import many

from gradir.cli.main import main
from gradir.errors import FormatError, GradirWarning
from gradir.ir import Builder, Graph, Scope, TensorMeta
from gradir.overlays import decode

SCHEMA = json.loads((Path(__file__).parents[1] / "schemas" / "gir-overlay-1.0.schema.json").read_text(encoding="utf-8"))
META = [TensorMeta("float32", (3,))]
HEAD = b'{"format":"gir-overlay","version":"1.0"'


def network(layers: int = 2) -> Graph:
    b = Builder()
    value = b.tensor("x", META[0])
    for number in range(layers):
        weight = b.tensor(f"h.{number}.w", META[0], role="parameter", scope=f"h.{number}")
        value = b.function("mul", [value, weight], META, native="MulBackward0", scope=f"h.{number}")
    b.output(value)
    return b.build(scopes=[Scope("h", "Stack"), *(Scope(f"h.{number}", "Layer") for number in range(layers))])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "broken JSON"),
        (b"\xff", "broken JSON"),
        (b"[]", "not an overlay"),
        (b'{"format":"gir"}', "gradir explain --overlay writes one"),
        (b'{"format":"gir-overlay"}', "version None; this gradir reads 1.0"),
        (b'{"format":"gir-overlay","version":"2.0"}', "version '2.0'; this gradir reads 1.0"),
        (HEAD + b"}", "missing required field `channels`"),
        (HEAD + b',"channels":[]}', "length >= 1"),
        (HEAD + b',"channels":[{"name":"a"}]}', "missing required field `values`"),
        (HEAD + b',"channels":[{"name":"","values":{}}]}', "length >= 1"),
        (HEAD + b',"channels":[{"name":"a","values":{"x":null}}]}', "Expected `float | str`, got `null`"),
        (HEAD + b',"channels":[{"name":"a","values":{"x":[1]}}]}', "got `array`"),
        (HEAD + b',"channels":[{"name":"a","values":{"x":1e999}}]}', "broken JSON"),
        (HEAD + b',"channels":[{"name":"a","values":{"x":"' + b"a" * 81 + b'"}}]}', "length <= 80"),
        (HEAD + b',"channels":[{"name":"a","values":{},"looks":{"x":"pink"}}]}', "Invalid enum value 'pink'"),
        (HEAD + b',"channels":[{"name":"a","values":{"x":0},"scale":"log"}]}', "takes numbers above 0"),
        (HEAD + b',"channels":[{"name":"a","values":{}},{"name":"a","values":{}}]}', "the same name"),
        (HEAD + b',"channels":[{"name":"a","values":{}}],"verdict":1}', "Expected `str`, got `int` - at `$.verdict`"),
        (HEAD + b',"channels":[{"name":"a","values":{}}],"verdict":null}', "Expected `str`, got `null`"),
        (HEAD + b',"channels":[{"name":"a","values":{}}],"verdict":"' + b"a" * 100_000 + b'"}', "length <= 2000"),
        (HEAD + b',"channels":[{"name":"a","values":{}}],"look":"step 1"}', "Invalid enum value 'step 1'"),
        (b'{"a":' * 10_000, "nested"),
        (HEAD + b',"channels":' + b"[" * 100_000, "nested"),
    ],
)
def test_a_broken_overlay_is_one_clear_error(
    data: bytes, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(FormatError) as caught:
        decode(data)
    assert message in str(caught.value)
    path, graph = tmp_path / "o.json", tmp_path / "a.gir"
    path.write_bytes(data)
    network().save(graph)
    assert main(["export", str(graph), "--to", "tree", "--overlay", str(path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"gradir: {path}: ")
    assert len(line) < 600


def test_keys_of_a_newer_version_are_ignored_with_a_warning() -> None:
    with pytest.warns(GradirWarning, match="newer than 1.0"):
        decode(b'{"format":"gir-overlay","version":"1.7","channels":[{"name":"a","values":{},"later":1}]}')
    with pytest.warns(GradirWarning, match="does not know"):
        decode(HEAD + b',"more":1,"channels":[{"name":"a","values":{}}]}')


def test_the_published_schema_matches_the_records() -> None:
    from report_schemas import schemas

    assert json.loads(schemas()["gir-overlay-1.0.schema.json"]) == SCHEMA


_LONG = st.integers(78, 82).map("n".__mul__)
_TEXTS = st.one_of(st.sampled_from(["", "a", "zero"]), _LONG)
_NUMBERS = st.sampled_from([-1, 0, 0.0, 1, 1e-300, 1e300, 2**64])
_OTHERS = st.sampled_from([None, True, [], {}])
_CHANNELS = st.fixed_dictionaries(
    {
        "name": st.one_of(st.sampled_from("abc"), _TEXTS),
        "values": st.dictionaries(_TEXTS, st.one_of(_NUMBERS, _NUMBERS, _TEXTS, _OTHERS), max_size=2),
    },
    optional={
        "unit": st.one_of(_TEXTS, _TEXTS, _OTHERS),
        "scale": st.sampled_from(["log", "log", "log", "linear", "linear", "", None]),
        "looks": st.dictionaries(_TEXTS, st.sampled_from(["alarm", "good", "quiet", "red", 1]), max_size=2),
        "later": _OTHERS,
    },
)
_VERDICTS = st.one_of(_TEXTS, _TEXTS, st.integers(1999, 2001).map("n".__mul__), _OTHERS)
_VERSIONS = st.one_of(st.just("1.0"), st.sampled_from(["1.7", "1.123456", "1.1234567", "1.01", "2.0", "1", 1]))


@pytest.mark.filterwarnings("ignore::gradir.GradirWarning")
@many
@given(
    _VERSIONS,
    st.one_of(st.lists(_CHANNELS, max_size=2), st.lists(_CHANNELS, min_size=1, max_size=1), _OTHERS),
    st.fixed_dictionaries({}, optional={"verdict": _VERDICTS, "look": st.sampled_from(["alarm", "step 1", "", None])}),
)
def test_the_schema_and_the_reader_accept_the_same(version: object, channels: object, more: dict[str, object]) -> None:
    names = [channel.get("name") for channel in channels] if isinstance(channels, list) else []
    # That names differ is more than a schema can say.
    assume(len(names) < 2 or names[0] != names[1])
    document = {"format": "gir-overlay", "version": version, "channels": channels, **more}
    schema = jsonschema.Draft202012Validator(SCHEMA)
    try:
        decode(json.dumps(document).encode())
    except FormatError:
        assert not schema.is_valid(document)
    else:
        schema.validate(document)
