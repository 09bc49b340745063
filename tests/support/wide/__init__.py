"""Captures of as many architectures as the installed packages allow, each compared with what torch itself says.

`python -m wide`, with tests/support on the path, compares them all and writes docs/verification-wide.md.
"""
