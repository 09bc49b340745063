"""Patterns that cut a gradient on purpose: their sentences, and the ones that excuse a parameter without gradient."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

# The pattern of a cut that affects only parameters of models outside of the recording, which is worth a note.
OTHER_MODEL: Final = "other model"
# Patterns of a network that gradients do not train. Parameters of other patterns should get a gradient another way.
EXCUSING: Final = frozenset({"reference model", "target network", "teacher"})
# Patterns of parameters that get no gradient in this step.
WITHOUT_GRADIENT: Final = EXCUSING | {"other optimizer"}

# The sentence and the advice by pattern, which replace those of the kind of cut in `gradir.vocabulary.causes`.
# ``{cause}`` and ``{advice}`` are the replaced sentence and advice.
PATTERNS: Final[Mapping[str, tuple[str, str]]] = {
    "straight-through": (
        "{op} is part of a straight-through estimator: the forward takes the other value, and {names} {gets} the "
        "gradient as if it had been passed on unchanged",
        "keep this cut: without it, the gradient would be that of the bypassed function, which is often zero",
    ),
    "stop-gradient": (
        "{op} stops the gradient of {names} on one side of a comparison",
        "keep this cut if only the other side should move, as in SimSiam, BYOL and a commitment loss; without it, both "
        "sides can collapse to a constant",
    ),
    "codebook": (
        "{op} separates the codebook loss from the commitment loss, so that each moves one side: it cuts {names} here",
        "keep this cut: one loss moves the codebook, the other one the encoder",
    ),
    "bootstrapped target": (
        "{op} makes a target that is computed from {names} a constant, as temporal-difference learning does",
        "keep this cut: a target that moves with the value it is compared with makes training unstable",
    ),
    "pseudo labels": (
        "{op} makes labels that are predicted by {names} constants",
        "keep this cut: {names} should learn to predict the labels, and not to change them",
    ),
    "policy ratio": (
        "{op} makes the old log-probabilities of a policy ratio constants, which cuts {names}",
        "keep this cut, as in PPO and GRPO: only the new log-probabilities should give {names} a gradient",
    ),
    "advantage": (
        "{op} makes the weight of a log-probability a constant, which cuts {names}",
        "keep this cut, as for advantages and returns: {names} should learn from another term of the loss",
    ),
    "subtracted maximum": (
        "{op} makes a maximum that is only subtracted for stability a constant, which cuts {names}",
        "keep this cut: the result does not depend on what is subtracted, and its gradient would cancel",
    ),
    "target network": (
        "{cause}: it is part of a target network, which follows another network and gets no gradient",
        "keep this cut, and update {names} by a moving average or a copy, outside the optimizer",
    ),
    "reference model": (
        "{cause}: it is part of a reference model, which stays as it is",
        "keep this cut; requires_grad_(False) on the reference model does the same, and saves memory",
    ),
    "other optimizer": (
        "{cause}; this optimizer does not have {it}",
        "keep this cut if {names} should not learn in this step, like a generator in the step of its discriminator",
    ),
    "teacher": (
        "{cause}: it is part of a teacher, whose results are targets",
        "keep this cut; requires_grad_(False) on the teacher does the same, and saves memory",
    ),
    OTHER_MODEL: ("{cause}", "record that model too if it should learn from this loss"),
    "another path": ("{cause}, and another path gives {it} a gradient", "keep this cut if it is intended, or {advice}"),
    "scored": ("{cause}: its log_prob() is cut elsewhere", "keep this, and mend the other cut of {names}"),
    "score function": (
        "{cause}, and another path gives {it} a gradient",
        "keep this if the loss takes log_prob() of the sample, as in REINFORCE and PPO; else use rsample(), or "
        "gumbel_softmax for categories",
    ),
}

# By kind of a cut, its pattern if it has no other and every parameter before it gets a gradient another way.
OF_REACHED: Final[Mapping[str, str]] = {
    **dict.fromkeys(("data", "detach", "inference_mode", "no_grad"), "another path"),
    "sample": "score function",
}

# The sentence and the advice by pattern if a parameter gets no other gradient, which the pattern does not excuse.
LOST: Final[Mapping[str, tuple[str, str]]] = {
    "straight-through": (
        "the straight-through estimator bypasses {names}, and nothing else gives {it} a gradient",
        "add a loss of the value inside {op}, such as F.mse_loss(q, z.detach()) for a codebook, or update {it} by a "
        "moving average; if {names} should get the gradient of the result, swap the two values: x + (q - x).detach() "
        "gives it to x",
    ),
    **{
        network: (
            f"{{cause}}: it looks like part of a {network}, and the optimizer has {{it}}",
            f"take {{it}} out of the optimizer if {mover} {{it}}; if {{names}} should learn, remove the cut here: a "
            f"detach, or no_grad around this line or its callers",
        )
        for network, mover in (
            ("target network", "another network moves"),
            ("reference model", "nothing should move"),
            ("teacher", "nothing should move"),
        )
    },
}
