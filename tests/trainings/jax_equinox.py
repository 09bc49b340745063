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
