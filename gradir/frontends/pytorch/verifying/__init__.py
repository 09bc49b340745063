"""Run a backward pass and compare it with a graph; ``untouched`` keeps all other state and the graph unchanged."""
