"""What gradir raises and warns of."""

from __future__ import annotations

import errno
import pickle
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
from samples import everything

import gradir
from gradir.errors import GradirWarning, warn


def test_a_warning_names_the_line_that_called_gradir() -> None:
    document = gradir.dumps(everything()).replace(b'"version":"1.0"', b'"version":"1.9"')
    assert b'"1.9"' in document
    with pytest.warns(GradirWarning, match=r"GIR version 1\.9 is newer") as caught:
        gradir.loads(document)
    assert [warning.filename for warning in caught] == [__file__]


def test_a_warning_passes_over_the_frames_of_gradirs_own_modules() -> None:
    scope = {"__name__": "gradir.cli", "warn": warn}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        exec(compile("warn('careful')", "inside.py", "exec"), scope)
    assert [(str(warning.message), warning.filename) for warning in caught] == [("careful", __file__)]


def test_a_file_error_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="cannot be read") as caught:
        gradir.load(tmp_path / "none.gir")
    assert isinstance(caught.value, gradir.FileError)
    assert (caught.value.errno, caught.value.filename) == (errno.ENOENT, str(tmp_path / "none.gir"))
    assert str(caught.value) == f"{tmp_path / 'none.gir'}: cannot be read: No such file or directory"


def test_a_folder_that_is_not_there_is_a_file_error(tmp_path: Path) -> None:
    with pytest.raises(gradir.FileError, match="cannot be written") as caught:
        gradir.save(everything(), tmp_path / "none" / "a.gir")
    assert caught.value.errno == errno.ENOENT


def test_a_diff_of_other_graphs_is_a_patch_error() -> None:
    one, two = (gradir.Graph.of([gradir.Node(name)]) for name in "ab")
    with pytest.raises(gradir.PatchError, match="not made for this graph"):
        gradir.patch(two, gradir.diff(one, two))


@pytest.mark.parametrize(
    "error",
    [
        gradir.FileError("a.gir", "read", "Permission denied", errno.EACCES),
        gradir.FormatError("it was truncated", file="a.gir", place="byte 7", advice="fetch it again"),
        gradir.NewerFormatError("too new", file="a.gir"),
        gradir.GraphError("no"),
    ],
)
def test_an_error_survives_a_copy_between_processes(error: gradir.GradirError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))
    assert getattr(again, "errno", None) == getattr(error, "errno", None)


@pytest.mark.parametrize(
    "call",
    [
        lambda: gradir.diff("a.gir", everything()),
        lambda: gradir.diff(everything(), Path("a.gir")),
        lambda: gradir.export("a.gir", "plain"),
        lambda: gradir.render("a.gir"),
        lambda: gradir.patch("a.gir", gradir.diff(everything(), everything())),
        lambda: gradir.unpatch("a.gir", gradir.diff(everything(), everything())),
    ],
)
def test_a_name_in_place_of_a_graph_is_named_as_such(call: Callable[[], object]) -> None:
    with pytest.raises(TypeError, match=r"expected a gradir\.Graph, got \w+; gradir\.load reads a file"):
        call()


def test_a_document_that_is_no_diff_is_named_as_such() -> None:
    for apply in (gradir.patch, gradir.unpatch):
        with pytest.raises(TypeError, match=r"expected a gradir\.Diff, got NoneType"):
            apply(everything(), None)
