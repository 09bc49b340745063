"""Find why a gradient does not arrive, from a recorded forward pass.

``explain`` runs the search, and ``losses`` gives each parameter its status. ``cuts`` finds the values that lose their
gradient. ``intended_cuts`` recognises cuts on purpose. ``gradients`` measures a backward pass, and ``arrivals`` judges
it.
"""
