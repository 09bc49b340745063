"""Read a live autograd graph.

``walk`` finds the nodes and ``keepalive`` frees deep graphs safely; ``attributes`` and ``saved`` read one node;
``outputs`` finds what to capture, ``tensors`` names tensors, ``reach`` what functions come to; ``assemble`` makes the
graph.
"""
