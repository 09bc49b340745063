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
