"""Contracts of plug-ins of the data: loaders, partitions and inputs."""

import functools

import numpy as np
import tensorflow as tf

from hetero_tf import data
from hetero_tf.base import registry
from hetero_tf.base.constraints import Plugin
from hetero_tf.base.errors import InputError
from hetero_tf.data.dataset import Dataset
from hetero_tf.data.inputs import Input, Labels, all_labels
from hetero_tf.data.partitions.partition import ClientExamples, Partition
from hetero_tf.recipe.geometry import FORMS
from hetero_tf.testing.subject import Subject

CLIENTS, CLASSES = 20, 10
TRAIN = np.random.default_rng(0).integers(0, CLASSES, 1000).astype(np.int32)
TEST = np.random.default_rng(1).integers(0, CLASSES, 300).astype(np.int32)
OWNERS = (np.arange(1000, dtype=np.int32) * 7) % (CLIENTS + 2)


def check_dataset(subject: Subject) -> None:
    """Loading twice gives equal data sets with several classes and values."""
    plugin = Plugin(subject.name, dict(subject.options))
    dataset = data.load(plugin, None, subject.data_dir)
    subject.require(isinstance(dataset, Dataset), "`load` must return a Dataset", type(dataset).__name__)
    subject.require(dataset.classes > 1 and dataset.source, "a data set needs classes and a source")
    again = data.load(plugin, None, subject.data_dir)
    subject.require(again.sha256 == dataset.sha256, "loading twice must give equal data")
    values = len(np.unique(dataset.train.x[:]))
    subject.require(values > 3, "the training examples need different values", values)


def split_labels(
    subject: Subject, seed: int = 2, train_labels: np.ndarray = TRAIN, test_labels: np.ndarray = TEST, **options
) -> Partition:
    """Split labels by a partition; its options, and owners of examples if it takes them, are added."""
    owners = {"train_owners": OWNERS[: len(train_labels)], "test_owners": OWNERS[: len(test_labels)]}
    arguments = {"clients": CLIENTS, **subject.options, **owners, **options}
    return subject.call("split", train_labels, test_labels, CLASSES, np.random.default_rng(seed), **arguments)


def check_clients(subject: Subject) -> None:
    """Every client gets examples of its labels, each example once; the clients share half of the data at least."""
    options = registry.options("partitions", subject.name)
    subject.require("clients" in options and options["clients"].required, "`clients` must be a required option")
    partition = split_labels(subject)
    subject.require(isinstance(partition, Partition), "`split` must return a Partition", type(partition).__name__)
    shape = partition.label_mask.shape
    subject.require(shape == (CLIENTS, CLASSES), "`label_mask` must be [clients, classes]", shape)
    for examples, labels in ((partition.train, TRAIN), (partition.test, TEST)):
        subject.require(isinstance(examples, ClientExamples), "shares must be ClientExamples")
        is_valid = examples.ids.max() < len(labels) and len(np.unique(examples.ids)) == len(examples.ids)
        subject.require(is_valid, "an example belongs to one client at most")
    for client, ids in enumerate(partition.train):
        subject.require(ids.size, f"client {client} must have examples")
        subject.require(partition.label_mask[client, TRAIN[ids]].all(), "`label_mask` must have the labels of a client")
    used = partition.summary()["train_used"]
    subject.require(used >= len(TRAIN) // 2, "clients must get half of the examples at least", used)


def check_pure_split(subject: Subject) -> None:
    """Equal generators give equal splits; labels stay unchanged."""
    before = TRAIN.copy(), TEST.copy()
    is_equal = split_labels(subject).sha256 == split_labels(subject).sha256
    subject.require(is_equal, "equal generators must give equal splits")
    is_unchanged = (before[0] == TRAIN).all() and (before[1] == TEST).all()
    subject.require(is_unchanged, "`split` must not change the labels")


def check_held_out(subject: Subject) -> None:
    """Validation examples belong to no client, and none are held out by default."""
    if "held_out" not in registry.options("partitions", subject.name):
        return
    whole, partition = split_labels(subject, 1, held_out=0.0), split_labels(subject, 1, held_out=0.3)
    expected = [int(0.3 * size) for size in whole.train.sizes]
    sizes = partition.held_out.sizes.tolist()
    subject.require(sizes == expected, "`held_out` is the share of each client's examples", sizes)
    for trained, validation, ids in zip(partition.train, partition.held_out, whole.train):
        is_divided = sorted([*trained, *validation]) == sorted(ids)
        subject.require(is_divided, "a client's examples are either trained on or held out")
    is_default = whole.sha256 == split_labels(subject, 1).sha256 and not whole.held_out.ids.size
    subject.require(is_default, "no examples may be held out by default")


def check_impossible_splits(subject: Subject) -> None:
    """More clients than examples are rejected; text is split by its rows or rejected with one sentence."""
    message = _rejection(subject, clients=len(TRAIN) + 1)
    is_named = message is not None and "`clients` must" in message and "clients=1001" in message
    subject.require(is_named, "more clients than examples must be rejected", message)
    rows = np.random.default_rng(4).integers(0, CLASSES, (60, 7)).astype(np.int32)
    message = _rejection(subject, train_labels=rows, test_labels=rows)
    if message is not None:
        subject.require("\n" not in message and len(message) > 30, "text must be rejected with a sentence", message)
        return
    partition = split_labels(subject, train_labels=rows, test_labels=rows)
    subject.require(not partition.test.ids.size, "rows of text for testing belong to no client")
    for client, ids in enumerate(partition.train):
        is_same = set(rows[ids].reshape(-1)) == set(np.flatnonzero(partition.label_mask[client]))
        subject.require(is_same, "`label_mask` must have the words of a client")


def _rejection(subject, **options):
    try:
        split_labels(subject, **options)
    except InputError as error:
        return str(error)
    return None


def _stored():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, 6).astype(np.int32)
    rows, words = rng.normal(5, 3, (6, 7)).astype(np.float32), rng.integers(0, 9, (6, 5)).astype(np.int32)
    return {
        "arrays": ((rows, labels), 4),
        "audio": ((rng.integers(-(2**13), 2**13, (6, 1000)).astype(np.int16), labels), 4),
        "images": ((rng.integers(1, 256, (6, 5, 5, 2)).astype(np.uint8), labels), 4),
        "sequences": ((words, labels), 4),
        "series": ((rng.normal(5, 3, (6, 9, 2)).astype(np.float32), labels), 4),
        "table": ((rows, labels), 4),
        "text": ((rng.integers(0, 9, (6, 10)).astype(np.int32), None), 9),
    }


STORED = _stored()


def stored_examples(subject: Subject) -> tuple:
    """Stored examples `(x, y)` for an input, and their number of labels."""
    return STORED[subject.constant("DATA") or "images"]


def read_batch(
    source: Input, stored: tuple, labels: Labels, rows: list, key: tuple = (1, 2, 3, 4), training: bool = True
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the inputs and targets of stored examples."""
    x, y = stored
    x, rows, start, key = map(tf.convert_to_tensor, (x, rows, 0, key))
    return source.batch(x, None if y is None else tf.constant(y), rows, start, key, labels, training=training)


def check_batches(subject: Subject) -> None:
    """Attributes and constants describe the batches; targets index the labels of the client."""
    stored, classes = stored_examples(subject)
    for dtype in ("float32", "float64"):
        source = subject.call("build", dtype)
        subject.require(isinstance(source, Input), "`build` must return an Input", type(source).__name__)
        inputs, targets = read_batch(source, stored, all_labels(classes), [4, 1, 2])
        subject.require(inputs.dtype == (source.dtype or dtype), "`dtype` must be that of a batch", inputs.dtype)
        is_valid = targets.dtype == tf.int32 and inputs.shape[0] == targets.shape[0] == 3
        subject.require(is_valid, "a batch needs an int32 target for each row", targets)
        shape = source.shape(stored[0])
        is_described = all(want in (None, have) for want, have in zip(shape, inputs.shape[1:], strict=True))
        subject.require(is_described, "`shape` must be that of a batch", (shape, inputs.shape[1:]))
        starts = list(source.starts(stored[0]))
        subject.require(starts[0] == 0 and starts == sorted(set(starts)), "`starts` must ascend from 0", starts)
    subject.require(len(shape) == len(FORMS[subject.constant("FORM")]), "FORM must be that of `shape`", shape)
    rank = {"label": 1, "positions": 2}[subject.constant("TARGETS")]
    subject.require(targets.shape.rank == rank, "TARGETS must be the form of the targets", targets.shape)
    per_channel = set(subject.constant("PER_CHANNEL") or ())
    is_option = per_channel <= registry.options("inputs", subject.name).keys()
    subject.require(is_option, "PER_CHANNEL must name options", sorted(per_channel))
    table = tf.constant(np.random.default_rng(1).permutation(classes), tf.int32)
    labels = Labels(local=lambda targets: tf.gather(table, targets), count=classes)
    local = read_batch(source, stored, labels, [4, 1, 2])[1]
    subject.require_close(local, tf.gather(table, targets), "targets must be passed through `labels.local`")


def check_pure_batches(subject: Subject) -> None:
    """Batches are a pure function of the key, equal in a graph; clients on a leading axis get their own batches."""
    stored, classes = stored_examples(subject)
    rows, keys = tf.constant([[0, 3, 3], [5, 1, 2]]), tf.constant([[1, 2, 3], [1, 2, 4]])
    choices = {option.name: option.constraint.choices for option in registry.options("inputs", subject.name).values()}
    for options in ({}, *({name: value} for name, values in choices.items() for value in values or ())):
        source = subject.module.build("float32", **{**subject.options, **options})
        for training in (False, True):
            batches = functools.partial(read_batch, source, stored, all_labels(classes), training=training)
            subject.require_rows(batches, rows, keys)
            subject.require_graph(batches, rows, keys, rtol=0)


def _batch_and_starts(subject):
    """A batch of the stored examples, standardized as the program does, and the starts."""
    stored, classes = stored_examples(subject)
    x = stored[0]
    source = subject.call("build", "float64", statistics=(x.mean(0), x.std(0)), rate=8000)
    return read_batch(source, stored, all_labels(classes), [0, 3, 5]), source.starts(x)


RESULTS = {"partitions": lambda subject: split_labels(subject).sha256, "inputs": _batch_and_starts}
CHECKS = {
    "data": (check_dataset,),
    "partitions": (check_clients, check_pure_split, check_held_out, check_impossible_splits),
    "inputs": (check_batches, check_pure_batches),
}
