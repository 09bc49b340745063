"""What gradir raises and warns of."""

from __future__ import annotations

import warnings

import pytest
from samples import everything

import gradir
from gradir.errors import GradirWarning, warn


def test_a_warning_names_the_line_that_called_gradir() -> None:
    document = gradir.dumps(everything()).replace(b'"version":"1.1"', b'"version":"1.9"')
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
