"""A graph from a jaxpr.

`flatten` lists its equations as records over values, with loops, branches and checkpointed regions taken apart; `probe`
asks JAX what one of them lets through and keeps; `flow` finds what lies on a path; `regions` what a checkpoint holds;
`slots` writes what is saved, `cuts` why a leaf is not reached, `scopes` the modules, and `assemble` the graph.
"""
