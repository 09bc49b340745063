"""Note what a forward does while it runs.

``recorder`` is what a program enters; ``timelines`` know which module ran when, ``sources`` which line called what.
"""
