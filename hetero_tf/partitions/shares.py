"""The examples of every client in two arrays, so that a million clients are not a million objects."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from hetero_tf.base.errors import InputError


@dataclass(frozen=True, eq=False)
class ClientExamples:
    """A sequence with one int32 array of example ids for each client, checked when made.

    `len`, iteration and `shares[client]` work as on a tuple of arrays; what comes back are views of `ids`.

    Args:
        ids: int32 `[total]`, the clients' example ids one client after the other.
        starts: int64 `[clients + 1]`, where each client begins in `ids`; the last one is `total`.

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
            raise InputError(
                f"`starts` must ascend from 0 to the number of ids, {len(self.ids)}. "
                f"Received: {self.starts[:3].tolist()} to {self.starts[-1:].tolist()}"
            )
        if self.ids.size and self.ids.min() < 0:
            index = int(np.argmax(self.ids < 0))
            client = int(np.searchsorted(self.starts, index, side="right")) - 1
            raise InputError(f"`ids` must be example ids from 0. Received: {self.ids[index]} of client {client}")

    @classmethod
    def from_sizes(cls, ids: np.ndarray, sizes: np.ndarray) -> "ClientExamples":
        """Cuts int32 `[total]` ids into clients with so many examples each; sizes: int `[clients]`."""
        starts = np.zeros(len(sizes) + 1, np.int64)
        np.cumsum(np.asarray(sizes, np.int64), out=starts[1:])
        return cls(ids, starts)

    @classmethod
    def from_lists(cls, lists: Iterable[np.ndarray]) -> "ClientExamples":
        """Makes `ClientExamples` from one int32 `[examples]` array for each client, for few clients.

        Raises:
            InputError: An array has another dtype or shape, or an id is negative.
        """
        lists = [np.asarray(ids) for ids in lists]
        for client, ids in enumerate(lists):
            if ids.dtype != np.int32 or ids.ndim != 1:
                raise InputError(
                    "`lists` must hold int32 [examples] for each client. "
                    f"Received: {ids.dtype} {ids.shape} of client {client}"
                )
        return cls.from_sizes(
            np.concatenate([np.zeros(0, np.int32), *lists]), np.array([len(ids) for ids in lists], np.int64)
        )

    @classmethod
    def empty(cls, clients: int) -> "ClientExamples":
        """Makes `clients` clients without examples."""
        return cls(np.zeros(0, np.int32), np.zeros(clients + 1, np.int64))

    @property
    def sizes(self) -> np.ndarray:
        """How many examples each client has: int64 `[clients]`."""
        return np.diff(self.starts)

    @property
    def owners(self) -> np.ndarray:
        """The client of each of `ids`: int32 `[total]`."""
        return np.repeat(np.arange(len(self), dtype=np.int32), self.sizes)

    def __len__(self):
        return len(self.starts) - 1

    def __getitem__(self, client):
        # A slice of `ids` beyond its end would be a client without examples instead of an error.
        if not -len(self) <= client < len(self):
            raise IndexError(f"`client` must be in 0..{len(self) - 1}. Received: client={client}")
        client = client % len(self)
        return self.ids[self.starts[client] : self.starts[client + 1]]

    def __iter__(self):
        return (self.ids[first:end] for first, end in zip(self.starts[:-1], self.starts[1:]))
