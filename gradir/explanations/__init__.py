"""Explain why a gradient does not arrive, as data and as text."""
