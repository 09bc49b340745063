"""A GAN with a cut generator, whose modules and not its optimizers clear the gradients."""

import torch
from torch import nn

torch.manual_seed(0)
generator = nn.Sequential(nn.Linear(4, 16), nn.LeakyReLU(), nn.Linear(16, 6))
critic = nn.Sequential(nn.Linear(6, 16), nn.LeakyReLU(), nn.Linear(16, 1))
moves_generator, moves_critic = torch.optim.Adam(generator.parameters()), torch.optim.Adam(critic.parameters())
criterion = nn.BCEWithLogitsLoss()
for _ in range(12):
    critic.zero_grad()
    criterion(critic(torch.randn(8, 6)), torch.ones(8, 1)).backward()
    made = generator(torch.randn(8, 4)).detach()  # <- detach
    criterion(critic(made), torch.zeros(8, 1)).backward()
    moves_critic.step()
    generator.zero_grad()
    criterion(critic(made), torch.ones(8, 1)).backward()
    moves_generator.step()
