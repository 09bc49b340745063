"""Functions of JAX beside all that is to be known of their graphs, by subject."""

from __future__ import annotations

from jax_cases import branches, checkpoints, cuts, errors, flow, loops, nested, operations, pytrees, rules
from jax_cases.model import Case

__all__ = ["CASES", "ERRORS", "Case"]

_SUBJECTS = (flow, cuts, rules, checkpoints, loops, branches, nested, pytrees, operations)

CASES: dict[str, Case] = {
    f"{subject.__name__.rpartition('.')[2]}.{name}": case
    for subject in _SUBJECTS
    for name, case in subject.CASES.items()
}

ERRORS: dict[str, Case] = dict(errors.CASES)
