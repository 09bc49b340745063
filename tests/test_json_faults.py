"""What is wrong with a JSON document is said with its place, and without repeating the document."""

from __future__ import annotations

import gzip
from collections.abc import Callable

import pytest
from samples import everything
from steps import measure_memory

import gradir
from gradir import codecs
from gradir.codecs.strict import check_keys
from gradir.errors import FormatError

HEAD = b'{"format":"gir","version":"1.0","nodes":['


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (HEAD + b'{"id":"a","op":"\\ud800"}]}', "byte 57: broken JSON: invalid utf-16 surrogate pair"),
        (HEAD + b'{"id":"a","op":"\\\\ud800"}', "byte 66: broken JSON: it was truncated"),
        (HEAD + b'{"id":"a","op":"\\ud800\\ud', "byte 66: broken JSON: it was truncated"),
        (HEAD + b'{"id":"a","op":"b\xff"}]}', "byte 58: broken JSON: not UTF-8, invalid start byte 0xff"),
    ],
)
def test_an_error_in_json_is_the_real_one_and_has_its_place(data: bytes, message: str) -> None:
    for function in (codecs.decode, codecs.survey):
        with pytest.raises(FormatError) as caught:
            function(data)
        assert str(caught.value) == f"{message}; {caught.value.advice}"


def test_a_watched_training_is_named() -> None:
    with pytest.raises(FormatError, match=r"^a watched training, not a graph; "):
        codecs.decode(b'{"type":"head","format":"gir-watch","version":"1.0"}\n{"type":"modules","paths":[]}\n')


SIDES = b"<<<<<<< HEAD\n%b\n=======\n%b\n>>>>>>> other\n" % (b'{"id":"a"},', b'{"id":"b"},')


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (HEAD + b"\n" + SIDES + b'{"id":"c"}]}\n', 2),
        ((HEAD + b"\n" + SIDES + b'{"id":"c"}]}\n').replace(b"\n", b"\r\n"), 2),
        (b"\xef\xbb\xbf" + HEAD + b'\n{"id":"c"},\n' + SIDES, 3),
        (HEAD + b"\n" + b'{"id":"c"},\n' * 2000 + SIDES, 2002),
        (SIDES, 1),
        (HEAD + b"\n<<<<<<<\n", 2),
    ],
)
def test_a_merge_conflict_is_named(data: bytes, line: int) -> None:
    for content, after in ((data, ""), (gzip.compress(data), " after decompression")):
        for function in (codecs.decode, codecs.survey):
            message = message_of(function, content)
            assert message == (
                f"line {line:,}{after}: a merge conflict; "
                "choose a side (git checkout --ours FILE, or --theirs), or capture the graph again"
            )


def test_a_conflict_mark_inside_text_is_no_conflict() -> None:
    assert "conflict" not in message_of(codecs.decode, HEAD + b'{"id":"<<<<<<< HEAD"},]}')
    graph = codecs.decode(HEAD + b'\n{"id":"<<<<<<< HEAD","name":"\\n<<<<<<< a"}]}')
    assert list(graph.nodes) == ["<<<<<<< HEAD"]


LONG = b"q" * 5000


@pytest.mark.parametrize(
    "data",
    [
        b'{"format":"gir","version":"%b","nodes":[]}' % LONG,
        b'{"format":"gir","version":["%b"],"nodes":[]}' % LONG,
        b'{"format":"gir","version":"1.0","nodes":[],"requires":["%b"]}' % LONG,
        b'{"format":"gir","version":"1.0","nodes":[],"requires":[%b]}' % b",".join([b'"a"'] * 5000),
        HEAD + b'{"id":"%b"},{"id":"%b"}]}' % (LONG, LONG),
        HEAD + b'{"id":"a","in":[["%b",0]]}]}' % LONG,
        HEAD + b'],"x":{"%b":{"%b":1,"%b":2}}}' % (LONG, LONG, LONG),
    ],
)
def test_errors_do_not_repeat_a_whole_file(data: bytes) -> None:
    message = message_of(codecs.decode, data) or message_of(check_keys, data)
    assert 0 < len(message) < 450
    assert "…" in message


def message_of(function: Callable[[bytes], object], data: bytes) -> str:
    try:
        function(data)
    except FormatError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            HEAD + b'{"id":"a"},{"id":"b","op":"x","op":"y"}]}',
            "$.nodes[1]: the key 'op' occurs twice in one object",
        ),
        (
            HEAD + b'],"x":[{},{"a b":{"c":[]},"d":{"e":0,"e":1}}]}',
            "$.x[1].d: the key 'e' occurs twice in one object",
        ),
        (HEAD + b'],"x":{"a b":{"c":1,"c":1}}}', "$.x['a b']: the key 'c' occurs twice in one object"),
        (HEAD + b'],"x":1,"x":2}', "$: the key 'x' occurs twice in one object"),
    ],
)
def test_a_strict_error_names_its_place(data: bytes, message: str) -> None:
    codecs.decode(data)
    with pytest.raises(FormatError) as caught:
        check_keys(data)
    assert str(caught.value) == f"{message}; {caught.value.advice}"


FAR = "é中\U0001f600".encode() * 20_000


@pytest.mark.parametrize("shift", range(4))
@pytest.mark.parametrize(
    "part", [b'"x":"%b"', b'"%b":1', b'"x":{"%b":1}', b'"x":[["%b"]]', b'"far":"' + FAR + b'","%b":1']
)
def test_invalid_utf8_in_an_unknown_key_is_refused(part: bytes, shift: int) -> None:
    document = HEAD + b'{"id":"a",' + b" " * shift + part + b"}]}"
    assert len(gradir.loads(document % "é".encode()).nodes) == 1
    place = f"byte {document.index(b'%b'):,}"
    for function in (codecs.decode, codecs.survey):
        for damage in (b"\xff", b"\xef", b"\xc3", b"\xed\xa0\x80"):
            with pytest.raises(FormatError, match="broken JSON: not UTF-8") as caught:
                function(document % damage)
            assert caught.value.place == place


def test_a_long_number_that_is_ignored_harms_nobody() -> None:
    data = HEAD + b'],"later":%b,"and":%b.0}' % (b"1" * 100_000, b"1" * 100_000)
    codecs.decode(data)
    check_keys(data)


@pytest.mark.parametrize(
    "part", ['"out":[{"shape":[1.0]}]', '"saved":[{"slot":"","bytes":3.0}]', f'"attrs":{{"a":{2**63}}}']
)
def test_integers_are_spelled_as_such_and_have_64_bits(part: str) -> None:
    """A JSON Schema allows these; docs/format.md says that gradir does not."""
    with pytest.raises(FormatError, match=r"^\$\.nodes\[0\]"):
        codecs.decode(HEAD + f'{{"id":"a",{part}}}]}}'.encode())


def test_any_amount_of_white_space_may_be_before_json() -> None:
    space = b" \t\r\n" * 100_000
    for start in (space, b"\xef\xbb\xbf" + space):
        assert gradir.loads(start + gradir.dumps(everything())) == everything()
    for end in (b"", b"x", b"\x87\xa6format"):
        with pytest.raises(FormatError, match="not a GIR document"):
            gradir.loads(space + end)
    assert measure_memory(lambda: codecs.encoding_of(space + b"{"))[1] < 2 * len(space)
