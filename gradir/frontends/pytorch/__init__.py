"""The PyTorch front-end.

``frontend`` is the entry point, and ``target`` runs what a SPEC names, on tensors without data (``fake``) if asked to.
``reading`` makes a graph of live autograd nodes, ``recording`` notes what a forward does, and ``verifying`` runs a
backward and compares.
"""
