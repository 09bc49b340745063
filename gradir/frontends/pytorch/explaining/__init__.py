"""Find out of a recorded forward why gradient does not arrive.

``cuts`` finds where values go on without their gradient, ``places`` makes cuts of a graph of them with their ``ends``
and what is ``meant``; ``gradients`` finds what a backward gives each leaf, ``terms`` what a loss is a sum of, and
``registered`` what modules keep aside. ``explain`` puts it together.
"""
