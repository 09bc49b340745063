"""Capture for JAX: a function is traced, its jaxpr is flattened, and JAX itself is asked what each equation does.

`arguments` has the leaves of the arguments, `modules` the libraries whose modules name what runs, `reading` makes a
graph of a jaxpr, and `live` keeps it beside the function for `verifying` and `explaining`.
"""
