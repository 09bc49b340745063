"""The sentence and the advice for each kind of gradient that is zero, infinite or NaN."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_BEFORE_BACKWARD: Final = (
    "explain the loss before backward(), or call backward(retain_graph=True), to find the operation"
)
_CHECK_HOOK: Final = "check what the hook returns, or remove it by the handle that register_hook returned"
# As in `gradir.vocabulary.training.TRAINING`.
VALUES: Final[Mapping[str, tuple[str, str]]] = {
    "zero": (
        "the gradient of {names} becomes zero in {op}, with the values of this step",
        "check the inputs of {op} here; ignore this if other inputs give a gradient",
    ),
    "lost": (
        "the loss is infinite or NaN, and the gradient of {names} becomes zero in {op}",
        "first find what makes it infinite or NaN: a mean over targets is NaN if all of them are ignored",
    ),
    "given_zero": (
        "the backward of the custom Function {op} returns zeros for {names}",
        "return the gradient of each input that should learn in its backward",
    ),
    "ignores_gradient": (
        "the backward of the custom Function {op} ignores the gradient that it gets, so that of {names} is wrong",
        "multiply by the argument that backward gets after ctx",
    ),
    "loss_undefined": (
        "{op} makes the loss infinite or NaN",
        "keep the input of {op} inside its range, by a clamp or a small number added before it",
    ),
    "undefined": (
        "{op} makes the loss infinite or NaN, and the gradient of {names} is zero",
        "keep the divisor or input of {op} away from zero, by a clamp or a small added number, and leave empty rows "
        "out of the loss",
    ),
    "flat": (
        "{op} is flat: its derivative is zero everywhere, and so is the gradient of {names}",
        "use something with a slope instead, or let the gradient pass it by: x + ({op}(x) - x).detach()",
    ),
    "saturated": (
        "every result of {op} is at an end of its range, where it is flat, so the gradient of {names} is zero",
        "bring its input nearer to zero: smaller initial weights, a normalisation or a smaller learning rate; for a "
        "loss, use the form that takes logits",
    ),
    "one_entry": (
        "{op} normalises over a single entry, so its result is constant and the gradient of {names} is zero",
        "normalise over a dimension with several entries, or use a sigmoid for a single one",
    ),
    "one_step": (
        "the gradient of {names} is zero: one output of {op} is taken here, at which its direction has seen one step",
        "take the last state of each direction instead, torch.cat([h_n[-2], h_n[-1]], -1), or pool all outputs, as by "
        "output.mean(dim) over the steps",
    ),
    "single": (
        "{op} normalises over the single entry that an input of this step has, so its result is constant and the "
        "gradient of {names} is zero",
        "ignore this if other inputs have several entries there",
    ),
    "closed": (
        "{op} gets only zeros for any input, so the gradient of {names} stays zero",
        "find the zero before it, such as weights or a dropout of 1, and initialise or set it otherwise",
    ),
    "weighed_out": (
        "{op} multiplies by a constant zero of the program, so the gradient of {names} is zero",
        "set the factor to another number, or leave the term out; ignore this while a schedule keeps it at zero",
    ),
    "dropped": (
        "a dropout with probability 1 drops everything, so the gradient of {names} is zero",
        "use a probability below 1",
    ),
    "flat_slope": (
        "the loss is computed from a derivative of {op}, which is piecewise constant, so the gradient of {names} is "
        "zero",
        "use a function with a second derivative instead, such as tanh, silu or softplus",
    ),
    "adds_up": (
        "the results of {op} are added up, which gives 1 for any input, so the gradient of {names} is zero",
        "weigh them before they are added, or use a loss that takes a target, such as cross_entropy",
    ),
    "norm_adds_up": (
        "the results of {op} are added up, and the sum of normalised values is constant, so the gradient of {names} is "
        "zero",
        "weigh the entries before they are added, or use a loss that takes a target; a sum is only for tests",
    ),
    "out_of_range": (
        "every input of {op} is at or beyond its bounds, where it is flat, so the gradient of {names} is zero",
        "initialise it inside the range, or use something with a slope outside it, such as softplus",
    ),
    "stuck": (
        "both factors of {op} are zero, and each can change only if the other does: the gradient of {names} stays zero",
        "initialise one of the two factors with numbers other than zero",
    ),
    "dead": (
        "{op} is flat at every input of this step, so the gradient of {names} is zero",
        "ignore this if it has a slope at other inputs; else change the initial bias or the learning rate, or use a "
        "function with a slope there, such as leaky_relu",
    ),
    "equal": (
        "{op} is zero in this step, which is its minimum, and so is the gradient of {names}",
        "ignore this where both sides start equal, as a student and its teacher do",
    ),
    "not_chosen": (
        "none of the entries that {op} chooses in this step depends on {names}",
        "ignore this if other inputs lead to another choice; a soft one, such as logsumexp, gives each a gradient",
    ),
    "factor": (
        "{op} multiplies by zero in this step, so the gradient of {names} is zero",
        "check the other factor: a mask, a weight of the loss or an input that is zero throughout",
    ),
    "masked": (
        "{op} masks everything that depends on {names} in this step",
        "check the mask; ignore this if it keeps entries of other inputs",
    ),
    "padding": (
        "{op} looks up only padding_idx in {names} in this step, and that row gets no gradient",
        "check the indices; ignore this if other inputs look up other rows",
    ),
    "ignored": (
        "every target of {op} is ignored in this step or has a weight of zero, so the gradient of {names} is zero",
        "check the targets and ignore_index; other steps may have targets that count",
    ),
    "hooked": ("the hook {op} makes the gradient of {names} zero", _CHECK_HOOK),
    "empty": (
        "no row of this step went through {names}: {op} works on an empty tensor",
        "ignore this if other inputs send some, as in a mixture of experts; else check how rows are chosen",
    ),
    "starting": (
        "the other factor of {op} starts at zero, and the gradient of {names} is zero until that has learned",
        "ignore this where the zero is intended, as in LoRA or a residual branch that starts closed",
    ),
    "rounding": (
        "the gradient of {names} is zero except for rounding: the value that {op} adds to all entries is subtracted "
        "again",
        "leave out a bias before a normalisation, or ignore this",
    ),
    "cancel": (
        "the gradients that {op} passes back to {names} add up to zero",
        "look for a value that is computed twice and subtracted or divided, such as a policy that is its own reference "
        "or the log_prob() of its own rsample(), and detach() one of the two if {names} should learn",
    ),
    "nonfinite": (
        "the gradient of {names} becomes infinite or NaN in {op}",
        "keep the input of {op} finite and away from where its derivative is infinite, by a clamp or a small number "
        "added before {op}: a torch.where after it hides the value and not the derivative",
    ),
    "born": (
        "{op} gives NaN or infinity in the forward, and so the gradient of {names} is infinite or NaN",
        "keep the input of {op} inside its range, by a clamp or a small number added before it, or compute it in a "
        "wider dtype",
    ),
    "nonfinite_input": (
        "{op} gets NaN or infinity from a tensor that depends on no parameter, such as an input, and so the gradient "
        "of {names} is infinite or NaN",
        "look for values that are not finite in the data, such as by torch.isfinite(x).all(), and replace it or leave "
        "it out",
    ),
    "nonfinite_grad": ("`.grad` of {names} contains NaN or infinity", _BEFORE_BACKWARD),
    "zero_grad": ("`.grad` of {names} is zero", _BEFORE_BACKWARD),
    "hook_nonfinite": ("the hook {op} makes the gradient of {names} infinite or NaN", _CHECK_HOOK),
    "underflow": (
        "the gradient of {names} is too small for float16 in {op}, and becomes zero",
        "scale the loss with torch.amp.GradScaler, or compute {op} in bfloat16 or float32",
    ),
    "overflow": (
        "the gradient of {names} is too large for float16 in {op}, and becomes infinite",
        "compute {op} in bfloat16 or float32; torch.amp.GradScaler skips such a step and takes a smaller scale",
    ),
    "exploding": (
        "the gradient of {names} grows with every repetition of {op}, until it is infinite",
        "make a step change the size less: smaller initial weights, a normalisation, or a gated cell such as an LSTM; "
        "or clip the gradient inside the loop by a hook, or detach() the state every few steps",
    ),
    "where_trap": (
        "the gradient of {names} becomes NaN in {op}, which gets 0 back where its result is not taken, and 0 times "
        "infinity is NaN",
        "give {op} a safe input where its result is not taken, by a torch.where before it as well: torch.where(mask, "
        "{op}(torch.where(mask, x, 1.0)), other)",
    ),
    "all_masked": (
        "the gradient of {names} becomes NaN in {op}: a mask hides a whole row, whose softmax is NaN",
        "keep an entry in each row of the mask, or fill with a large negative number instead of -inf and leave such "
        "rows out of the loss",
    ),
}
