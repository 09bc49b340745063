"""Run a backward and compare it with a graph.

``asking`` does it in a process group; ``reuse`` leaves the graph fit for another one.
"""
