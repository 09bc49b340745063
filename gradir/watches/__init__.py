"""A watch is data: the steps of a training, and what was found in them."""
