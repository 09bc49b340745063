"""Functions of JAX by subject, whose graphs are stored in tests/goldens/jax, and those that cannot be captured."""

from __future__ import annotations

from jax_cases import errors, paths, regions
from jax_cases.model import Case

__all__ = ["CASES", "ERRORS", "Case"]

CASES: dict[str, Case] = {
    f"{subject}.{name}": case
    for module in (paths, regions)
    for subject in module.__all__
    for name, case in getattr(module, subject).items()
}

ERRORS: dict[str, Case] = dict(errors.CASES)
