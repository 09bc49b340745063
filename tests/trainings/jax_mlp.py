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
