"""The renderers of a diff, one class each: reports and diagrams. Entry points of ``gradir.renderers`` name them."""
