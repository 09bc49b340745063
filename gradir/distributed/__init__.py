"""What the ranks of a distributed training do alike, where they part, and whether they would wait for ever.

`reading` takes the files apart, `grouping` finds ranks with equal graphs, `simulation` runs all ranks as programs that
wait in each collective, and `comparison` puts what was found together, as plain data of `model`; `words` makes text of
it.
"""
