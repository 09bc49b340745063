"""Record a forward pass while it runs.

``timelines`` record which module ran when, ``sources`` which line called which operation, and ``flow`` the operations
and their tensors. ``forward`` makes a graph of a flow, and ``rank`` describes what this process exchanged with others.
"""
