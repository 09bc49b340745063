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
