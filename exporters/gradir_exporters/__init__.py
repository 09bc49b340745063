"""gradir's own exporters: one module per format, each independent of the others."""
