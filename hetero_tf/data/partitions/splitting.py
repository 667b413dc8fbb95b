"""Helpers of the partitioners: checks, client sizes, grouping by client, and test examples."""

import numpy as np

from hetero_tf.base.errors import InputError
from hetero_tf.data.partitions.partition import ClientExamples, Partition, check_clients, label_counts, label_mask


def check_labels(name: str, labels: np.ndarray, clients: int) -> None:
    """Raise `InputError` for text, which has no label per example, or too many clients; `name` is the partition."""
    if labels.ndim != 1:
        raise InputError(f"the partition `{name}` needs one label per example, which text does not have; use `iid`")
    check_clients(clients, len(labels))


def check_least(name: str, least: int, examples: int, shares: int, description: str) -> None:
    """Raise `InputError` if `examples` are too few for `shares` of `least` each; `description` names the examples."""
    if not 0 <= least * shares <= examples:
        raise InputError(
            f"`{name}` must be in 0..{examples // shares}: {examples} {description} are split into {shares} shares. "
            f"Received: {name}={least}"
        )


def cut(total: int, count: int, least: int, proportions: np.ndarray | None, rng: np.random.Generator) -> np.ndarray:
    """Split `total` examples into `count` sizes: `least` each, and the rest by `proportions`.

    Args:
        proportions: float `[count]` with sum 1, or None for equal proportions.
        rng: NumPy random generator; the rounding remainder goes to shares drawn with replacement.

    Returns:
        int64 `[count]` with sum `total`.
    """
    rest = total - least * count
    sizes = np.full(count, rest // count) if proportions is None else (proportions * rest).astype(np.int64)
    extra = np.bincount(rng.integers(count, size=rest - sizes.sum()), minlength=count)
    return sizes + extra + least


def group(ids: np.ndarray, owners: np.ndarray, clients: int) -> ClientExamples:
    """Group ids int `[total]` by their clients `owners` int `[total]`; keep the order within a client."""
    order = np.argsort(owners, kind="stable")
    return ClientExamples.from_sizes(ids[order].astype(np.int32), np.bincount(owners, minlength=clients))


def shuffle(examples: ClientExamples, rng: np.random.Generator) -> ClientExamples:
    """Shuffle the ids of each client; ids must be unique."""
    owners = np.empty(examples.ids.max(initial=-1) + 1, np.int32)
    owners[examples.ids] = examples.owners
    # A permutation of all ids is also a random permutation of the ids of each client.
    shuffled = rng.permutation(examples.ids)
    return group(shuffled, owners[shuffled], len(examples))


def hold_out(examples: ClientExamples, share: float, first: bool = False) -> tuple[ClientExamples, ClientExamples]:
    """Hold out int(share * size) examples of every client for validation.

    Args:
        examples: Examples of the clients; shuffle them first for a random choice.
        share: Share of each client's examples, in [0, 1).
        first: Hold out the client's first examples instead of its last ones.

    Returns:
        (train, held_out): two `ClientExamples`.

    Raises:
        InputError: The share is above 0, but too small to hold out an example of any client.
    """
    sizes, owners = examples.sizes, examples.owners
    validation_sizes = (share * sizes).astype(np.int64)
    if share and not validation_sizes.any():
        raise InputError(
            f"`held_out` must be 0, or large enough for one example of the largest client, which has {sizes.max()}. "
            f"Received: held_out={share:g}"
        )
    position = np.arange(len(owners)) - examples.starts[owners]
    is_training = position >= validation_sizes[owners] if first else position < (sizes - validation_sizes)[owners]
    return ClientExamples.from_sizes(examples.ids[is_training], sizes - validation_sizes), ClientExamples.from_sizes(
        examples.ids[~is_training], validation_sizes
    )


def ranges(firsts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Concatenate the ranges `first, ..., first + length - 1`: int64 `[sum of lengths]`."""
    ends = np.cumsum(lengths)
    return np.repeat(firsts - ends + lengths, lengths) + np.arange(lengths.sum())


def shuffle_within_labels(labels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return the ids of examples in the order of their labels, and at random within each label: int `[n]`."""
    shuffled = rng.permutation(len(labels))
    return shuffled[np.argsort(labels[shuffled], kind="stable")]


def build_partition(
    assigned: ClientExamples,
    held_out: float,
    test: str | ClientExamples,
    train_labels: np.ndarray,
    test_labels: np.ndarray,
    classes: int,
    rng: np.random.Generator,
    first: bool = False,
) -> Partition:
    """Return the partition of assigned training examples, of which each client has the labels.

    Args:
        assigned: Training examples of the clients, with those for validation.
        held_out, first: See `hold_out`.
        test: Test examples of the clients, or how to assign every one to a client: "own": each label is divided in
            proportion to the clients' training examples of it; "equal": equal numbers at random; "contiguous": equal
            numbers in data order, as in FeDepth and SplitMix. Clients get no test rows of text.
        train_labels, test_labels, classes, rng: Arguments of a partitioner.

    Raises:
        InputError: A client has no training example.
    """
    empty = np.flatnonzero(assigned.sizes == 0)
    if empty.size:
        raise InputError(
            f"{empty.size} of {len(assigned)} clients have no training example, the first is client {empty[0]}; use "
            "fewer clients, more equal sizes or a larger `least`"
        )
    train, validation = hold_out(assigned, held_out, first)
    if isinstance(test, ClientExamples):
        tests = test
    elif test_labels.ndim != 1:
        tests = ClientExamples.empty(len(train))
    elif test == "own":
        tests = _split_by_client_labels(train_labels, test_labels, classes, train, rng)
    else:
        total = len(test_labels)
        ids = rng.permutation(total) if test == "equal" else np.arange(total)
        tests = ClientExamples.from_sizes(ids.astype(np.int32), cut(total, len(train), 0, None, rng))
    return Partition(train, tests, label_mask(train_labels, train, classes), validation)


def _split_by_client_labels(train_labels, test_labels, classes, train, rng):
    counts = label_counts(train_labels, train, classes)
    client, label, count = (each[np.argsort(counts[1], kind="stable")] for each in counts)
    totals = np.bincount(label, weights=count, minlength=classes)
    share = (np.cumsum(count) - (np.cumsum(totals) - totals)[label]) / totals[label]
    available = np.bincount(test_labels, minlength=classes)
    # A random offset for each label makes the expected numbers exactly proportional, even for few examples.
    ends = np.minimum(share * available[label] + rng.random(classes)[label], available[label]).astype(np.int64)
    starts = np.where(np.diff(label, prepend=-1) > 0, 0, np.roll(ends, 1))
    shuffled = shuffle_within_labels(test_labels, rng)
    positions = ranges((np.cumsum(available) - available)[label] + starts, ends - starts)
    return group(shuffled[positions], np.repeat(client, ends - starts), len(train))
