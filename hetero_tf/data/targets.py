"""Forms of the targets of examples: each class has all that depends on one form, from its checks to its predictions.

The dtype and shape of `Split.y` determine the form.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from hetero_tf.base.errors import InputError
from hetero_tf.base.formatting import LINE, join_items, shorten
from hetero_tf.data.inspection import MAX_COLUMNS, outlier

LABEL, NUMBERS, LABEL_SET, LABEL_MAP, POSITIONS = "label", "numbers", "label_set", "label_map", "positions"
SEVERAL_TARGETS = "several_targets"
# Statistics of numbers: the mean and the standard deviation of each of them.
Rows = tuple[tuple[float, ...], tuple[float, ...]]
# Share of a class of the test examples that is worth a warning, and classes in one line.
MAX_MAJORITY, MAX_CLASSES = 0.6, 8
# Groups of numbers of equal size, for partitions that divide by labels.
GROUPS = 10
# Field of a prediction with the path of its label map, see `export.predictions`.
MAP = "map"
# Most likely words of a position, and the word that hides another.
TOP, MASK = 5, "<mask>"
LAST_VALUE = "the last value of the window"


class BaseTargets:
    """Defaults of a form of targets.

    Attributes:
        DTYPE, NDIM: Type and number of axes of `Split.y`; None if there is none.
        DESCRIPTION: The stored targets, for messages.
        RANKED: Names of the fields of a prediction that has a value for each of the likeliest classes; else none.
    """

    DTYPE: ClassVar[Any]
    NDIM: ClassVar[int]
    DESCRIPTION: ClassVar[str]
    RANKED: ClassVar[tuple[str, ...]] = ("class", "probability")

    def check(self, location: str, split: Any, dataset: Any) -> None:
        """Raise `InputError` for targets of this form with invalid values."""

    def strata(self, train: np.ndarray, *others: np.ndarray) -> list[np.ndarray]:
        """Return one class for each example of each split, see `targets.strata`."""
        return [train, *others]

    def describe(self, dataset: Any) -> list[str]:
        """Return lines of at most 80 characters about the training targets."""
        return []

    def warn(self, dataset: Any, clients: int) -> list[str]:
        """Return sentences about targets that a model cannot learn well."""
        return []

    def baseline(self, dataset: Any) -> tuple[str, float, str]:
        """Return `(metric, its value on the test examples, prediction)` of a simple prediction."""
        raise NotImplementedError

    def draw(self, labels: np.ndarray, classes: int, shape: Sequence[int], statistics: Rows | None) -> Any:
        """Return targets in which all classes occur.

        Args:
            labels: Class of each example, int32 `[n]`.
            classes: Number of classes or targets.
            shape: Shape of the stored examples.
            statistics: Statistics of numbers.
        """
        return labels

    def names(self, class_names: Sequence[str], classes: int, top: int) -> tuple[str, ...]:
        """Return the names of the fields of a prediction, most likely first.

        Args:
            class_names: Names of the classes or targets.
            classes: Their number.
            top: Maximum number of classes or words.
        """
        suffixes = ["", *(f"_{rank}" for rank in range(2, min(top, classes) + 1))]
        return tuple(name + suffix for suffix in suffixes for name in self.RANKED) or tuple(class_names)

    def read(self, outputs: Mapping[str, np.ndarray], class_names: Sequence[str], count: int) -> list[Any]:
        """Return the values of the fields of a prediction; a map may have fewer classes than ranks.

        Args:
            outputs: Outputs of the signature for one item, NumPy arrays without the batch axis.
            class_names: Names of the classes or targets.
            count: Number of ranks.

        Raises:
            InputError: The item is invalid for the model, such as a text without a word.
        """
        raise NotImplementedError

    def format(self, fields: Mapping[str, Any]) -> str:
        """Return the fields of a prediction as one line, such as "cat 93.1 %, dog 4.2 %"."""
        values = [value if isinstance(value, list) else [value] for value in fields.values() if value is not None]
        rankings = zip(*(zip(names, shares) for names, shares in zip(values[::2], values[1::2])))
        return "; ".join(", ".join(f"{name} {100 * share:.1f} %" for name, share in ranking) for ranking in rankings)


class LabelTargets(BaseTargets):
    """One class for each example."""

    DTYPE, NDIM = np.int32, 1
    DESCRIPTION = "labels int32 [n]"

    def check(self, location: str, split: Any, dataset: Any) -> None:
        check_range(location, "label", split.y, dataset.classes)

    def describe(self, dataset: Any) -> list[str]:
        counts = _count_classes(dataset)
        total, order = int(counts.sum()), np.argsort(-counts, kind="stable")
        names = [class_name(dataset, int(label)) for label in order]
        shares = [f"{100 * counts[label] / total:.1f} %" for label in order]
        if len(names) <= MAX_CLASSES:
            return [join_items("classes: ", list(map(" ".join, zip(names, shares))), f" of {total:,} examples")]
        if counts.min() == counts.max():
            return [f"classes: {len(names):,} with {counts[0]:,} examples each"]
        extent = f"from {shares[-1]} ({names[-1]}) to {shares[0]} ({names[0]})"
        return [shorten(f"classes: {len(names):,}, {extent} of {total:,} examples", LINE)]

    def warn(self, dataset: Any, clients: int) -> list[str]:
        warnings, counts = [], _count_classes(dataset)
        rare = np.flatnonzero(counts < clients)
        if len(rare):
            name, count = class_name(dataset, int(rare[0])), counts[rare[0]]
            examples = f"{count:,} training example" + "s" * int(count != 1)
            warnings.append(
                f"class {name} has only {examples} for {clients:,} clients"
                if len(rare) == 1
                else f"{len(rare):,} classes have fewer training examples than there are clients, such as {name} with "
                f"{count:,} for {clients:,}"
            )
        name, share = _majority(dataset)
        if share > MAX_MAJORITY:
            warnings.append(f"always predicting {name} has an accuracy of {100 * share:.1f} % on the test examples")
        return warnings

    def baseline(self, dataset: Any) -> tuple[str, float, str]:
        name, share = _majority(dataset)
        return "global_accuracy", 100 * share, f"{name}, the most frequent class"

    def read(self, outputs: Mapping[str, np.ndarray], class_names: Sequence[str], count: int) -> list[Any]:
        _check_item(outputs["class"] >= 0)
        numbers = outputs["probabilities"]
        # The predicted class of ordered classes is a median, which may not be the most probable one.
        best = sorted(np.argsort(-numbers, kind="stable"), key=lambda index: index != outputs["class"])
        return _rank([class_names[index] for index in best], numbers[best], count)


def _majority(dataset):
    """Return the most frequent class of the training examples, and its share of the test examples."""
    label = int(_count_classes(dataset).argmax())
    return class_name(dataset, label), float(np.mean(dataset.test.y == label))


def _count_classes(dataset):
    return np.bincount(dataset.train.y, minlength=dataset.classes)


class NumberTargets(BaseTargets):
    """One or more numbers for each example."""

    DTYPE, NDIM = np.float32, 2
    DESCRIPTION, RANKED = "numbers float32 [n, targets]", ()

    def check(self, location: str, split: Any, dataset: Any) -> None:
        _check_width(location, split, dataset)
        if not np.isfinite(split.y).all():
            row, column = np.argwhere(~np.isfinite(split.y))[0]
            raise InputError(f"{location}: targets must be finite. Received: {split.y[row, column]} in row {row}")

    def strata(self, train: np.ndarray, *others: np.ndarray) -> list[np.ndarray]:
        edges = np.unique(np.quantile(train[:, 0], np.arange(1, GROUPS) / GROUPS))
        return _number_classes([np.searchsorted(edges, y[:, 0], "right") for y in (train, *others)])

    def describe(self, dataset: Any) -> list[str]:
        y = dataset.train.y
        statistics = zip(_target_names(dataset), y.min(0), y.max(0), *dataset.target_statistics)
        lines = [
            f"target: {shorten(name)}, {low:.6g} to {high:.6g}, mean {mean:.4g}, standard deviation {std:.4g}"
            for name, low, high, mean, std in statistics
        ]
        more = [f"  and {len(lines) - MAX_COLUMNS:,} more targets"] if len(lines) > MAX_COLUMNS else []
        return lines[:MAX_COLUMNS] + more

    def warn(self, dataset: Any, clients: int) -> list[str]:
        columns = zip(_target_names(dataset), dataset.train.y.T, *dataset.target_statistics)
        return list(filter(None, (outlier(f"target {shorten(name)!r}", *values) for name, *values in columns)))

    def baseline(self, dataset: Any) -> tuple[str, float, str]:
        mean, _ = dataset.target_statistics
        predictions = {"the mean of the training examples": mean, **_last_values(dataset)}
        if getattr(dataset.codec, "base_channels", None) is not None:
            predictions = {f"{LAST_VALUE} and the mean change": mean, LAST_VALUE: 0.0}
        errors = {name: float(np.sqrt(np.mean((dataset.test.y - y) ** 2))) for name, y in predictions.items()}
        best = min(errors, key=errors.__getitem__)
        return "rmse", errors[best], best

    def draw(self, labels: np.ndarray, classes: int, shape: Sequence[int], statistics: Any) -> np.ndarray:
        mean, std = np.array(statistics)
        return (mean + std * np.linspace(-1, 1, len(labels))[:, None]).astype(np.float32)

    def read(self, outputs: Mapping[str, np.ndarray], class_names: Sequence[str], count: int) -> list[Any]:
        _check_item(~np.isnan(outputs["values"]))
        return list(map(_shortest_number, outputs["values"]))

    def format(self, fields: Mapping[str, Any]) -> str:
        return ", ".join(f"{name} {value:.6g}" for name, value in fields.items())


def _target_names(dataset):
    return dataset.class_names or [str(index) for index in range(dataset.classes)]


def _last_values(dataset):
    """Return the last values of the test windows as predictions by name; empty if the targets are not forecasts."""
    channels = getattr(dataset.codec, "channels", None)
    if channels is None or dataset.class_names is None:
        return {}
    forecasts = [name.rpartition(" +")[0] for name in dataset.class_names]
    if not set(forecasts) <= set(channels):
        return {}
    return {LAST_VALUE: dataset.test.x[:, -1, [channels.index(name) for name in forecasts]]}


class LabelSetTargets(BaseTargets):
    """Any number of labels for each example."""

    DTYPE, NDIM = np.bool_, 2
    DESCRIPTION = "sets of labels bool [n, labels]"

    def check(self, location: str, split: Any, dataset: Any) -> None:
        _check_width(location, split, dataset)

    def strata(self, train: np.ndarray, *others: np.ndarray) -> list[np.ndarray]:
        order = np.argsort(train.sum(0), kind="stable")
        return _number_classes([np.where(y.any(1), order[y[:, order].argmax(1)], y.shape[1]) for y in (train, *others)])

    def describe(self, dataset: Any) -> list[str]:
        shares = dataset.train.y.mean(0)
        items = [f"{class_name(dataset, int(label))} {100 * shares[label]:.1f} %" for label in np.argsort(-shares)]
        return [join_items("labels: ", items, f" of {len(dataset.train.y):,} examples")]

    def baseline(self, dataset: Any) -> tuple[str, float, str]:
        # The most frequent labels, as many as have the best micro F1 on the training examples.
        order = np.argsort(-dataset.train.y.mean(0), kind="stable")
        labels = max((order[:count] for count in range(1, len(order) + 1)), key=lambda some: _f1(dataset.train.y, some))
        names = ", ".join(class_name(dataset, int(label)) for label in labels[:MAX_CLASSES])
        return "micro_f1", 100 * _f1(dataset.test.y, labels), f"{names}{', ...' * (len(labels) > MAX_CLASSES)}"

    def draw(self, labels: np.ndarray, classes: int, shape: Sequence[int], statistics: Any) -> np.ndarray:
        return labels[:, None] == np.arange(classes)

    def names(self, class_names: Sequence[str], classes: int, top: int) -> tuple[str, ...]:
        return "labels", "probabilities"

    def read(self, outputs: Mapping[str, np.ndarray], class_names: Sequence[str], count: int) -> list[Any]:
        values = outputs["probabilities"]
        _check_item(~np.isnan(values))
        present = [index for index in np.argsort(-values, kind="stable") if outputs["labels"][index] == 1]
        return [[class_names[index] for index in present], [_shortest_number(values[index]) for index in present]]

    def format(self, fields: Mapping[str, Any]) -> str:
        labels = zip(fields["labels"], fields["probabilities"])
        return ", ".join(f"{name} {100 * share:.1f} %" for name, share in labels) or "no label"


def _f1(sets, labels):
    return 2 * sets[:, labels].sum() / max(len(labels) * len(sets) + sets.sum(), 1)


class LabelMapTargets(BaseTargets):
    """One class for each pixel of an image."""

    DTYPE, NDIM = np.int32, 3
    DESCRIPTION = "maps of labels int32 [n, height, width]"
    RANKED = ("class", "share")

    def check(self, location: str, split: Any, dataset: Any) -> None:
        check_range(location, "label", split.y, dataset.classes)
        if split.y.shape[1:] != split.x.shape[1:3]:
            raise InputError(f"{location}: label maps must have the size of the images. Received: {split.y.shape[1:]}")

    def strata(self, train: np.ndarray, *others: np.ndarray) -> list[np.ndarray]:
        return _number_classes([np.array([_main_class(one) for one in y]) for y in (train, *others)])

    def baseline(self, dataset: Any) -> tuple[str, float, str]:
        label = int(np.bincount(dataset.train.y.reshape(-1)).argmax())
        occurring = {label, *np.unique(dataset.test.y).tolist()}
        iou = float(np.mean(dataset.test.y == label)) / len(occurring)
        return "mean_iou", 100 * iou, f"{class_name(dataset, label)}, the most frequent class"

    def draw(self, labels: np.ndarray, classes: int, shape: Sequence[int], statistics: Any) -> np.ndarray:
        return np.broadcast_to(labels[:, None, None], shape[:3]).copy()

    def read(self, outputs: Mapping[str, np.ndarray], class_names: Sequence[str], count: int) -> list[Any]:
        _check_item(outputs["class"] >= 0)
        counts = np.bincount(outputs["class"].reshape(-1), minlength=len(class_names))
        shares = (counts / outputs["class"].size).astype(np.float32)
        best = np.argsort(-shares, kind="stable")[: np.count_nonzero(counts)]
        return _rank([class_names[index] for index in best], shares[best], count)

    def format(self, fields: Mapping[str, Any]) -> str:
        return super().format({name: value for name, value in fields.items() if name != MAP})


def _main_class(label_map):
    counts = np.bincount(label_map.reshape(-1))
    return int(counts[1:].argmax() + 1) if counts[1:].any() else 0


class PositionTargets(BaseTargets):
    """One word at each position of a text: the words themselves, which the input may hide, or the next ones."""

    DTYPE, NDIM = None, 0
    DESCRIPTION = "no labels"
    RANKED = ("word", "probability")

    def check(self, location: str, split: Any, dataset: Any) -> None:
        if dataset.codec.KIND != "text":
            example = dataset.codec.EXAMPLE
            raise InputError(f"{location}: expected {find(LABEL).DESCRIPTION}, one per {example}. Received: none")
        check_range(location, "word id", split.x, dataset.classes)
        words = dataset.codec.vocabulary
        if words is not None and len(words) != dataset.classes:
            raise InputError(
                f"{dataset.source}: `vocabulary` must have one entry per class. Received: {len(words)} entries, "
                f"classes={dataset.classes}"
            )

    def baseline(self, dataset: Any) -> tuple[str, float, str]:
        counts = np.bincount(dataset.train.x.reshape(-1), minlength=dataset.classes) + 1.0
        loss = -np.log(counts / counts.sum())[dataset.test.x.reshape(-1)].mean()
        return "global_perplexity", float(np.exp(loss)), f"{dataset.codec.tokenizer} by their frequency"

    def draw(self, labels: np.ndarray, classes: int, shape: Sequence[int], statistics: Any) -> None:
        return None

    def names(self, class_names: Sequence[str], classes: int, top: int) -> tuple[str, ...]:
        return super().names(class_names, classes, min(top, TOP))

    def read(self, outputs: Mapping[str, np.ndarray], class_names: Sequence[str], count: int) -> list[Any]:
        """Return the likeliest next words, or lists with an entry for each `<mask>`."""
        if "next_words" in outputs:
            if not outputs["lengths"]:
                raise InputError("the beginning of a sentence must contain a word")
            return _rank([word.decode() for word in outputs["next_words"]], outputs["next_probabilities"], count)
        if not outputs["is_mask"].any():
            raise InputError(f"a sentence must contain {MASK} for the word to predict")
        masks = zip(outputs["topk_tokens"], outputs["topk_probabilities"], outputs["is_mask"])
        rankings = [
            _rank([word.decode() for word in words], values, count) for words, values, is_mask in masks if is_mask
        ]
        return list(map(list, zip(*rankings)))


class SeveralTargets(BaseTargets):
    """One target for each output of a model, packed as one row, see `Dataset.outputs`."""

    DTYPE, NDIM = np.float64, 2
    DESCRIPTION, RANKED = "packed targets float64 [n, values]", ()

    def strata(self, train: np.ndarray, *others: np.ndarray) -> list[np.ndarray]:
        return NumberTargets().strata(train, *others)

    def describe(self, dataset: Any) -> list[str]:
        return [f"target: {field.name}, {field.codec.dtype} {list(field.codec.shape)}" for field in dataset.outputs]

    def draw(self, labels: np.ndarray, classes: int, shape: Sequence[int], statistics: Any) -> np.ndarray:
        return np.repeat(labels[:, None], classes, 1).astype(np.float64)

    def read(self, outputs: Mapping[str, np.ndarray], class_names: Sequence[str], count: int) -> list[Any]:
        _check_item([not np.isnan(outputs[name]).any() for name in class_names])
        return [np.squeeze(outputs[name]).tolist() for name in class_names]

    def format(self, fields: Mapping[str, Any]) -> str:
        return ", ".join(f"{name} {value}" for name, value in fields.items())


FORMS: dict[str, BaseTargets] = {LABEL: LabelTargets(), NUMBERS: NumberTargets(), LABEL_SET: LabelSetTargets()}
FORMS |= {LABEL_MAP: LabelMapTargets(), POSITIONS: PositionTargets(), SEVERAL_TARGETS: SeveralTargets()}


def find(form: str) -> BaseTargets:
    """Return the targets of a form.

    Raises:
        InputError: The form is unknown.
    """
    if form not in FORMS:
        raise InputError(f"targets must be one of {', '.join(sorted(FORMS))}. Received: {form!r:.80}")
    return FORMS[form]


def form_of(y: np.ndarray | None) -> str | None:
    """Return the form of targets; None if they have none of these forms."""
    if y is None:
        return POSITIONS
    return next((form for form, each in FORMS.items() if (y.dtype, y.ndim) == (each.DTYPE, each.NDIM)), None)


def strata(train: np.ndarray, *others: np.ndarray) -> list[np.ndarray]:
    """Return one class for each example, for partitions and test splits by class.

    Labels are their own classes. Examples with numbers are divided into groups by the quantiles of the first number. An
    example with several labels has the rarest of them, and one without labels a further class. A label map has its most
    frequent class, where class 0, the background, counts only if it is the only one. The classes that occur in the
    training split are numbered from 0.

    Args:
        train: Targets of the training split, from which quantiles and frequencies are computed.
        others: Targets of other splits.

    Returns:
        int32 `[n]` of each split; for text the words int32 `[rows, length]` unchanged.
    """
    return find(form_of(train) or LABEL).strata(train, *others)


def check_range(location: str, item: str, values: np.ndarray, classes: int) -> None:
    """Raise `InputError` for whole numbers outside 0..classes - 1."""
    low, high = int(values.min()), int(values.max())
    if low < 0 or high >= classes:
        invalid = low if low < 0 else high
        first = int(np.flatnonzero(values.reshape(-1) == invalid)[0])
        raise InputError(
            f"{location}: every {item} must be in 0..{classes - 1}. Received: {invalid} at position {first}"
        )


def class_name(dataset: Any, label: int) -> str:
    """Return the name of a class, shortened, or its number."""
    return str(label) if dataset.class_names is None else shorten(dataset.class_names[label])


def _number_classes(classes):
    """Number the classes of the first split from 0; a class that only another split has becomes a neighbour."""
    known = np.unique(classes[0])
    return [np.minimum(np.searchsorted(known, each), len(known) - 1).astype(np.int32) for each in classes]


def _check_width(location, split, dataset):
    if split.y.shape[1] != dataset.classes:
        raise InputError(
            f"{location}: expected {dataset.classes} targets per {dataset.codec.EXAMPLE}. Received: {split.y.shape[1]}"
        )


def _check_item(is_valid):
    if not np.all(is_valid):
        raise InputError("a sentence must contain a word")


def _shortest_number(number):
    """Return the number with the fewest decimals that is the same float32."""
    return float(str(number))


def _rank(names, numbers, count):
    """Return the names and numbers of the first `count` ranks, in turn."""
    return [value for name, number in zip(names[:count], numbers) for value in (name, _shortest_number(number))]
