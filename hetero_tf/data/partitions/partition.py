"""`Partition`, the result of every partitioner: the examples and labels of each client; helpers of partitioners."""

import functools
import hashlib
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hetero_tf.base.errors import InputError
from hetero_tf.base.files import replace_file
from hetero_tf.base.npz_reader import array_names, read_arrays

NAMES = ("train_ids", "train_sizes", "test_ids", "test_sizes", "label_mask", "sha256")
# Only in files of partitions with held-out examples.
OPTIONAL_NAMES = ("held_out_ids", "held_out_sizes")
# Labels per step of `label_mask`.
BLOCK = 2**22


@dataclass(frozen=True, eq=False)
class ClientExamples:
    """A sequence with one int32 array of example ids per client, validated at construction.

    `len`, iteration and `examples[client]` work as for a tuple of arrays; the results are views of `ids`.

    Args:
        ids: int32 `[total]`, the example ids grouped by client.
        starts: int64 `[clients + 1]`, the offset of each client in `ids`; the last one is `total`.

    Raises:
        InputError: An array has a wrong dtype or shape, the starts do not divide the ids, or an id is negative.
    """

    ids: np.ndarray
    starts: np.ndarray

    def __post_init__(self):
        for name, array, dtype in (("ids", self.ids, np.int32), ("starts", self.starts, np.int64)):
            if array.dtype != dtype or array.ndim != 1:
                raise InputError(
                    f"`{name}` must be {np.dtype(dtype)} with one axis. Received: {array.dtype} {array.shape}"
                )
        if not self.starts.size or self.starts[0] or self.starts[-1] != len(self.ids) or (self.sizes < 0).any():
            raise InputError(f"the sizes of the clients must add up to {len(self.ids)}, the number of ids")
        if self.ids.min(initial=0) < 0:
            raise InputError(f"`ids` must be example ids from 0. Received: {self.ids.min()}")

    @classmethod
    def from_sizes(cls, ids: np.ndarray, sizes: np.ndarray) -> "ClientExamples":
        """Split ids int32 `[total]` into clients of the given sizes, int `[clients]`."""
        starts = np.zeros(len(sizes) + 1, np.int64)
        np.cumsum(np.asarray(sizes, np.int64), out=starts[1:])
        return cls(ids, starts)

    @classmethod
    def from_lists(cls, lists: Iterable[np.ndarray]) -> "ClientExamples":
        """Build `ClientExamples` from one int32 `[examples]` array per client; intended for few clients."""
        lists = [np.zeros(0, np.int32), *lists]
        return cls.from_sizes(np.concatenate(lists), np.array([len(ids) for ids in lists[1:]], np.int64))

    @classmethod
    def empty(cls, clients: int) -> "ClientExamples":
        """Build `ClientExamples` of `clients` clients without examples."""
        return cls(np.zeros(0, np.int32), np.zeros(clients + 1, np.int64))

    @property
    def sizes(self) -> np.ndarray:
        """Number of examples of each client: int64 `[clients]`."""
        return np.diff(self.starts)

    @property
    def owners(self) -> np.ndarray:
        """Client of each of `ids`: int32 `[total]`."""
        return np.repeat(np.arange(len(self), dtype=np.int32), self.sizes)

    def __len__(self):
        return len(self.starts) - 1

    def __getitem__(self, client):
        # Without this check, an index out of range would give an empty slice of `ids`.
        if not -len(self) <= client < len(self):
            raise IndexError(f"`client` must be in 0..{len(self) - 1}. Received: client={client}")
        client = client % len(self)
        return self.ids[self.starts[client] : self.starts[client + 1]]

    def __iter__(self):
        return (self.ids[first:end] for first, end in zip(self.starts[:-1], self.starts[1:]))


def label_counts(
    labels: np.ndarray, examples: ClientExamples, classes: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Count the labels of each client as a sparse table.

    Args:
        labels: int `[n]` of images, or int `[rows, length]` of text.
        examples: Example ids of each client.
        classes: Number of labels.

    Returns:
        client, label, count: int64 `[pairs]` each, sorted by client, then by label.
    """
    present = labels[examples.ids]
    owners = examples.owners.astype(np.int64).reshape(-1, *[1] * (present.ndim - 1))
    # A dense table of a million clients or of all words would not fit into memory.
    pairs, counts = np.unique(owners * classes + present, return_counts=True)
    return *np.divmod(pairs, classes), counts


@dataclass(frozen=True)
class Partition:
    """Examples and labels of every client, validated at construction.

    Args:
        train: `ClientExamples`, each client's training example ids.
        test: The same for test examples; all empty for text.
        label_mask: bool `[clients, classes]`, True if the client has the label (or word).
        held_out: `ClientExamples` of the training split reserved for validation; None: all empty.

    Raises:
        InputError: The mask has a wrong dtype or shape, the splits differ in their number of clients, or a held-out
            example is also a training example.
    """

    train: ClientExamples
    test: ClientExamples
    label_mask: np.ndarray
    held_out: ClientExamples = None  # type: ignore[assignment]

    def __post_init__(self):
        mask = self.label_mask
        if mask.dtype != bool or mask.ndim != 2:
            raise InputError(f"`label_mask` must be bool [clients, classes]. Received: {mask.dtype} {mask.shape}")
        if self.held_out is None:
            object.__setattr__(self, "held_out", ClientExamples.empty(len(mask)))
        for name, examples in (("train", self.train), ("test", self.test), ("held_out", self.held_out)):
            if len(examples) != len(mask):
                raise InputError(
                    f"`{name}` must have one entry for each of the {len(mask)} clients of `label_mask`. "
                    f"Received: {len(examples)}"
                )
        if self.held_out.ids.size and (overlap := np.intersect1d(self.train.ids, self.held_out.ids)).size:
            raise InputError(f"`held_out` and `train` must not overlap. Received: example {overlap[0]} in both")

    @functools.cached_property
    def sha256(self) -> str:
        """Hex digest of ids and label mask."""
        digest = hashlib.sha256(repr(self.label_mask.shape).encode())
        for array in _to_arrays(self).values():
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    def summary(self, train_labels: np.ndarray | None = None) -> dict:
        """Return summary statistics of the partition as JSON values.

        Args:
            train_labels: int `[n]`, or int `[rows, length]` of text, see `Dataset.strata`; None: without
                `label_distance`.

        Returns:
            {"clients", "train_examples", "test_examples", "labels" of a client, "one_label_clients", "train_used",
            "test_used", "label_distance"}; examples, labels and distance as {"min", "mean", "std", "max"} over clients.
            The distance between the label distributions of a client and of all clients is their total variation: 0 for
            equal ones, 1 if they have no label in common, 0 for a client without examples. With held-out examples also
            "held_out_examples" and "held_out_used".
        """
        labels, distance, held_out = self.label_mask.sum(axis=1), {}, {}
        if self.held_out.ids.size:
            held_out = {"held_out_examples": _summarise(self.held_out.sizes), "held_out_used": len(self.held_out.ids)}
        if train_labels is not None:
            classes = max(self.label_mask.shape[1], int(train_labels.max()) + 1)
            client, label, count = label_counts(train_labels, self.train, classes)
            sizes = np.bincount(client, weights=count, minlength=len(self.train))
            overall = np.bincount(label, weights=count, minlength=classes) / max(count.sum(), 1)
            # The total variation distance is the sum of positive differences, so absent labels contribute nothing.
            above = np.maximum(count / sizes[client] - overall[label], 0)
            distances = np.bincount(client, weights=above, minlength=len(self.train))
            distance["label_distance"] = _summarise(distances)
        return {
            "clients": len(self.train),
            "train_examples": _summarise(self.train.sizes),
            "test_examples": _summarise(self.test.sizes),
            "labels": _summarise(labels),
            "one_label_clients": int((labels == 1).sum()),
            "train_used": len(self.train.ids),
            "test_used": len(self.test.ids),
            **held_out,
            **distance,
        }

    def save(self, path: Path) -> None:
        """Write the partition as one .npz file, atomically.

        Raises:
            DiskProblem: The operating system failed to write.
        """
        with replace_file(path) as file:
            np.savez_compressed(file, sha256=np.frombuffer(bytes.fromhex(self.sha256), np.uint8), **_to_arrays(self))

    @classmethod
    def load(cls, path: Path | str) -> "Partition":
        """Load a file of `save`.

        Raises:
            InputError: The file is missing, damaged, modified, or has another format.
        """
        names = NAMES + (OPTIONAL_NAMES if set(OPTIONAL_NAMES) <= set(array_names(path)) else ())
        data = read_arrays(path, names)
        try:
            train, test, *held_out = (
                ClientExamples.from_sizes(data[f"{split}_ids"], data[f"{split}_sizes"])
                for split in ("train", "test", "held_out")
                if f"{split}_ids" in data
            )
            partition = cls(train, test, data["label_mask"], *held_out)
        except (InputError, ValueError, TypeError) as error:
            raise InputError(f"{path}: is not a partition: {error}") from error
        if bytes.fromhex(partition.sha256) != data["sha256"].tobytes():
            raise InputError(f"{path}: the content does not match its sha256; write the partition again")
        return partition


def label_mask(labels: np.ndarray, examples: ClientExamples, classes: int) -> np.ndarray:
    """Mark the labels that occur in each client's examples.

    Args:
        labels: int `[n]`; int `[rows, length]` of text, or `[n, height, width]` of label maps; bool `[n, classes]` of
            label sets; or float `[n, classes]`, numbers that every client has.
        examples: Example ids of each client.
        classes: Number of labels.

    Returns:
        bool `[clients, classes]`.
    """
    mask, owners = np.zeros((len(examples), classes), bool), examples.owners
    if labels.dtype.kind == "f":
        return ~mask
    if labels.dtype == bool:
        np.logical_or.at(mask, owners, labels[examples.ids])
        return mask
    # Rows of text are long: gathering all of them would need many times the memory of the data.
    block = max(BLOCK // math.prod(labels.shape[1:]), 1)
    for first in range(0, len(owners), block):
        present = labels[examples.ids[first : first + block]]
        mask[owners[first : first + block].reshape(-1, *[1] * (present.ndim - 1)), present] = True
    return mask


def check_clients(clients: int, examples: int) -> None:
    """Raise `InputError` for a number of clients below 1 or above the number of training examples."""
    if not 1 <= clients <= examples:
        raise InputError(f"`clients` must be in 1..{examples}, the number of examples. Received: clients={clients}")


def _to_arrays(partition):
    arrays, splits = {}, {"train": partition.train, "test": partition.test}
    if partition.held_out.ids.size:
        splits["held_out"] = partition.held_out
    for name, examples in splits.items():
        arrays[f"{name}_ids"], arrays[f"{name}_sizes"] = examples.ids, examples.sizes.astype(np.int32)
    return arrays | {"label_mask": partition.label_mask}


def _summarise(values):
    return {name: getattr(np, name)(values).item() for name in ("min", "mean", "std", "max")}


def check_partition(
    partition: Partition, source: str, train_labels: np.ndarray, test_labels: np.ndarray, classes: int
) -> None:
    """Check that a partition fits the data.

    Args:
        partition: The partition of a file or of a plug-in.
        source: Its name in messages.
        train_labels, test_labels: int `[n]`, or int `[rows, length]` of text.
        classes: Number of labels.

    Raises:
        InputError: It is for data with other labels or fewer examples, or has a client without examples.
    """
    if not isinstance(partition, Partition):
        raise InputError(f"{source}: must be a `Partition`. Received: {type(partition).__name__}")
    if partition.label_mask.shape[1] != classes:
        raise InputError(
            f"{source}: belongs to data with {partition.label_mask.shape[1]} labels. Received: {classes} labels"
        )
    for name, examples, labels in (
        ("train", partition.train, train_labels),
        ("held-out", partition.held_out, train_labels),
        ("test", partition.test, test_labels),
    ):
        highest = int(np.max(examples.ids, initial=-1))
        if highest >= len(labels):
            raise InputError(
                f"{source}: belongs to other data: it refers to {name} example {highest}. Received: {len(labels)}"
            )
    empty = np.flatnonzero(partition.train.sizes == 0)
    if empty.size:
        raise InputError(f"{source}: every client must have a training example. Received: none for client {empty[0]}")
    # Training on a label outside the mask would use a masked logit as target.
    client = np.flatnonzero((label_mask(train_labels, partition.train, classes) & ~partition.label_mask).any(axis=1))
    if client.size:
        raise InputError(
            f"{source}: belongs to other data: client {client[0]} has examples with labels outside its `label_mask`"
        )


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
