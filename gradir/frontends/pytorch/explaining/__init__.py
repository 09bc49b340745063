"""Find out of a recorded forward why gradient does not arrive.

``cuts`` finds where values go on without their gradient, ``gradients`` what a backward gives each leaf.
"""
