"""Captures of as many architectures as the installed packages allow, each compared with what torch itself says.

`make verification-wide` compares them all and writes docs/verification-wide.json.
"""
