import torch
from torch import nn

stack = torch.overrides._get_current_function_mode_stack
net = nn.Linear(3, 1)
torch.set_default_device("cpu")
for _ in range(12):
    with torch.device("cpu"):
        net(torch.ones(2, 3)).sum().backward()
        print(type(stack()[-1]).__name__)
torch.set_default_device("meta")
torch.set_default_device(None)
for _ in range(8):
    net(torch.ones(2, 3)).sum().backward()
print(stack())
