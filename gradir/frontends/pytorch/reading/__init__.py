"""Read a live autograd graph.

``walk`` finds the nodes and ``keepalive`` frees deep graphs safely; ``anatomy``, ``attributes`` and ``saved`` read one
node; ``outputs`` finds what to capture, ``tensors`` names tensors, ``scopes`` tells of modules, ``reach`` what
functions come to; ``assemble`` makes the graph.
"""
