"""The renderers of a diff, one class in one file each; entry points of the group ``gradir.renderers`` name them."""
