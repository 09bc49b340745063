"""The difference between two graphs, as data, and its renderers."""
