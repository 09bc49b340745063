"""Find why a gradient does not arrive, from a recorded forward pass."""
