"""What every way of splitting returns: which client has which examples and which labels."""

import functools
import hashlib
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hetero_tf.base.errors import InputError
from hetero_tf.base.files import replacing
from hetero_tf.base.npz_reader import array_names, read_arrays
from hetero_tf.partitions.shares import ClientExamples
from hetero_tf.partitions.statistics import label_distances

NAMES = ("train_ids", "train_sizes", "test_ids", "test_sizes", "label_mask", "sha256")
# Only in files of partitions that hold examples out; earlier versions did not keep these.
HELD_OUT = ("held_out_ids", "held_out_sizes")
# Labels that `label_mask` looks at at once.
BLOCK = 2**22


@dataclass(frozen=True)
class Partition:
    """Examples and labels of every client, checked when made.

    Args:
        train: `ClientExamples`, each client's training example ids.
        test: The same for test examples; all empty for text.
        label_mask: bool `[clients, classes]`, true where the client has the label (or word).
        held_out: `ClientExamples` of the training split that nobody trains on, for validation; None: all empty.

    Raises:
        InputError: The mask has a wrong dtype or shape, the parts differ in their number of clients, or a held-out
            example is trained on.
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
        for name, shares in (("train", self.train), ("test", self.test), ("held_out", self.held_out)):
            if not isinstance(shares, ClientExamples):
                raise InputError(
                    f"`{name}` must be `ClientExamples`; `ClientExamples.from_lists` makes them of arrays. "
                    f"Received: {type(shares).__name__}"
                )
            if len(shares) != len(mask):
                raise InputError(
                    f"`{name}` must have one share for each of the {len(mask)} clients of `label_mask`. "
                    f"Received: {len(shares)}"
                )
        both = np.intersect1d(self.train.ids, self.held_out.ids) if self.held_out.ids.size else ()
        if len(both):
            raise InputError(
                f"`held_out` must be examples that nobody trains on. Received: {both[0]}, which is in `train`"
            )

    @functools.cached_property
    def sha256(self) -> str:
        """The hex digest of ids and label mask."""
        digest = hashlib.sha256(repr(self.label_mask.shape).encode())
        for array in _flat(self).values():
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    def summary(self, train_labels: np.ndarray | None = None) -> dict:
        """Returns numbers that describe the split, ready for JSON.

        Args:
            train_labels: int `[n]` of images, or int `[rows, length]` of text; None: without `label_distance`.

        Returns:
            {"clients", "train_examples", "test_examples", "labels" of a client, "one_label_clients", "train_used",
            "test_used", "label_distance"}; examples, labels and distance (`statistics.label_distances`) as
            {"min", "mean", "std", "max"} over clients. Where examples are held out, also "held_out_examples" and
            "held_out_used".
        """
        labels, distance, held_out = self.label_mask.sum(axis=1), {}, {}
        if self.held_out.ids.size:
            held_out = {"held_out_examples": _spread(self.held_out.sizes), "held_out_used": len(self.held_out.ids)}
        if train_labels is not None:
            distance["label_distance"] = _spread(label_distances(train_labels, self.train, self.label_mask.shape[1]))
        return {
            "clients": len(self.train),
            "train_examples": _spread(self.train.sizes),
            "test_examples": _spread(self.test.sizes),
            "labels": _spread(labels),
            "one_label_clients": int((labels == 1).sum()),
            "train_used": len(self.train.ids),
            "test_used": len(self.test.ids),
            **held_out,
            **distance,
        }

    def save(self, path: Path) -> None:
        """Writes the partition as one .npz file: whole or not at all.

        Raises:
            DiskProblem: The operating system refused to write.
        """
        with replacing(path) as file:
            np.savez_compressed(file, sha256=np.frombuffer(bytes.fromhex(self.sha256), np.uint8), **_flat(self))

    @classmethod
    def load(cls, path: Path | str) -> "Partition":
        """Reads what `save` wrote.

        Raises:
            InputError: The file is missing, damaged, changed, or something else.
        """
        names = NAMES + (HELD_OUT if set(HELD_OUT) <= set(array_names(path)) else ())
        data = read_arrays(path, names)
        expected = dict.fromkeys(names, (1, np.int32)) | {"label_mask": (2, np.bool_), "sha256": (1, np.uint8)}
        for name, (axes, dtype) in expected.items():
            if data[name].ndim != axes or data[name].dtype != dtype:
                raise InputError(
                    f"{path}: {name} must be {np.dtype(dtype)} with {axes} axes. "
                    f"Received: {data[name].dtype} {data[name].shape}"
                )
        held_out = _shares(path, data, "held_out") if names != NAMES else ClientExamples.empty(len(data["label_mask"]))
        partition = cls(_shares(path, data, "train"), _shares(path, data, "test"), data["label_mask"], held_out)
        if bytes.fromhex(partition.sha256) != data["sha256"].tobytes():
            raise InputError(
                f"{path}: the content differs from its sha256, so the file was changed or damaged; "
                "write the partition again"
            )
        return partition


def label_mask(labels: np.ndarray, shares: ClientExamples, classes: int) -> np.ndarray:
    """Returns which labels occur in each client's examples.

    Args:
        labels: int `[n]` of images, or int `[rows, length]` of text.
        shares: `ClientExamples`, each client's example ids.
        classes: Number of labels.

    Returns:
        bool `[clients, classes]`.
    """
    mask, owners = np.zeros((len(shares), classes), bool), shares.owners
    # Rows of text are long: all of them at once would need many times the memory of the data.
    block = max(BLOCK // math.prod(labels.shape[1:]), 1)
    for first in range(0, len(owners), block):
        present = labels[shares.ids[first : first + block]]
        mask[owners[first : first + block].reshape(-1, *[1] * (present.ndim - 1)), present] = True
    return mask


def check_clients(clients: int, examples: int) -> None:
    """Refuses a number of clients below 1 or above the number of training examples."""
    if not 1 <= clients <= examples:
        raise InputError(
            f"`clients` must be in 1..{examples}, the number of training examples (rows of text). "
            f"Received: clients={clients}"
        )


def _flat(partition):
    """The arrays of the file: the clients' ids one after the other, with their numbers."""
    flat, parts = {}, {"train": partition.train, "test": partition.test}
    # Without them file and digest are those of earlier versions.
    if partition.held_out.ids.size:
        parts["held_out"] = partition.held_out
    for name, shares in parts.items():
        flat[f"{name}_ids"], flat[f"{name}_sizes"] = shares.ids, shares.sizes.astype(np.int32)
    return flat | {"label_mask": partition.label_mask}


def _shares(path, data, name):
    ids, sizes = data[f"{name}_ids"], data[f"{name}_sizes"]
    total = int(sizes.sum(dtype=np.int64))
    if (sizes < 0).any() or total != len(ids):
        raise InputError(f"{path}: {name}_sizes must add up to the {len(ids)} ids of {name}_ids. Received: {total}")
    return ClientExamples.from_sizes(ids, sizes)


def _spread(values):
    return {
        "min": np.min(values).item(),
        "mean": float(np.mean(values)),
        "std": float(np.std(values)),
        "max": np.max(values).item(),
    }
