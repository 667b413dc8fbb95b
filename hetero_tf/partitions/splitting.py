"""What several ways of splitting have in common: checks, sizes, grouping by client, and test examples."""

import numpy as np

from hetero_tf.base.errors import InputError
from hetero_tf.partitions.shares import ClientExamples
from hetero_tf.partitions.statistics import label_counts


def check_images(name: str, labels: np.ndarray) -> None:
    """Refuses text, which has no label for each example, in the partition of that name."""
    if labels.ndim != 1:
        raise InputError(f"the partition `{name}` needs one label for each example, which text has not; use `iid`")


def check_least(name: str, least: int, examples: int, shares: int, what: str) -> None:
    """Refuses to cut so many examples into shares of at least `least`; `what` says which examples they are."""
    if not 0 <= least * shares <= examples:
        raise InputError(
            f"`{name}` must be in 0..{examples // shares}: {examples} {what} are cut into {shares} shares. "
            f"Received: {name}={least}"
        )


def check_all_served(train: ClientExamples, advice: str) -> None:
    """Refuses training `ClientExamples` in which a client has no example; `advice` says what to change."""
    empty = np.flatnonzero(train.sizes == 0)
    if empty.size:
        raise InputError(
            f"{empty.size} of {len(train)} clients got no training example, the first of them client "
            f"{empty[0]}; {advice}"
        )


def cut(total: int, count: int, least: int, parts: np.ndarray | None, rng: np.random.Generator) -> np.ndarray:
    """Cuts `total` examples into `count` sizes: `least` each, the rest by `parts`.

    Args:
        parts: float `[count]` that add up to 1, or None for equal ones.
        rng: NumPy generator; what rounding leaves goes one by one to shares drawn with replacement.

    Returns:
        int64 `[count]`, which add up to `total`.
    """
    rest = total - least * count
    sizes = np.full(count, rest // count) if parts is None else (parts * rest).astype(np.int64)
    extra = np.bincount(rng.integers(count, size=rest - sizes.sum()), minlength=count)
    return sizes + extra + least


def group(ids: np.ndarray, owners: np.ndarray, clients: int) -> ClientExamples:
    """Returns the `ClientExamples` of ids int `[total]` that belong to `owners` int `[total]`, in the same order."""
    order = np.argsort(owners, kind="stable")
    return ClientExamples.from_sizes(ids[order].astype(np.int32), np.bincount(owners, minlength=clients))


def shuffle(shares: ClientExamples, rng: np.random.Generator) -> ClientExamples:
    """Returns the same `ClientExamples` with every client's ids in random order; no id may occur twice."""
    owners = np.empty(shares.ids.max(initial=-1) + 1, np.int32)
    owners[shares.ids] = shares.owners
    # Of one permutation of all ids, the ids of each client are a permutation of theirs.
    mixed = rng.permutation(shares.ids)
    return group(mixed, owners[mixed], len(shares))


def hold_out(shares: ClientExamples, share: float, first: bool = False) -> tuple[ClientExamples, ClientExamples]:
    """Divides every client's examples into those that it trains on and int(share * size) that nobody trains on.

    Args:
        shares: `ClientExamples`, in random order where the choice shall be random.
        share: Part of each client's examples, in [0, 1).
        first: Whether they are the client's first examples instead of its last ones.

    Returns:
        (train, held_out): two `ClientExamples`.

    Raises:
        InputError: The share is above 0, but no client has enough examples to hold one out.
    """
    sizes, owners = shares.sizes, shares.owners
    withheld = (share * sizes).astype(np.int64)
    if share and not withheld.any():
        raise InputError(
            f"`held_out` must be 0, or large enough that a client holds an example out: the largest has {sizes.max()}. "
            f"Received: held_out={share:g}"
        )
    position = np.arange(len(owners)) - shares.starts[owners]
    stays = position >= withheld[owners] if first else position < (sizes - withheld)[owners]
    return ClientExamples.from_sizes(shares.ids[stays], sizes - withheld), ClientExamples.from_sizes(
        shares.ids[~stays], withheld
    )


def ranges(firsts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Returns `first, first + 1, ...` so many times for each first, one after the other: int64 `[sum of lengths]`."""
    ends = np.cumsum(lengths)
    return np.repeat(firsts - ends + lengths, lengths) + np.arange(lengths.sum())


def deal_test(
    test: str,
    train_labels: np.ndarray,
    test_labels: np.ndarray,
    classes: int,
    train: ClientExamples,
    rng: np.random.Generator,
) -> ClientExamples:
    """Deals test examples to every client, each of them once.

    Args:
        test: "own": each label is cut in proportion to the clients' training examples of it; "equal": equal numbers
            at random; "contiguous": equal numbers in the order of the data, as FeDepth and SplitMix cut.
        train_labels, test_labels: int `[n]` each; of text no client gets a test row.
        classes: Number of labels.
        train: `ClientExamples` of training examples.
        rng: NumPy generator.

    Returns:
        `ClientExamples` of test ids.
    """
    clients, total = len(train), len(test_labels)
    if test_labels.ndim != 1:
        return ClientExamples.empty(clients)
    if test == "own":
        return _by_own_labels(train_labels, test_labels, classes, train, rng)
    ids = rng.permutation(total) if test == "equal" else np.arange(total)
    return ClientExamples.from_sizes(ids.astype(np.int32), cut(total, clients, 0, None, rng))


def _by_own_labels(train_labels, test_labels, classes, train, rng):
    client, label, count = label_counts(train_labels, train, classes)
    order = np.argsort(label, kind="stable")
    client, label, count = client[order], label[order], count[order]
    totals = np.bincount(label, weights=count, minlength=classes)
    share = (np.cumsum(count) - (np.cumsum(totals) - totals)[label]) / totals[label]
    available = np.bincount(test_labels, minlength=classes)
    # A random start for each label makes the expected number exactly proportional, however few there are.
    ends = np.minimum(share * available[label] + rng.random(classes)[label], available[label]).astype(np.int64)
    starts = np.where(np.diff(label, prepend=-1) > 0, 0, np.roll(ends, 1))
    mixed = rng.permutation(len(test_labels))
    mixed = mixed[np.argsort(test_labels[mixed], kind="stable")]
    positions = ranges((np.cumsum(available) - available)[label] + starts, ends - starts)
    return group(mixed[positions], np.repeat(client, ends - starts), len(train))
