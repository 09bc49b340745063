"""What looks at a training script while it runs: its backwards, its optimizers, and what goes wrong from step to step.

``optimizers`` knows who steps, and ``recordings`` each call of backward, at which it captures or explains.
"""
