"""Graphs that PyTorch hands around as data: ``torch.export`` programs, FX GraphModules and joint graphs.

`fx` reads those in memory and `archive` a ``.pt2`` file, both into the records of `program`. `assemble` makes a graph
of them that looks like the graph of a recorded forward.
"""
