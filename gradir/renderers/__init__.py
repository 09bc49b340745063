"""The renderers of a diff, one class each: reports, diagrams, pages. Entry points of ``gradir.renderers`` name them."""
