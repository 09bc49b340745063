"""Capture for JAX: a function is traced, its jaxpr is flattened, and JAX itself is asked what each equation does."""
