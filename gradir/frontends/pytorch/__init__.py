"""The PyTorch front-end.

``frontend`` is the entry point, and ``target`` runs what a PROGRAM names, without data (``fake``) if asked to.
``reading`` makes a graph of live autograd nodes, ``recording`` notes what a forward does, ``verifying`` runs a backward
and compares, and ``explaining`` finds where gradient ends. ``recorder`` is what a program enters, and ``private`` has
the names that torch does not promise to keep.
"""
