"""Look at a training script while it runs: its backwards, its optimizers, and what goes wrong from step to step."""
