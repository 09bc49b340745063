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
