"""Forms of the targets of examples, and their classes for partitions and test splits.

The dtype and shape of `Split.y` determine the form:

- "label": one class, int32 `[n]`
- "numbers": float32 `[n, targets]`
- "label_set": any number of labels, bool `[n, labels]`
- "label_map": one class for each pixel, int32 `[n, height, width]`

Text has no `y`; its form is "positions", one word for each position.
"""

import numpy as np

LABEL, NUMBERS, LABEL_SET, LABEL_MAP, POSITIONS = "label", "numbers", "label_set", "label_map", "positions"
DESCRIPTIONS = {
    LABEL: "labels int32 [n]",
    NUMBERS: "numbers float32 [n, targets]",
    LABEL_SET: "sets of labels bool [n, labels]",
    LABEL_MAP: "maps of labels int32 [n, height, width]",
}
# Groups of numbers of equal size, for partitions that divide by labels.
GROUPS = 10


def form_of(y: np.ndarray | None) -> str | None:
    """Return the form of targets; None if they have none of these forms."""
    if y is None:
        return POSITIONS
    forms = {("i", 1): LABEL, ("f", 2): NUMBERS, ("b", 2): LABEL_SET, ("i", 3): LABEL_MAP}
    form = forms.get((y.dtype.kind, y.ndim))
    return form if y.dtype in (np.int32, np.float32, np.bool_) else None


def strata(train: np.ndarray, *others: np.ndarray) -> list[np.ndarray]:
    """Return one class for each example, for partitions and test splits by class.

    Labels are their own classes. Examples with numbers are divided into `GROUPS` by the quantiles of the first number.
    An example with several labels has the rarest of them, and one without labels a further class. A label map has its
    most frequent class, where class 0, the background, counts only if it is the only one. The classes that occur in the
    training split are numbered from 0.

    Args:
        train: Targets of the training split, from which quantiles and frequencies are computed.
        others: Targets of other splits.

    Returns:
        int32 `[n]` of each split; for text the words int32 `[rows, length]` unchanged.
    """
    splits, form = (train, *others), form_of(train)
    if form == NUMBERS:
        edges = np.unique(np.quantile(train[:, 0], np.arange(1, GROUPS) / GROUPS))
        classes = [np.searchsorted(edges, y[:, 0], "right") for y in splits]
    elif form == LABEL_SET:
        order = np.argsort(train.sum(0), kind="stable")
        classes = [np.where(y.any(1), order[y[:, order].argmax(1)], y.shape[1]) for y in splits]
    elif form == LABEL_MAP:
        classes = [np.array([_main_class(one) for one in y]) for y in splits]
    else:
        return list(splits)
    # A class of another split that no training example has becomes a neighbour.
    known = np.unique(classes[0])
    return [np.minimum(np.searchsorted(known, each), len(known) - 1).astype(np.int32) for each in classes]


def _main_class(label_map):
    counts = np.bincount(label_map.reshape(-1))
    return int(counts[1:].argmax() + 1) if counts[1:].any() else 0
