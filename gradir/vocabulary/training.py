"""The sentence and the advice for each kind of problem over the steps of a training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_SLOPES: Final = (
    "use activations with a slope, such as relu or gelu, a normalisation or residual connections, and initial "
    "weights that preserve the scale of activations"
)
# The sentence and the advice by kind, as in `gradir.vocabulary.causes.CAUSE_TEXTS`.
TRAINING: Final[Mapping[str, tuple[str, str]]] = {
    "loss_not_finite": (
        "the loss is NaN or infinite",
        "look at the operation that is named here or in the step before: a logarithm or a square root of 0, a division "
        "by 0, or numbers that grew too large for their dtype",
    ),
    "parameter_not_finite": (
        "{names} {holds} NaN or infinity after the step",
        "look for a learning rate that is too large, and for the divisor of the optimizer's update",
    ),
    "loss_explodes": (
        "the loss has grown without bound",
        "take a smaller learning rate, clip the norm of the gradient, or normalise the inputs",
    ),
    "kept_graphs": (
        "{op} keeps the graphs of earlier steps alive, so memory grows with every step",
        "store only the number: append loss.item(), or loss.detach() if it must stay a tensor",
    ),
    "summed_graphs": (
        "{op} is a sum of the results of all steps with their graphs, so memory grows with every step",
        "add up numbers: total += loss.item(); run a validation under torch.no_grad()",
    ),
    "carried_graph": (
        "the graph of a step reaches back through the steps before it, by {op}",
        "detach() values that one step passes to the next",
    ),
    "lr_zero": (
        "the learning rate of {names} is 0, so no step moves {it}",
        "check the scheduler and how often it is stepped: a warm-up that is counted in epochs begins at 0 and stays "
        "there for the first one",
    ),
    "below_resolution": (
        "the update of {names} is smaller than the spacing of the numbers, so no step moves {it}",
        "keep the parameters in float32, with torch.autocast for the forward, or take a larger learning rate",
    ),
    "vanished": ("the gradient of {names} is so small that no step moves {it}", _SLOPES),
    "vanishing": ("the gradient vanishes on the way back to {names}", _SLOPES),
    "exploding_gradient": (
        "the gradient grows on the way back to {names}",
        "use a normalisation or smaller initial weights, or clip the norm of the gradient",
    ),
    "by_hand": (
        "the program has no optimizer, so each backward after which parameters have other values counts as a step",
        "use an optimizer of torch.optim to find parameters that do not move, too",
    ),
    "never_stepped": (
        "{op} never steps, so none of its parameters is trained",
        "call optimizer.step() after the backward",
    ),
    "skipped_steps": (
        "the GradScaler skips every step, so no parameter moves",
        "find the operation that makes the gradients infinite or NaN: the scaler skips such a step and takes a smaller "
        "scale, which helps only if the scale was too large",
    ),
    "still_scaled": (
        "{op} gets gradients that GradScaler has multiplied, and not the gradients of the loss",
        "call scaler.unscale_(optimizer) before clip_grad_norm_(), and scaler.step(optimizer), not optimizer.step()",
    ),
    "wiped": (
        "the gradient of {names} is gone when the optimizer steps",
        "call zero_grad() before the backward or after the step, and not between them",
    ),
    "clipped_to_zero": (
        "the gradient of {names} is 0 when the optimizer steps, and was not after the backward",
        "check the limit that clip_grad_norm_ gets, and whether the norm is infinite, which makes all gradients zero: "
        "pass error_if_nonfinite=True to see it",
    ),
    "no_movement": (
        "{names} {gets} a gradient, and no step moves {it}",
        "check that the optimizer has the parameters that the model uses, and what its step does with them",
    ),
    "undone": (
        "the program sets {names} back after each step",
        "look for load_state_dict() or a copy into the parameters inside the loop",
    ),
    "in_no_optimizer": (
        "{names} {gets} a gradient, and no optimizer has {it}",
        "give {it} to an optimizer, or call requires_grad_(False) on what should not learn",
    ),
    "not_zeroed": (
        "the gradient of {names} is never cleared, so each step adds those of all steps before it",
        "call optimizer.zero_grad() once a step, before the backward",
    ),
    "constant_loss": (
        "the loss is the same number in every step, although the parameters move",
        "check that the loss depends on the data and on the output of the model",
    ),
    "broadcast": (
        "{op} compares tensors of different shapes, which broadcasts them against each other",
        "give both the same shape, such as by output.squeeze(-1) or target.unsqueeze(-1)",
    ),
    "softmax_twice": (
        "{op} gets probabilities where it takes logits: it applies a softmax itself",
        "give it the logits, without the softmax or log_softmax before it",
    ),
    "sigmoid_twice": (
        "{op} gets the result of a sigmoid where it takes logits: it applies a sigmoid itself",
        "give it the logits without the sigmoid, or use binary_cross_entropy",
    ),
    "not_log": (
        "{op} gets numbers that are no log-probabilities",
        "give it the result of log_softmax, or use cross_entropy with the logits",
    ),
    "parted": (
        "the ranks disagree about {op}",
        "find the difference between ranks: a seed, the order of data, or a parameter that is not synchronised",
    ),
}
