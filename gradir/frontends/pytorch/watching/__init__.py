"""What looks at a training script while it runs: its backwards, its optimizers, and what goes wrong from step to step.

``backwards`` knows each call of backward, ``optimizers`` who steps, and ``running`` captures or explains at one call.
"""
