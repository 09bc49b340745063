"""The PyTorch front-end.

``walk`` finds the nodes, ``keepalive`` frees deep graphs safely, ``metadata``, ``attributes`` and ``saved`` read one
node, ``tensors`` names tensors, ``scopes`` records modules, ``assemble`` makes the graph, ``target`` runs what a SPEC
names.
"""
