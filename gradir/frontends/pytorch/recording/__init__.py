"""Note what a forward does while it runs.

``timelines`` know which module ran when, ``sources`` which line called what, and ``flow`` which tensor went where.
``forward`` makes a graph of a flow, and ``rank`` tells what this process exchanged with others.
"""
