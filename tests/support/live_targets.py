"""What the front-end of PyTorch captures of a program's target, with the live objects beside the graph."""

from __future__ import annotations

from typing import Any

from gradir import CaptureRequest, registry


def live(target: object, *inputs: str, **options: Any) -> Any:
    """Run a target, as ``gradir capture`` does what its PROGRAM names."""
    request = CaptureRequest(target=target, inputs=inputs, is_program=True, **options)
    return registry.frontend("torch").capture(request)
