"""Capture JAX functions: trace the function, flatten its jaxpr, and ask JAX for the derivative of each equation."""
