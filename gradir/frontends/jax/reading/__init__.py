"""A graph from a jaxpr.

`flatten` lists its equations, with loops, branches and checkpointed regions taken apart. `probe` asks JAX what one of
them lets through and keeps. `flow` finds what lies on a path, `slots` what is saved, and `assemble` makes the graph.
"""
