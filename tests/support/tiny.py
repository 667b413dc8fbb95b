"""Recipes, data and processes so small that tests of the numerical core run in seconds.

No width equals the number of labels or one more: `oracle` finds the label axis by its length.
"""

import contextlib
import dataclasses
import functools

import numpy as np
import tensorflow as tf

from hetero_tf import recipe
from hetero_tf.data.codecs import Field, picture, running_text
from hetero_tf.data.dataset import Dataset, Split
from hetero_tf.data.partitions.partition import ClientExamples, Partition, label_mask
from hetero_tf.methods.policies import round_policy
from hetero_tf.planning.selection import able_clients, pool_of, select_cohort
from hetero_tf.rounds.client_block import BlockStage, ClientBlock
from hetero_tf.rounds.engine import check_block
from hetero_tf.rounds.row_model import RowModel
from hetero_tf.rounds.training_step import JointStep
from hetero_tf.run.learning_process import learning_process

CLASSES, WORDS = 9, 13
COMMON = """
partition: {name: iid, clients: 4}
levels:
  widths: {a: 1.0, b: 0.5, c: 0.25, d: 0.125, e: 0.0625}
  mix: a-b-c
  assignment: dynamic
round: {clients: 3}
optimizer: {learning_rate: 0.1, momentum: 0.9, weight_decay: 5.0e-4, clip_norm: 1.0}
schedule: {name: steps, at: [1], factor: 0.5}
rounds: 3
"""
# Each level is one more graph to trace.
TWO_LEVELS = COMMON.replace("a-b-c", "a-c")
IMAGES = (
    """
name: tiny_images
data: {name: synthetic}
input: {name: images, mean: [0.4, 0.5], std: [0.3, 0.2]}
client: {epochs: 2, batch_size: 3}
model:
  layers:
    - [PaddedConv2D: {filters: !w 8}, Scaler, Norm: {kind: sbn}, ReLU]
    - PreActivationBlock: {filters: !w 12, stride: 2}
    - GlobalAveragePooling2D
    - Dense: {units: !classes, kernel_initializer: fan_in_uniform}
"""
    + TWO_LEVELS
)
TEXT = (
    """
name: tiny_text
data: {name: synthetic, kind: text}
input: {name: masked_text, segment: 4, mask_share: 0.3}
client: {epochs: 1, batch_size: 2}
evaluate: {best: global_perplexity, batch_size: 2}
model:
  layers:
    - MaskedTokenEmbedding: {classes: !classes, positions: 4, width: !w 8}
    - TransformerBlock: {heads: 2, head_width: !w 4, hidden: !w 12}
    - Dense: {units: !classes, kernel_initializer: fan_in_uniform}
"""
    + TWO_LEVELS
)
DENSE = (
    """
name: tiny_dense
data: {name: synthetic}
input: {name: images, mean: [0.0], std: [1.0]}
client: {epochs: 1, batch_size: 4}
model:
  layers:
    - [GlobalAveragePooling2D, Dense: {units: !w 8}, Scaler, ReLU]
    - Dense: {units: !classes, kernel_initializer: fan_in_uniform}
"""
    + COMMON
)
# Ranks 4, 2 and 1; the second adapter has the label axis.
ADAPTERS = (
    DENSE[: DENSE.index("model:")]
    + """model:
  layers:
    - [Flatten, LoraDense: {units: 6, lora_rank: !w 4, lora_scale: 2.0}, ReLU]
    - LoraDense: {units: !classes, lora_rank: !w 4, lora_scale: 0.5}
"""
    + COMMON.replace("dynamic", "fixed")
)
# Two clients, one of each level, for a model and data that a test passes; and one client that takes plain steps.
TWO_CLIENTS = {
    "partition": {"name": "iid", "clients": 2},
    "levels": {"widths": {"a": 1, "b": 0.5}, "mix": "a-b", "assignment": "fixed"},
    "round": {"clients": 2},
    "optimizer": {"learning_rate": 0.1},
    "rounds": 2,
}
ONE_CLIENT = {
    "partition": {"name": "iid", "clients": 1},
    "levels": {"widths": {"a": 1}, "mix": "a"},
    "round": {"clients": 1},
    "optimizer": {"learning_rate": 0.1, "momentum": 0, "weight_decay": 0, "clip_norm": None},
    "rounds": 1,
}
DROPOUT_IMAGES = IMAGES.replace("ReLU]", "ReLU, Dropout: {rate: 0.25}, Dropout: {rate: 0.5}]")
DROPOUT_TEXT = TEXT.replace("positions: 4", "positions: 4, dropout: 0.25").replace("heads: 2", "heads: 2, dropout: 0.5")


def images(sizes=(7, 5, 9, 4), test=11, kind=np.uint8, labels=((0, 1, 5), (1, 2), (3, 8, 0, 6), (4,))):
    """A data set of noise and its partition; `sizes` and `labels` have an entry for each client."""
    rng = np.random.default_rng(3)
    owners = np.repeat(np.arange(len(sizes)), sizes)

    def split(owners):
        x = rng.integers(0, 256, (len(owners), 5, 5, 2)).astype(kind)
        y = np.asarray([rng.choice(labels[client]) for client in owners], np.int32)
        return Split(x if kind == np.uint8 else x / kind(255), y)

    tested = np.arange(test) % len(sizes)
    train = split(owners)
    dataset = Dataset(train, split(tested), (picture.field(train.x),), CLASSES, "noise")
    shares, tests = (
        ClientExamples.from_lists(np.flatnonzero(which == client).astype(np.int32) for client in range(len(sizes)))
        for which in (owners, tested)
    )
    return dataset, Partition(shares, tests, label_mask(dataset.train.y, shares, CLASSES))


def text(rows=(1, 3, 2, 1), length=10):
    """Random words; every client has a part of the vocabulary."""
    rng = np.random.default_rng(4)
    vocabularies = [rng.choice(WORDS, 6 + client, replace=False) for client in range(len(rows))]
    x = np.concatenate([rng.choice(vocabularies[client], (count, length)) for client, count in enumerate(rows)]).astype(
        np.int32
    )
    shares = ClientExamples.from_sizes(np.arange(len(x), dtype=np.int32), rows)
    test = Split(rng.integers(0, WORDS, (3, length)).astype(np.int32))
    dataset = Dataset(Split(x), test, (Field("text", running_text.Codec(length, count=WORDS)),), WORDS, "noise")
    return dataset, Partition(shares, ClientExamples.empty(len(rows)), label_mask(x, shares, WORDS))


def process(base, *overrides, data=None, parallel=2, device="cpu"):
    """The learning process of one of the recipes above; `overrides` as `--set` takes them."""
    dataset, partition = data or (text() if "masked_text" in base else images())
    return learning_process(recipe.loads(base, "tiny", overrides), dataset, partition, parallel=parallel, device=device)


@functools.cache
def shared(base, *overrides, idle=False, parallel=2):
    """A learning process that several tests use: tracing its round takes most of their time.

    Args:
        idle: Whether there is a fifth client, without examples.
    """
    data = None
    if idle:
        labels = ((0, 1, 5), (1, 2), (3, 8, 0, 6), (4,), (2,))
        data = text((2, 3, 1, 1, 0)) if "masked_text" in base else images((7, 5, 9, 5, 0), labels=labels)
    return process(base, *overrides, data=data, parallel=parallel)


def with_setup(process, **records):
    """The process with other fields in the records of its round, such as `algorithm={"server": apply}`."""
    setup = process.setup
    changed = {name: dataclasses.replace(getattr(setup, name), **fields) for name, fields in records.items()}
    return dataclasses.replace(process, setup=dataclasses.replace(setup, **changed))


@contextlib.contextmanager
def eagerly():
    """Run functions without tracing them."""
    tf.config.run_functions_eagerly(True)
    try:
        yield
    finally:
        tf.config.run_functions_eagerly(False)


def plans(process, rounds, **options):
    """The plans of the first rounds."""
    return [process.plan(number, **options) for number in range(rounds)]


def cohort(recipe, clients, round, attempt=0):
    """The clients of a round, chosen without a state."""
    pool = pool_of(able_clients(recipe.levels, clients, recipe.seed, round), round)
    return select_cohort(recipe, pool, round_policy(recipe.round.policy).cohort_size(recipe.round.clients), attempt).ids


def perturbed(state, seed=0):
    """A state whose weights all differ from those of `state`, without a round to trace."""
    rng, weights = np.random.default_rng(seed), arrays(state)
    moved = {path: value + rng.normal(0, 0.05, value.shape) for path, value in weights.items()}
    return dataclasses.replace(state, weights={path: moved[path].astype(weights[path].dtype) for path in weights})


def arrays(state):
    """The weights of a state, by path."""
    return {path: np.asarray(value) for path, value in state.weights.items()}


def same(one, other):
    """True if two dicts of arrays are equal bit by bit."""
    return one.keys() == other.keys() and all(
        np.asarray(one[path]).tobytes() == np.asarray(other[path]).tobytes() for path in one
    )


def gap(one, other):
    """The largest difference between two dicts of arrays."""
    assert one.keys() == other.keys()
    return max(float(np.max(np.abs(np.asarray(one[path], np.float64) - other[path]))) for path in one)


def stacks(build):
    """`clients -> ClientBlock` with one stage of the models from `build(clients)`."""

    def make(clients):
        single_model = build(1)
        shapes = tuple(tuple(variable.shape) for variable in single_model.trainable_variables)
        model = single_model if clients == 1 else build(clients)
        routed = RowModel(model, clients, shapes, tuple(range(len(model.trainable_variables))))
        step = JointStep(shapes, len(shapes), (routed,))
        return ClientBlock(shapes, len(shapes), clients, 1, (BlockStage(step, step, None),))

    return make


def stacked(build, clients):
    """The block of several clients from `build`; refused if it differs from the block of one client."""
    block = build(clients)
    check_block(block, build(1), set())
    return block
