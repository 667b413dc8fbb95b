"""`ClientExamples`: the examples of millions of clients in two arrays, and statistics of their labels."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from hetero_tf.base.errors import InputError


@dataclass(frozen=True, eq=False)
class ClientExamples:
    """A sequence with one int32 array of example ids per client, validated at construction.

    `len`, iteration and `examples[client]` work as for a tuple of arrays; the results are views of `ids`.

    Args:
        ids: int32 `[total]`, the example ids grouped by client.
        starts: int64 `[clients + 1]`, the offset of each client in `ids`; the last one is `total`.
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
    """Count the labels of each client as a sparse table, sorted by client, then by label.

    Returns:
        client, label, count: int64 `[pairs]` each.
    """
    present = labels[examples.ids]
    owners = examples.owners.astype(np.int64).reshape(-1, *[1] * (present.ndim - 1))
    # A dense table of a million clients or of all words would not fit into memory.
    pairs, counts = np.unique(owners * classes + present, return_counts=True)
    return *np.divmod(pairs, classes), counts


def label_distances(labels: np.ndarray, examples: ClientExamples, classes: int) -> np.ndarray:
    """Return the total variation distance of each client's label distribution from that of all, float64 `[clients]`.

    It is 0 for equal distributions and for a client without examples, and 1 if they have no label in common.
    """
    client, label, count = label_counts(labels, examples, classes)
    sizes = np.bincount(client, weights=count, minlength=len(examples))
    overall = np.bincount(label, weights=count, minlength=classes) / max(count.sum(), 1)
    # The total variation distance is the sum of positive differences, so absent labels contribute nothing.
    above = np.maximum(count / sizes[client] - overall[label], 0)
    return np.bincount(client, weights=above, minlength=len(examples))
