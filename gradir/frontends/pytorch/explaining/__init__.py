"""Find out of a recorded forward why gradient does not arrive.

``cuts`` finds where values go on without their gradient, ``graph_cuts`` makes cuts of a graph of them with their ``ends``
and what is ``meant``; ``gradients`` finds what a backward gives each leaf, ``zeros`` which of that stays zero,
``hooks`` what changes it on its way, ``writes`` what keeps it from running, ``terms`` what a loss is a sum of, and
``registered`` what modules keep aside and an optimizer lost. ``explain`` puts it together.
"""
