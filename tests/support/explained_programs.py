"""Programs that lose a gradient each in one way, the line marked, and what is told of them.

For test modules that know that torch is there.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from tensors import leaf_of as leaf
from torch import nn
from torch.nn import functional as F  # noqa: N812

import gradir
from gradir.explanations.model import Explanation

__all__ = ["PROGRAMS", "Program", "detach", "inplace", "rebuilt", "told_of", "zero"]


class Asked(NamedTuple):
    """What a program gives to `explain`."""

    subject: object
    params: Mapping[str, torch.Tensor] = {}
    optimizer: Any = None


Program = Callable[[gradir.Recorder], Asked]


def told_of(program: Program, model: object = None, **more: Any) -> Explanation:
    recorder = gradir.record(model, flow=True)
    asked = program(recorder)
    return recorder.explain(asked.subject, params=asked.params, optimizer=asked.optimizer, **more)


def detach(rec: gradir.Recorder) -> Asked:
    a, c = leaf(), leaf()
    with rec:
        d = a.exp()
        loss = (d.detach().relu() + c).sum()  # HERE
    return Asked(loss, {"a": a, "c": c})


def data(rec: gradir.Recorder) -> Asked:
    a, c = leaf(), leaf()
    with rec:
        loss = (a.exp().data * c).sum()  # HERE
    return Asked(loss, {"a": a, "c": c})


def written_through_data(rec: gradir.Recorder) -> Asked:
    a, c = leaf(), leaf()
    with rec:
        hidden = torch.zeros(3)
        hidden.data[:] = a.exp()  # HERE
        loss = (hidden * c).sum()
    return Asked(loss, {"a": a, "c": c})


def written_through_detach(rec: gradir.Recorder) -> Asked:
    a, c = leaf(), leaf()
    with rec:
        hidden = torch.zeros(3)
        hidden.detach().view(3, 1)[:, 0].copy_(a.exp())  # HERE
        loss = (hidden * c).sum()
    return Asked(loss, {"a": a, "c": c})


def indices(rec: gradir.Recorder) -> Asked:
    a, c = leaf(), leaf()
    with rec:
        order = a.sort().indices  # HERE
        loss = (order * c).sum()
    return Asked(loss, {"a": a, "c": c})


def no_grad(rec: gradir.Recorder) -> Asked:
    a, c = leaf(), leaf()
    with rec:
        with torch.no_grad():
            hidden = F.relu(a)  # HERE
        loss = (hidden * c).sum()
    return Asked(loss, {"a": a, "c": c})


def inference_mode(rec: gradir.Recorder) -> Asked:
    a, c = leaf(), leaf()
    with rec:
        with torch.inference_mode():
            hidden = a.exp()  # HERE
        loss = (hidden + c).sum()
    return Asked(loss, {"a": a, "c": c})


def inference_mode_saved(rec: gradir.Recorder) -> Asked:
    a, c = leaf(), leaf()
    try:
        with rec:
            with torch.inference_mode():
                hidden = a.exp()  # HERE
            (hidden * c).sum()
    except RuntimeError as error:
        return Asked(error, {"a": a, "c": c})
    raise AssertionError("torch takes it")


def nondifferentiable(rec: gradir.Recorder) -> Asked:
    a = leaf()
    with rec:
        loss = a.exp().argmax().float()  # HERE
    return Asked(loss, {"a": a})


def sample(rec: gradir.Recorder) -> Asked:
    a, c = leaf(), leaf()
    with rec:
        action = torch.multinomial(a.softmax(0), 1)  # HERE
        loss = (action.float() * c).sum()
    return Asked(loss, {"a": a, "c": c})


def rebuilt(rec: gradir.Recorder) -> Asked:
    a, c = leaf(), leaf()
    with rec:
        joined = torch.tensor([a.sum(), a.exp().sum(), c.sum()])  # HERE
        loss = (joined * c).sum()
    return Asked(loss, {"a": a, "c": c})


def constructed(rec: gradir.Recorder) -> Asked:
    a, c = leaf(), leaf()
    with rec:
        float(c.sum())
        joined = torch.Tensor([a.sum(), a.exp().sum(), c.argmax()])  # HERE
        loss = (joined * c).sum()
    return Asked(loss, {"a": a, "c": c})


def made_like(rec: gradir.Recorder) -> Asked:
    a, c = leaf(), leaf()
    with rec:
        joined = c.new_tensor([a.sum(), a.exp().sum(), 1.0])  # HERE
        loss = (joined * c).sum()
    return Asked(loss, {"a": a, "c": c})


def copied_like(rec: gradir.Recorder) -> Asked:
    a, c = leaf(), leaf()
    with rec, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        hidden = a.exp()
        loss = (c.new_tensor(hidden) * c).sum()  # HERE
    return Asked(loss, {"a": a, "c": c})


def chosen(rec: gradir.Recorder) -> Asked:
    a, c = leaf(), leaf()
    with rec:
        drawn = torch.multinomial(a.softmax(0), 1)  # HERE
        loss = c[drawn[0]]
    return Asked(loss, {"a": a, "c": c})


def chosen_twice(rec: gradir.Recorder) -> Asked:
    a, c = leaf(), leaf()
    with rec:
        table = c.expand(3, 3)
        best = a.exp().argmax()  # HERE
        loss = table[best, : best + 1].sum()
    return Asked(loss, {"a": a, "c": c})


def new_leaf(rec: gradir.Recorder) -> Asked:
    a = leaf()
    with rec:
        weight = (a * 2).unsqueeze(0)
        new = nn.Parameter(weight)  # HERE
        loss = F.linear(torch.ones(1, 3), new).sum()
    return Asked(loss, {"a": a, "c": new})


def no_create_graph(rec: gradir.Recorder) -> Asked:
    a, c = leaf(), leaf()
    with rec:
        (slope,) = torch.autograd.grad((a.exp() * c).sum(), a, retain_graph=True)  # HERE
        loss = (slope.pow(2) + a).sum()
    return Asked(loss, {"a": a, "c": c})


def leaves_torch(rec: gradir.Recorder) -> Asked:
    a, c = leaf(), leaf()
    with rec:
        factor = a.sum().item()  # HERE
        loss = (c * factor).sum()
    return Asked(loss, {"a": a, "c": c})


def exchanged(rec: gradir.Recorder) -> Asked:
    a = leaf()
    with rec:
        loss = a.exp().sum()
        a.data = torch.zeros(3)  # HERE
    return Asked(loss, {"a": a})


def unused(rec: gradir.Recorder) -> Asked:
    a, c = leaf(), leaf()
    with rec:
        c.exp()
        loss = a.sum()
    return Asked(loss, {"a": a, "c": c})


def nonleaf(rec: gradir.Recorder) -> Asked:
    with rec:
        a = torch.ones(3, requires_grad=True) * 0.1  # HERE
        loss = a.sum()
    return Asked(loss, {"a": a})


def zero(rec: gradir.Recorder) -> Asked:
    a, c = leaf(), leaf()
    with rec:
        only = a.sum().unsqueeze(0)
        loss = (F.softmax(only, dim=0) * c).sum()  # HERE
    return Asked(loss, {"a": a, "c": c})


def rounding(rec: gradir.Recorder) -> Asked:
    a = leaf(0.3)
    weights = torch.tensor([0.1, 0.7, 0.4])
    with rec:
        loss = (torch.softmax(weights + a, dim=0) * torch.tensor([0.3, 1.7, 2.3])).sum()
    return Asked(loss, {"a": a})


def nonfinite(rec: gradir.Recorder) -> Asked:
    a, c = leaf(0.0, 4.0), leaf(1.0, 1.0)
    with rec:
        root = torch.sqrt(a)  # HERE
        loss = (root + c).sum()
    return Asked(loss, {"a": a, "c": c})


def where_trap(rec: gradir.Recorder) -> Asked:
    a, c = leaf(0.0, 4.0), leaf(1.0, 1.0)
    with rec:
        root = torch.sqrt(a)  # HERE
        loss = torch.where(a > 0, root, c).sum()
    return Asked(loss, {"a": a, "c": c})


def raised(rec: gradir.Recorder) -> Asked:
    a = leaf()
    try:
        with rec:
            a.reshape(2, 2)  # HERE
    except RuntimeError as error:
        return Asked(error, {"a": a})
    raise AssertionError("torch takes it")


def backward(rec: gradir.Recorder) -> Asked:
    a = leaf()
    with rec:
        loss = a.exp().sum()
    loss.backward()
    try:
        loss.backward()
    except RuntimeError as error:
        return Asked(error, {"a": a})
    raise AssertionError("torch takes it")


def freed(rec: gradir.Recorder) -> Asked:
    a = leaf()
    with rec:
        hidden = a.exp()  # HERE
        hidden.sum().backward()
        loss = hidden.sum()
    return Asked(loss, {"a": a})


def inplace(rec: gradir.Recorder) -> Asked:
    a = leaf()
    with rec:
        hidden = a.exp()
        hidden += 1  # HERE
        loss = hidden.sum()
    return Asked(loss, {"a": a})


LOST = ("error", {"a": "cut", "c": "reached"})
PROGRAMS: list[tuple[Program, str, tuple[str, ...], str, dict[str, str]]] = [
    (detach, "detach", ("a",), *LOST),
    (data, "data", ("a",), *LOST),
    (written_through_data, "data", ("a",), *LOST),
    (written_through_detach, "detach", ("a",), *LOST),
    (indices, "nondifferentiable", ("a",), *LOST),
    (no_grad, "no_grad", ("a",), *LOST),
    (inference_mode, "inference_mode", ("a",), *LOST),
    (inference_mode_saved, "inference_mode", ("a",), "error", {"a": "error", "c": "error"}),
    (nondifferentiable, "nondifferentiable", ("a",), "error", {"a": "cut"}),
    (sample, "sample", ("a",), *LOST),
    (rebuilt, "rebuilt", ("a", "c"), *LOST),
    (constructed, "rebuilt", ("a",), *LOST),
    (made_like, "rebuilt", ("a",), *LOST),
    (copied_like, "rebuilt", ("a",), *LOST),
    (chosen, "sample", ("a",), *LOST),
    (chosen_twice, "nondifferentiable", ("a",), *LOST),
    (new_leaf, "new_leaf", ("a",), *LOST),
    (no_create_graph, "no_create_graph", ("c", "a"), "error", {"a": "reached", "c": "cut"}),
    (leaves_torch, "exit", ("a",), *LOST),
    (exchanged, "exchanged", ("a",), "info", {"a": "reached"}),
    (unused, "unused", ("c",), "info", {"a": "reached", "c": "unused"}),
    (nonleaf, "nonleaf", ("a",), "error", {"a": "nonleaf"}),
    (zero, "one_entry", ("a",), "error", {"a": "zero", "c": "reached"}),
    (rounding, "rounding", ("a",), "none", {"a": "zero"}),
    (nonfinite, "nonfinite", ("a",), "error", {"a": "nonfinite", "c": "reached"}),
    (where_trap, "where_trap", ("a",), "error", {"a": "nonfinite", "c": "reached"}),
    (raised, "raised", (), "error", {"a": "error"}),
    (backward, "backward", (), "error", {"a": "error"}),
    (freed, "freed", ("hidden",), "error", {"a": "error"}),
    (inplace, "inplace", ("hidden",), "error", {"a": "error"}),
]
