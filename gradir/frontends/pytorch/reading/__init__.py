"""Read a live autograd graph.

``walk`` finds the nodes and ``keepalive`` frees deep graphs safely; ``anatomy``, ``attributes``, ``metadata`` and
``saved`` read one node; ``tensors`` names tensors, ``scopes`` tells of modules, ``reach`` what functions may come to;
``assemble`` makes the graph.
"""
