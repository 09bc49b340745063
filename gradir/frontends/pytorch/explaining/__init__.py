"""Find why a gradient does not arrive, from a recorded forward pass.

- Where values lose their gradient: ``cuts``, ``bytecode`` (of numbers, new leaves and branches), and ``graph_cuts``,
  which makes them cuts of a graph.
- Whether a cut is meant: ``meant``, with ``roles``.
- What a backward gives: ``gradients``, ``magnitudes``, ``arrivals`` (what is to be told).
- Why that is zero: ``zeros``. Why it is not finite: ``traps``.
- Why it is wrong, or the backward raises: ``failures``.
- What does not learn: ``misuse``.

``explain`` puts it together of a ``subject``, with ``losses``, in the ``words`` of the program.
"""
