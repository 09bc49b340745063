import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)

import copy
import random
from collections import deque

random.seed(0)
q = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))
target = copy.deepcopy(q)
opt = torch.optim.Adam(q.parameters(), 1e-3)
memory = deque(maxlen=1000)
s = torch.randn(4)
for step in range(60):
    with torch.no_grad():
        a = int(q(s).argmax()) if random.random() > 0.1 else random.randrange(2)
    n, r = torch.randn(4), random.random()
    memory.append((s, a, r, n))
    s = n
    if len(memory) < 16:
        continue
    batch = random.sample(list(memory), 16)
    S, A, R, N = (
        torch.stack([b[0] for b in batch]),
        torch.tensor([b[1] for b in batch]),
        torch.tensor([b[2] for b in batch]),
        torch.stack([b[3] for b in batch]),
    )
    with torch.no_grad():
        y = R + 0.99 * target(N).max(1).values
    loss = F.smooth_l1_loss(q(S).gather(1, A[:, None]).squeeze(1), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 20 == 0:
        target.load_state_dict(q.state_dict())
