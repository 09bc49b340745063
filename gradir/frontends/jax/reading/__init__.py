"""Make a graph from a jaxpr.

`flatten` lists its equations, also those inside loops, branches and checkpointed regions. `probe` asks JAX for the
derivative of one equation. `flow` finds the paths of gradient, `slots` the saved values, and `assemble` makes the
graph.
"""
