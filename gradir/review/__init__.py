"""A diff as a person reads it: equal changes told once, whole modules as one line, the text itself."""
