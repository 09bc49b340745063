"""Capture ``torch.export`` programs, FX GraphModules and joint graphs.

`fx` reads programs in memory and `archive` reads ``.pt2`` files, both into the records of `program`. `assemble` makes a
graph of the records that looks like the graph of a recorded forward.
"""
