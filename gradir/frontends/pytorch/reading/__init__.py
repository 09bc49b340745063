"""Read a live autograd graph.

``outputs`` finds the tensors to capture, ``walk`` the nodes behind them, and ``reach`` the parameters that custom
Functions may use. ``attributes`` and ``saved`` read one node, and ``tensors`` names tensors. ``assemble`` makes the
graph. ``keepalive`` frees deep graphs safely.
"""
