"""The differentiable operators that torch tests itself with, each captured, verified, explained, and written and read.

``make verification`` runs all of them.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, Final, NamedTuple

import torch
from torch.testing._internal.common_methods_invocations import op_db

import gradir

__all__ = ["NAMES", "Tried", "try_operator"]

SAMPLES: Final = 2
"""So many of each dtype."""


class Tried(NamedTuple):
    """What came of the samples of an operator: how many had a graph, and what went wrong, a line each."""

    graphs: int
    faults: tuple[str, ...]


_OPERATORS: Final = {
    f"{each.name}.{each.variant_test_name}".rstrip("."): each for each in op_db if each.supports_autograd
}
NAMES: Final = tuple(sorted(_OPERATORS))


def try_operator(name: str, dtypes: Collection[torch.dtype] = ()) -> Tried:
    """Run the first samples of an operator through gradir, of each of its dtypes or of these if it has any of them."""
    operator = _OPERATORS[name]
    supported = operator.supported_backward_dtypes("cpu")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        chosen = sorted(supported.intersection(dtypes) or supported, key=str)
        came = [(label, *_outcome(run)) for label, run in _samples(operator, chosen)]
    return Tried(
        sum(has_graph for _, has_graph, _ in came),
        tuple(f"{name} {label}: {fault}" for label, _, fault in came if fault),
    )


def _outcome(run: Any) -> tuple[bool, str]:
    """Whether a sample has a graph, and what goes wrong with it."""
    try:
        return _is_sound(run), ""
    except Exception as error:  # noqa: BLE001 (every one is a fault)
        return False, f"{type(error).__name__}: {str(error).splitlines()[:1]}"


def _samples(operator: Any, dtypes: Sequence[torch.dtype]) -> Iterator[tuple[str, Any]]:
    """The samples that torch itself can run, each with what runs it on inputs of its own."""
    for dtype in dtypes:
        torch.manual_seed(0)
        inputs = filter(_asks_for_gradient, operator.sample_inputs("cpu", dtype, requires_grad=True))
        for number, sample in enumerate(islice(inputs, SAMPLES)):

            def run(sample: Any = sample) -> object:
                return operator(sample.input, *sample.args, **sample.kwargs)

            yield f"{dtype} {number}", run


def _asks_for_gradient(sample: Any) -> bool:
    given = torch.utils._pytree.tree_leaves((sample.input, sample.args, sample.kwargs))
    return any(isinstance(each, torch.Tensor) and each.requires_grad for each in given)


def _is_sound(run: Any) -> bool:
    """Whether there is a graph, of which everything holds that gradir says of one."""
    with gradir.record(flow=True) as recorder:
        outputs = run()
    tensors = [each for each in torch.utils._pytree.tree_leaves(outputs) if isinstance(each, torch.Tensor)]
    if not any(each.requires_grad for each in tensors):
        return False
    graph = recorder.capture(outputs)
    for form in ("json", "msgpack"):
        assert gradir.loads(gradir.dumps(graph, format=form)) == graph, f"another graph is read from {form}"
    assert gradir.loads(gradir.dumps(recorder.forward())) == recorder.forward(), "another forward is read"
    assert recorder.explain(outputs).to("text"), "nothing is explained"
    if not _has_backward([each for each in tensors if each.requires_grad]):
        # gradir says so by an error of its own.
        with suppress(gradir.CaptureError):
            gradir.verify(outputs)
        return True
    checked = gradir.verify(outputs, keep_graph=False)
    assert not checked.mismatches, checked.mismatches[0]
    return True


def _has_backward(outputs: Sequence[torch.Tensor]) -> bool:
    """Whether torch itself can run one."""
    seeds = [torch.ones_like(each) if each.layout is torch.strided else each.detach().clone() for each in outputs]
    try:
        torch.autograd.backward(outputs, seeds, retain_graph=True)
    except RuntimeError:
        return False
    return True


def main() -> int:
    """Try all of them, and print what went wrong."""
    found = {}
    for done, name in enumerate(NAMES, 1):
        found[name] = try_operator(name)
        for fault in found[name].faults:
            print(fault, flush=True)
        if done % 50 == 0:
            print(f"{done} of {len(NAMES)}", file=sys.stderr)
    faults = sum(len(each.faults) for each in found.values())
    graphs = sum(each.graphs for each in found.values())
    print(f"torch {torch.__version__}: {len(found)} operators, {graphs} graphs, {faults} faults")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
