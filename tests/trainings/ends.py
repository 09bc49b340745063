import os, sys, threading
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

net = nn.Linear(3, 3)


def loss():
    return net(torch.ones(1, 3)).sum()


def raises():
    net(torch.ones(1, 4))


def leaves():
    sys.exit(7)


def says():
    sys.exit("no config")


def never():
    torch.autograd.grad(loss(), net.weight)


def detached():
    loss().detach().backward()


def late():
    loss().backward()
    raise ValueError("late")


def swallows():
    for _ in range(3):
        try:
            loss().backward()
        except:
            print("swallowed")
    sys.exit(3)


def unclean():
    try:
        loss().backward()
    finally:
        raise ValueError("in the middle")


def thread():
    worker = threading.Thread(target=late)
    worker.start()
    worker.join()


def fork():
    pid = os.fork()
    if not pid:
        loss().backward()
        os._exit(0)
    os.waitpid(pid, 0)


def nested():
    x = torch.ones(1, 3, requires_grad=True)
    checkpoint(net, x, use_reentrant=True).sum().backward()
    loss().sin().backward()


def several():
    torch.autograd.backward(tensor for tensor in [loss(), loss().exp()])


def moves():
    os.chdir("/")
    loss().backward()


globals()[sys.argv[1]]()
