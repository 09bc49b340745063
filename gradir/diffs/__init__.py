"""The difference between two graphs, as data."""
