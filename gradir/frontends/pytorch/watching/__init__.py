"""Watch a training script while it runs: its backward passes, its optimizers, and the faults of each step."""
