"""The reasons for recompilations in the graph of compiled code."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", minversion="2.10")

from gradir.frontends.export.joint import _find_recompile  # noqa: E402
from gradir.frontends.export.regions import Region  # noqa: E402


@pytest.mark.parametrize("reason", [None, "0/0", "0/0:  at 0x7f00"])
def test_a_recompilation_without_a_readable_reason_has_a_text(
    reason: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    metrics = [SimpleNamespace(compile_id="0/1", recompile_reason=reason)]
    monkeypatch.setattr("torch._dynamo.utils.get_compilation_metrics", lambda: metrics)
    region = Region("")
    region.compiled_as = "0/1"
    cut = _find_recompile(region)
    assert cut is not None
    assert (cut.kind, cut.op) == ("recompile", "recompile")
