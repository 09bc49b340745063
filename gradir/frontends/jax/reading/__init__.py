"""A graph from a jaxpr.

`flatten` lists its equations as records over values, with loops, branches and checkpointed regions taken apart; `probe`
asks JAX what one of them lets through and keeps; `flow` finds what lies on a path, and why a leaf is not reached;
`slots` writes what is saved, by checkpoints too, and `assemble` the graph with its modules.
"""
