"""Run a backward and compare it with a graph.

``untouched`` leaves all else as it was, in a process group too; ``reuse`` leaves the graph fit for another one.
"""
