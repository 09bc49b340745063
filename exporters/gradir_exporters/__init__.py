"""gradir's own exporters: one module per format."""
