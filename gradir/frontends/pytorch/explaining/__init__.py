"""Find out of a recorded forward why gradient does not arrive.

``cuts`` finds where values go on without their gradient, ``graph_cuts`` makes cuts of a graph of them, some of which
are ``meant``; ``gradients`` finds what a backward gives each leaf, and ``arrivals`` says what is to be told of that,
with ``zeros`` for what stays zero, ``constants`` for what is zero but for rounding, ``traps`` for what is not finite
and ``born`` for what the forward made so first; ``overwritten`` proves which gradients are not the derivative.
``writes`` and ``failures`` find what keeps a backward from running, ``clearing`` what wiped its gradients, ``terms``
what a loss is a sum of, and what was never added to one, ``numbers`` what becomes of those read from tensors, and
``registered`` what modules keep aside and an optimizer lost. ``explain`` puts it together of a ``subject``, in the
``words`` of the program.
"""
