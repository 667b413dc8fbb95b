#!/usr/bin/env python3
"""Times rounds of FedJAX on the CNN of the recipe mnist, to compare with the rounds of a run.

    benchmarks/fedjax_rounds.py --level d [--rounds 8] [--backend jit] [--convolution xla] [--json]

A round trains 10 of 100 clients for one epoch of 60 batches, with FedAvg, in the widths, loss and SGD of the recipe:
batch norm of the batch's moments, Scaler, clipping to norm 1, momentum, weight decay. Backend `jit` trains one client
after the other, `pmap` one client on each core at a time. Convolutions are products of patches, or XLA's, which were
slower. Examples are random pixels, because only time is measured. The first round, which compiles, is not in the
median.

FedJAX 0.0.17 needs a JAX before 0.4.26. hetero_tf does not require it; install it in a separate environment.
"""

import math
import os
import sys
import time
from importlib import metadata
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from hetero_tf.base import hardware  # noqa: E402

BATCH, CLASSES = 10, 10

# JAX reads this when it starts: one device for each core, which `pmap` needs.
os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={hardware.core_count()}"

try:
    import fedjax
except ImportError:
    print(
        "fedjax_rounds.py needs FedJAX, which is not installed; install it in a separate environment: "
        "python3 -m venv jax_env && jax_env/bin/pip install fedjax 'jax<0.4.26' 'jaxlib<0.4.26' 'scipy<1.13' 'numpy<2' "
        "'dm-haiku<0.0.13', then jax_env/bin/python benchmarks/fedjax_rounds.py",
        file=sys.stderr,
    )
    sys.exit(2)

import framework_rounds  # noqa: E402
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import optax  # noqa: E402
from framework_rounds import CLIENTS, EXAMPLES, WIDTHS  # noqa: E402


def convolution(inputs, kernel, patches):
    """A 3x3 convolution: [batch, height, width, before] -> [batch, height, width, after]."""
    if not patches:
        return jax.lax.conv_general_dilated(inputs, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    height, width = inputs.shape[1:3]
    padded = jnp.pad(inputs, ((0, 0), (1, 1), (1, 1), (0, 0)))
    shifted = [padded[:, row : row + height, column : column + width] for row in range(3) for column in range(3)]
    return jnp.concatenate(shifted, -1) @ kernel.reshape(-1, kernel.shape[3])


def initial_values(width, rng):
    """Kernels, biases and norms of the four convolutions, and the dense layer."""
    stages, before = [], 1
    for full in (64, 128, 256, 512):
        after = math.ceil(full * width)
        bound = (9 * before) ** -0.5
        kernel = rng.uniform(-bound, bound, (3, 3, before, after)).astype(np.float32)
        stages.append({"kernel": kernel, "bias": np.zeros(after), "scale": np.ones(after), "offset": np.zeros(after)})
        before = after
    dense = {"kernel": rng.uniform(-1, 1, (before, CLASSES)) / before**0.5, "bias": np.zeros(CLASSES)}
    return jax.tree.map(lambda value: jnp.asarray(value, jnp.float32), {"stages": stages, "dense": dense})


def logits(values, pixels, width, patches):
    """[batch, 28, 28, 1] uint8 -> [batch, CLASSES]."""
    hidden = (pixels.astype(jnp.float32) / 255 - 0.1307) / 0.3081
    for index, stage in enumerate(values["stages"]):
        hidden = (convolution(hidden, stage["kernel"], patches) + stage["bias"]) / width
        centered = hidden - hidden.mean((0, 1, 2))
        factor = stage["scale"] * jax.lax.rsqrt(jnp.square(centered).mean((0, 1, 2)) + 1e-5)
        hidden = jax.nn.relu(centered * factor + stage["offset"])
        if index < 3:
            hidden = jax.lax.reduce_window(hidden, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    return hidden.mean((1, 2)) @ values["dense"]["kernel"] + values["dense"]["bias"]


def new_algorithm(width, patches):
    """FedAvg with the recipe's loss and SGD."""

    def loss(values, batch, rng):
        del rng
        chosen = logits(values, batch["x"], width, patches)
        return optax.softmax_cross_entropy_with_integer_labels(chosen, batch["y"]).mean()

    client = optax.chain(optax.clip_by_global_norm(1.0), optax.add_decayed_weights(5e-4), optax.sgd(0.01, momentum=0.9))
    return fedjax.algorithms.fed_avg.federated_averaging(
        jax.grad(loss),
        fedjax.optimizers.create_optimizer_from_optax(client),
        fedjax.optimizers.sgd(1.0),
        fedjax.ShuffleRepeatBatchHParams(batch_size=BATCH, num_epochs=1),
    )


def random_clients(rng):
    """The data of all clients, by id."""
    return fedjax.InMemoryFederatedData(
        {
            index: {
                "x": rng.integers(0, 256, (EXAMPLES, 28, 28, 1), np.uint8),
                "y": rng.integers(0, CLASSES, EXAMPLES, np.int32),
            }
            for index in range(CLIENTS)
        }
    )


def measure(args):
    """The seconds of each round, the first one included."""
    fedjax.set_for_each_client_backend(args.backend)
    rng, width = np.random.default_rng(0), WIDTHS[args.level]
    algorithm = new_algorithm(width, args.convolution == "patches")
    sampler = fedjax.client_samplers.UniformGetClientSampler(random_clients(rng), args.clients, seed=0)
    state, seconds = algorithm.init(initial_values(width, rng)), []
    for _ in range(args.rounds + 1):
        began = time.perf_counter()
        state, _ = algorithm.apply(state, sampler.sample())
        jax.block_until_ready(state)
        seconds.append(time.perf_counter() - began)
    return seconds


def main():
    """Measures and prints."""
    parser = framework_rounds.new_parser(__doc__)
    parser.add_argument("--backend", choices=("jit", "pmap"), default="pmap")
    parser.add_argument("--convolution", choices=("xla", "patches"), default="patches")
    args = framework_rounds.parse(parser, 1)
    versions = {"fedjax": metadata.version("fedjax"), "jax": jax.__version__}
    framework_rounds.show(args, measure(args), backend=args.backend, convolution=args.convolution, **versions)


if __name__ == "__main__":
    main()
