"""The PyTorch front-end.

``frontend`` is the entry point. ``target`` runs a PROGRAM, with ``fake`` tensors if asked to. ``recorder`` is the
context that a program enters. ``private`` lists the names of torch that may change in any release.

``reading`` makes a graph of live autograd nodes, and ``recording`` records a forward pass. ``verifying`` runs a
backward pass and compares. ``explaining`` finds where gradients end, and ``watching`` follows a running training.
"""
