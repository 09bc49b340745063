"""What is nested beyond measure is refused before a parser that calls itself sees it, whatever the recursion limit."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import everything
from strategies import many

import gradir
from gradir import codecs
from gradir.codecs.strict import check_keys
from gradir.diffs.diff_json import decode as decode_diff
from gradir.errors import FormatError
from gradir.ir.jsontext import DEEPEST, is_too_deep

HEAD = b'{"format":"gir","version":"1.0",'
NODES = HEAD + b'"nodes":[\n{"id":"a"},\n'
LATER = b"\x8a\xa6format\xa3gir\xa7version\xa31.0\xa8requires\x90"
OPENINGS = {
    "lists": (b"", b"["),
    "objects": (b"", b'{"a":'),
    "an unknown key": (HEAD + b'"later":', b"["),
    "an unknown key between lists": (HEAD + b'"later":', b'[[],"]]",'),
    "an unknown key of a node": (NODES + b'{"id":"b","later":', b"["),
    "an attribute": (NODES + b'{"id":"b","attrs":{"c":', b"["),
    "the head": (b'{"format":', b'[{"a":'),
    "msgpack": (b"", b"\x81\xa1a"),
    "an unknown key in msgpack": (LATER + b"\xa5later", b"\x91"),
    "the producer in msgpack": (LATER + b"\xa8producer", b"\x81\xa1a"),
}

RAISED = """
import sys
sys.setrecursionlimit(10**6)
from gradir import codecs
from gradir.codecs.strict import check_canonical, check_keys
from gradir.codecs.codec import check_known
from gradir.diffs.diff_json import decode as decode_diff
from gradir.errors import FormatError
data = sys.stdin.buffer.read()
for function in (codecs.decode, codecs.survey, check_canonical, check_keys, decode_diff):
    try:
        function(data)
    except FormatError as error:
        print(function.__module__, error)
"""


@pytest.mark.parametrize("name", OPENINGS)
def test_a_nested_file_is_refused_where_the_recursion_limit_was_raised(name: str) -> None:
    start, opening = OPENINGS[name]
    data = start + opening * 200_000 + b"\n]}\n"
    done = subprocess.run([sys.executable, "-c", RAISED], input=data, capture_output=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr[-300:]
    lines = done.stdout.decode().splitlines()
    assert len(lines) == 5
    assert any("nested" in line for line in lines)


def later(levels: int) -> bytes:
    return HEAD + b'"nodes":[],"later":' + b"[" * levels + b"]" * levels + b"}"


@pytest.mark.parametrize("read", [codecs.decode, codecs.survey, check_keys, decode_diff])
def test_the_deepest_document_is_one_level_below_the_first_that_is_refused(read: Callable[[bytes], object]) -> None:
    with pytest.raises(FormatError, match=re.escape("nested deeper than 1,000 levels")):
        read(later(DEEPEST))
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(10 * DEEPEST)
    try:
        with pytest.raises(FormatError, match="not a diff") if read is decode_diff else contextlib.nullcontext():
            read(later(DEEPEST - 1))
    finally:
        sys.setrecursionlimit(limit)


def test_brackets_in_texts_are_no_levels() -> None:
    document = json.loads(gradir.dumps(everything()))
    document["nodes"][0]["later"] = ["[" * 2000, '\\"' + "{" * 2000, "\\" * 3 + '"[' * 2000]
    assert gradir.loads(json.dumps(document).encode()) == everything()


def depth_of(text: bytes) -> int:
    """The depth by a walk over the text up to where a reader must stop."""
    depth = deepest = 0
    for token in re.finditer(rb'"(?:[^"\\]|\\.)*"?|[][{}]', text, re.DOTALL):
        depth += (token[0] in b"[{") - (token[0] in b"]}")
        deepest = max(deepest, depth)
        if depth < 0:
            break
    return deepest


@pytest.mark.parametrize("depth", [DEEPEST, DEEPEST + 1])
def test_each_of_several_branches_may_be_as_deep_as_one(depth: int) -> None:
    branch = b"[" * (depth - 500) + b"]" * (depth - 500)
    assert is_too_deep(b"[" * 500 + branch + b"," + branch + b"]" * 500) == (depth > DEEPEST)


@pytest.mark.parametrize(("start", "is_closed"), [(rb'["\\",', True), (rb'["\"', False), (rb'["\\\"', False)])
def test_a_string_ends_at_a_quote_that_no_escape_takes(start: bytes, is_closed: bool) -> None:
    assert is_too_deep(start + b"[" * (DEEPEST + 1)) == is_closed


BLOCKS = [
    (b"[" * 400, b"]" * 400),
    (b'{"":' * 90, b"}" * 90),
    (b'["[["', b"]"),
    (b'["\\""', b"]"),
    (b'["]\\\\\\"["', b"]"),
    (b"[", b"]"),
]


@many
@given(st.lists(st.tuples(st.sampled_from(BLOCKS), st.integers(0, 2))), st.integers(0, 3))
def test_the_depth_is_that_of_a_walk(steps: list[tuple[tuple[bytes, bytes], int]], strays: int) -> None:
    text = [b"["]
    closers = [b"]"]
    for (opening, closer), closed in steps:
        text.append(opening)
        closers.append(closer)
        for _ in range(min(closed, len(closers) - 1)):
            text += [closers.pop(), b","]
    whole = b"".join([*text, *reversed(closers)])
    assert is_too_deep(whole) == (depth_of(whole) > DEEPEST)
    # A text that is broken is refused anyway.
    for broken in (whole[: len(whole) * strays // 3], b"]" * strays + whole):
        assert is_too_deep(broken) or depth_of(broken) <= DEEPEST
