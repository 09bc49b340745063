"""Run a backward and compare it with a graph; ``untouched`` leaves all else, and the graph, as it was."""
