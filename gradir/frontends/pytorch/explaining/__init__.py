"""Find why a gradient does not arrive, from a recorded forward pass.

- Where values lose their gradient: ``cuts``, ``kinds``, ``new_leaves``, ``branches``, ``numbers`` (read from tensors),
  and ``graph_cuts``, which makes them cuts of a graph.
- Whether a cut is meant: ``meant``, with ``roles``, ``sums`` and ``followers``.
- What a backward gives: ``gradients``, ``magnitudes``, ``meetings`` (of paths), ``arrivals`` (what is to be told).
- Why that is zero: ``zeros``, ``constants``, ``sizes``. Why it is not finite: ``traps``, ``born``, ``ranges``.
- Why it is wrong, or the backward raises: ``overwritten``, ``writes``, ``failures``, ``clearing``.
- What does not learn: ``optimizers``, ``registered``, ``parallel``, ``terms`` (of the loss).

``explain`` puts it together of a ``subject``, in the ``words`` of the program. Its class is built in steps:
``statuses``, ``losses``, ``learning``.
"""
