"""Training scripts of JAX that know nothing of gradir.

In each, ``CUT`` stands for what becomes of the hidden values ``h``, and ``TX`` for the optimizer. Each prints the norm
of the gradient at every step, and at last all bits of the weights.
"""

from __future__ import annotations

from typing import Final

__all__ = ["SCRIPTS"]

_MLP: Final = """\
import jax
import jax.numpy as jnp
import optax


def init(key):
    keys = jax.random.split(key, 2)
    return {
        "enc": {"w": jax.random.normal(keys[0], (4, 8)), "b": jnp.zeros(8)},
        "dec": {"w": jax.random.normal(keys[1], (8, 1)), "b": jnp.zeros(1)},
    }


def loss_fn(params, x, y):
    h = jnp.tanh(x @ params["enc"]["w"] + params["enc"]["b"])
    h = CUT
    return jnp.mean((h @ params["dec"]["w"] + params["dec"]["b"] - y) ** 2)


tx = TX


@jax.jit
def train_step(params, opt_state, x, y):
    loss, grads = jax.value_and_grad(loss_fn)(params, x, y)
    updates, opt_state = tx.update(grads, opt_state, params)
    norm = sum((g**2).sum() for g in jax.tree.leaves(grads)) ** 0.5
    return optax.apply_updates(params, updates), opt_state, loss, norm


def main():
    params = init(jax.random.key(0))
    opt_state = tx.init(params)
    x = jax.random.normal(jax.random.key(1), (16, 4))
    for step in range(4):
        params, opt_state, loss, norm = train_step(params, opt_state, x, x.sum(1, keepdims=True))
        print(step, float(norm).hex())
    print([leaf.tobytes().hex() for leaf in map(jax.device_get, jax.tree.leaves(params))])


if __name__ == "__main__":
    main()
"""

_NNX: Final = """\
import jax
import jax.numpy as jnp
import optax
from flax import nnx


class Net(nnx.Module):
    def __init__(self, rngs):
        self.enc = nnx.Linear(4, 8, rngs=rngs)
        self.dec = nnx.Linear(8, 1, rngs=rngs)

    def __call__(self, x):
        h = jnp.tanh(self.enc(x))
        h = CUT
        return self.dec(h)


def loss_fn(model, x, y):
    return jnp.mean((model(x) - y) ** 2)


@nnx.jit
def train_step(model, optimizer, x, y):
    loss, grads = nnx.value_and_grad(loss_fn)(model, x, y)
    optimizer.update(model, grads)
    return sum((g**2).sum() for g in jax.tree.leaves(grads)) ** 0.5


model = Net(nnx.Rngs(0))
optimizer = nnx.Optimizer(model, TX, wrt=nnx.Param)
x = jax.random.normal(jax.random.key(1), (16, 4))
for step in range(4):
    print(step, float(train_step(model, optimizer, x, x.sum(1, keepdims=True))).hex())
print([leaf.tobytes().hex() for leaf in map(jax.device_get, jax.tree.leaves(nnx.state(model, nnx.Param)))])
"""

_LINEN: Final = """\
import jax
import jax.numpy as jnp
import optax
from flax import linen as nn
from flax.training.train_state import TrainState


class Net(nn.Module):
    @nn.compact
    def __call__(self, x):
        h = jnp.tanh(nn.Dense(8, name="enc")(x))
        h = CUT
        return nn.Dense(1, name="dec")(h)


def create_train_state(key):
    net = Net()
    return TrainState.create(apply_fn=net.apply, params=net.init(key, jnp.ones((1, 4)))["params"], tx=TX)


@jax.jit
def train_step(state, batch):
    def loss_fn(params):
        out = state.apply_fn({"params": params}, batch["x"])
        return jnp.mean((out - batch["y"]) ** 2), out

    (loss, out), grads = jax.value_and_grad(loss_fn, has_aux=True)(state.params)
    return state.apply_gradients(grads=grads), {"norm": sum((g**2).sum() for g in jax.tree.leaves(grads)) ** 0.5}


state = create_train_state(jax.random.key(0))
x = jax.random.normal(jax.random.key(1), (16, 4))
for step in range(4):
    state, metrics = train_step(state, {"x": x, "y": x.sum(1, keepdims=True)})
    print(step, float(metrics["norm"]).hex())
print([leaf.tobytes().hex() for leaf in map(jax.device_get, jax.tree.leaves(state.params))])
"""

_EQUINOX: Final = """\
import equinox as eqx
import jax
import jax.numpy as jnp
import optax


class Net(eqx.Module):
    enc: eqx.nn.Linear
    dec: eqx.nn.Linear

    def __init__(self, key):
        one, two = jax.random.split(key)
        self.enc, self.dec = eqx.nn.Linear(4, 8, key=one), eqx.nn.Linear(8, 1, key=two)

    def __call__(self, x):
        h = jnp.tanh(self.enc(x))
        h = CUT
        return self.dec(h)


@eqx.filter_value_and_grad
def compute_loss(model, x, y):
    return jnp.mean((jax.vmap(model)(x) - y) ** 2)


@eqx.filter_jit
def make_step(model, opt_state, x, y):
    loss, grads = compute_loss(model, x, y)
    updates, opt_state = optim.update(grads, opt_state, eqx.filter(model, eqx.is_array))
    return eqx.apply_updates(model, updates), opt_state, sum((g**2).sum() for g in jax.tree.leaves(grads)) ** 0.5


model = Net(jax.random.key(0))
optim = TX
opt_state = optim.init(eqx.filter(model, eqx.is_array))
x = jax.random.normal(jax.random.key(1), (16, 4))
for step in range(4):
    model, opt_state, norm = make_step(model, opt_state, x, x.sum(1, keepdims=True))
    print(step, float(norm).hex())
print([leaf.tobytes().hex() for leaf in map(jax.device_get, jax.tree.leaves(eqx.filter(model, eqx.is_array)))])
"""

_FLAT: Final = """\
import jax.numpy as jnp
import optax
import jax
from jax import grad, random

params = {"enc": {"w": random.normal(random.key(0), (4, 8))}, "dec": {"w": random.normal(random.key(2), (8, 1))}}
x = random.normal(random.key(1), (16, 4))


def loss(params):
    h = jnp.tanh(x @ params["enc"]["w"])
    h = CUT
    return jnp.mean((h @ params["dec"]["w"] - x.sum(1, keepdims=True)) ** 2)


tx = TX
state = tx.init(params)
for step in range(4):
    grads = grad(loss)(params)
    updates, state = tx.update(grads, state, params)
    params = optax.apply_updates(params, updates)
    print(step, float(sum((g**2).sum() for g in jax.tree.leaves(grads)) ** 0.5).hex())
print([leaf.tobytes().hex() for leaf in map(jax.device_get, jax.tree.leaves(params))])
"""

SCRIPTS: Final = {"mlp": _MLP, "nnx": _NNX, "linen": _LINEN, "equinox": _EQUINOX, "flat": _FLAT}
