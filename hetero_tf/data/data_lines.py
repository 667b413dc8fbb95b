"""Lines that show how the data were understood, and warnings about data that a model cannot learn well."""

from collections.abc import Iterable, Sequence

import numpy as np

from hetero_tf.data.columns import feature_names, is_number
from hetero_tf.data.dataset import Dataset
from hetero_tf.data.inspection import ColumnSummary, inspect_column
from hetero_tf.data.targets import LABEL, LABEL_MAP, LABEL_SET, NUMBERS

# Characters of a line, columns of a table, characters of a name, and classes in one line.
LINE, MAX_COLUMNS, MAX_NAME, MAX_CLASSES = 80, 20, 24, 8
# A larger share of one class in the test examples is worth a warning.
MAX_MAJORITY = 0.6
# Half of the values within a smaller range, in standard deviations, are equal for a model that reads standard values.
MIN_SPREAD = 1e-4
# Rows of which the spread of a column is computed.
SPREAD_ROWS = 10_000


def describe_data(dataset: Dataset) -> list[str]:
    """Return lines of at most 80 characters: columns, series, pictures, clips, texts, and classes with their shares."""
    parts = {
        "arrays": _array_lines,
        "audio": _audio_lines,
        "images": _picture_lines,
        "sequences": _text_lines,
        "series": _series_lines,
        "table": _column_lines,
        "text": _text_lines,
    }
    targets = {LABEL: _class_lines, NUMBERS: _number_lines, LABEL_SET: _label_set_lines}
    lines_of_targets = targets.get(dataset.targets)
    return [*parts[dataset.kind](dataset), *(lines_of_targets(dataset) if lines_of_targets else [])]


def data_warnings(dataset: Dataset, clients: int) -> list[str]:
    """Return the notes of the data and sentences about row numbers, outliers, rare classes and a large majority.

    Args:
        dataset: The data.
        clients: Number of clients that share the training examples.
    """
    warnings = list(dataset.notes)
    warnings += [
        f"column {summary.name!r} numbers the rows; add it to `ignore`"
        for summary in dataset.inspection or ()
        if summary.role == "feature" and summary.numbers_rows and summary.type == "number"
    ]
    warnings += [
        f"column {summary.name!r} has times of day, which the features of a date leave out; add a column of hours"
        for summary in dataset.inspection or ()
        if summary.role == "feature" and summary.has_times
    ]
    spellings: dict[str, str] = {}
    for each in dataset.class_names or ():
        other = spellings.setdefault(each.lower(), each)
        if other != each:
            warnings.append(f"classes {other} and {each} differ only in case; are they the same?")
    warnings += _outlier_warnings(dataset)
    if dataset.targets != LABEL:
        return warnings
    counts = _count_classes(dataset)
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


def _outlier_warnings(dataset):
    """Return sentences about columns in which an outlier makes all other values equal after standardisation."""
    parts = []
    if dataset.targets == NUMBERS:
        names = dataset.class_names or [str(index) for index in range(dataset.classes)]
        parts.append(("target", names, dataset.train.y, *dataset.target_statistics))
    columns, x = dataset.columns, dataset.train.x
    if dataset.kind in ("table", "series") and columns and len(feature_names(columns)) == x.shape[-1]:
        parts.append(("column", feature_names(columns), x, *dataset.feature_statistics))
    warnings = []
    for part, names, values, means, stds in parts:
        rows = values.reshape(-1, values.shape[-1])
        for name, column, mean, std in zip(names, rows.T, means, stds):
            distinct = np.unique(column[:: -(-len(column) // SPREAD_ROWS)]).astype(np.float64)
            spread = np.subtract(*np.quantile(distinct, [0.75, 0.25])) / std
            if len(distinct) > 3 and spread < MIN_SPREAD:
                outlier = column[np.abs(column - mean).argmax()]
                warnings.append(
                    f"{part} {_shorten(name, MAX_NAME)!r} has outliers such as {outlier:.4g}, beside which its other "
                    "values are equal after scaling; correct or remove them"
                )
    return warnings


def baseline(dataset: Dataset) -> tuple[str, float, str] | None:
    """Return `(metric, its value on the test examples, prediction)` of a simple prediction; None: not defined.

    It is the most frequent class, the best constant set of labels, the better one of the mean and, for forecasts, the
    last value of the window, or the frequency of each word.
    """
    baselines = {LABEL: _class_baseline, NUMBERS: _number_baseline, LABEL_SET: _set_baseline, LABEL_MAP: _map_baseline}
    if dataset.kind == "text":
        return _word_baseline(dataset)
    return baselines[dataset.targets](dataset) if dataset.targets in baselines else None


def _class_baseline(dataset):
    name, share = _majority(dataset)
    return "global_accuracy", 100 * share, f"{name}, the most frequent class"


def _number_baseline(dataset):
    mean, _ = dataset.target_statistics
    predictions = {"the mean of the training examples": mean, **_last_values(dataset)}
    if dataset.base_channels is not None:
        predictions = {"the last value of the window and the mean change": mean, "the last value of the window": 0.0}
    errors = {name: float(np.sqrt(np.mean((dataset.test.y - y) ** 2))) for name, y in predictions.items()}
    best = min(errors, key=errors.__getitem__)
    return "rmse", errors[best], best


def _set_baseline(dataset):
    """Predict the most frequent labels; as many as have the best micro F1 on the training examples."""
    order = np.argsort(-dataset.train.y.mean(0), kind="stable")
    labels = max((order[:count] for count in range(1, len(order) + 1)), key=lambda some: _f1(dataset.train.y, some))
    names = ", ".join(class_name(dataset, int(label)) for label in labels[:MAX_CLASSES])
    return "micro_f1", 100 * _f1(dataset.test.y, labels), f"{names}{', ...' * (len(labels) > MAX_CLASSES)}"


def _f1(sets, labels):
    """Return the micro F1 score of predicting the same labels for all examples."""
    return 2 * sets[:, labels].sum() / max(len(labels) * len(sets) + sets.sum(), 1)


def _map_baseline(dataset):
    label = int(np.bincount(dataset.train.y.reshape(-1)).argmax())
    occurring = {label, *np.unique(dataset.test.y).tolist()}
    iou = float(np.mean(dataset.test.y == label)) / len(occurring)
    return "mean_iou", 100 * iou, f"{class_name(dataset, label)}, the most frequent class"


def _word_baseline(dataset):
    counts = np.bincount(dataset.train.x.reshape(-1), minlength=dataset.classes) + 1.0
    loss = -np.log(counts / counts.sum())[dataset.test.x.reshape(-1)].mean()
    return "global_perplexity", float(np.exp(loss)), f"{dataset.tokenizer} by their frequency"


def _last_values(dataset):
    """Return the last values of the test windows as predictions by name; empty if the targets are not forecasts."""
    if dataset.kind != "series" or dataset.columns is None or dataset.class_names is None:
        return {}
    channels = [column.name for column in dataset.columns]
    forecasts = [name.rpartition(" +")[0] for name in dataset.class_names]
    if not set(forecasts) <= set(channels):
        return {}
    return {"the last value of the window": dataset.test.x[:, -1, [channels.index(name) for name in forecasts]]}


def _majority(dataset):
    """Return the most frequent class of the training examples, and its share of the test examples."""
    label = int(_count_classes(dataset).argmax())
    return class_name(dataset, label), float(np.mean(dataset.test.y == label))


def _count_classes(dataset):
    """Return the number of training examples of each class, int `[classes]`."""
    return np.bincount(dataset.train.y, minlength=dataset.classes)


def class_name(dataset: Dataset, label: int) -> str:
    """Return the name of a class, shortened, or its number."""
    return str(label) if dataset.class_names is None else _shorten(dataset.class_names[label], MAX_NAME)


def _shorten(text, length):
    return text if len(text) <= length else text[: length - 3] + "..."


def _join(start: str, items: Sequence[str], end: str = "") -> str:
    """Return a line with as many items as fit, and the number of the others."""
    for count in range(len(items), 0, -1):
        more = f", and {len(items) - count:,} more" if count < len(items) else ""
        line = f"{start}{', '.join(items[:count])}{more}{end}"
        if len(line) <= LINE:
            return line
    return _shorten(f"{start}{len(items):,}{end}", LINE)


def _class_lines(dataset):
    counts = _count_classes(dataset)
    total, order = int(counts.sum()), np.argsort(-counts, kind="stable")
    names = [class_name(dataset, int(label)) for label in order]
    shares = [f"{100 * counts[label] / total:.1f} %" for label in order]
    if len(names) <= MAX_CLASSES:
        return [_join("classes: ", list(map(" ".join, zip(names, shares))), f" of {total:,} examples")]
    if counts.min() == counts.max():
        return [f"classes: {len(names):,} with {counts[0]:,} examples each"]
    extent = f"from {shares[-1]} ({names[-1]}) to {shares[0]} ({names[0]})"
    return [_shorten(f"classes: {len(names):,}, {extent} of {total:,} examples", LINE)]


def _number_lines(dataset):
    y, names = dataset.train.y, dataset.class_names or [str(index) for index in range(dataset.classes)]
    statistics = zip(names, y.min(0), y.max(0), *dataset.target_statistics)
    lines = [
        f"target: {_shorten(name, MAX_NAME)}, {low:.6g} to {high:.6g}, mean {mean:.4g}, standard deviation {std:.4g}"
        for name, low, high, mean, std in statistics
    ]
    more = [f"  and {len(lines) - MAX_COLUMNS:,} more targets"] if len(lines) > MAX_COLUMNS else []
    return lines[:MAX_COLUMNS] + more


def _label_set_lines(dataset):
    shares = dataset.train.y.mean(0)
    items = [f"{class_name(dataset, int(label))} {100 * shares[label]:.1f} %" for label in np.argsort(-shares)]
    return [_join("labels: ", items, f" of {len(dataset.train.y):,} examples")]


def _column_lines(dataset):
    if dataset.inspection is not None:
        summaries: Iterable[ColumnSummary] = dataset.inspection[:MAX_COLUMNS]
        names = [summary.name for summary in dataset.inspection]
    else:
        columns, x = dataset.columns or (), dataset.train.x
        is_plain = len(columns) == x.shape[1]
        names = [columns[index].name if is_plain else f"feature {index}" for index in range(x.shape[1])]
        summaries = [inspect_column(name, x[:, index]) for index, name in enumerate(names[:MAX_COLUMNS])]
    rows = [(_shorten(summary.name, MAX_NAME), *_column_cells(summary)) for summary in summaries]
    width, roles = max(len(name) for name, _, _ in rows), max(len(role) for _, role, _ in rows)
    lines = [_shorten(f"  {name:{width}}  {role:{roles}}  {values}", LINE) for name, role, values in rows]
    more = [f"  and {len(names) - MAX_COLUMNS:,} more"] if len(names) > MAX_COLUMNS else []
    rows_read = dataset.inspection[0].rows if dataset.inspection else len(dataset.train.x)
    return [f"columns: {len(names):,} of {rows_read:,} rows", *lines, *more]


def _array_lines(dataset):
    arrays = [_shorten(f"input: {array.name}, {array.dtype} {list(array.shape)}", LINE) for array in dataset.arrays]
    return [f"inputs: {len(arrays):,} arrays of {len(dataset.train.x):,} training examples", *arrays]


def _series_lines(dataset):
    count, time, channels = dataset.train.x.shape
    relative = "" if dataset.base_channels is None else ", relative to the last one"
    line = f"series: {count:,} training windows of {time:,} positions{relative}, channels: {channels:,}"
    return [_shorten(line, LINE), *(_column_lines(dataset) if dataset.inspection else [])]


def _column_cells(summary):
    """Return the type or use of a column, and its values."""
    present = max(summary.rows - summary.missing, 1)
    parts = [f"{summary.missing:,} missing"] if summary.missing else []
    if summary.type in ("number", "date", "id") and summary.low:
        low, high = map(_short_number, (summary.low, summary.high))
        parts.append(f"{low} to {high}")
    parts.append(f"{summary.distinct:,} distinct")
    values = ", ".join(parts)
    if summary.type == "category" and summary.role == "feature":
        shares = (f"{_shorten(text, MAX_NAME)} {100 * count / present:.0f} %" for text, count in summary.frequent)
        values += f": {', '.join(shares)}"
    return (summary.type if summary.role == "feature" else summary.role), values


def _picture_lines(dataset):
    height, width, channels = dataset.train.x.shape[1:]
    color = {1: "grey", 3: "color"}.get(channels, f"{channels} channels")
    line = f"pictures: {height} x {width} pixels, {color}"
    if (files := dataset.pictures) is None:
        return [f"{line}, {np.dtype(dataset.train.x.dtype).name}"]
    sizes = " to ".join(dict.fromkeys(f"{size[0]} x {size[1]}" for size in (files.smallest, files.largest)))
    modes = ", ".join(f"{count:,} {mode}" for mode, count in files.modes)
    return [_shorten(f"{line}; files {sizes} ({modes})", LINE)]


def _audio_lines(dataset):
    count, samples = dataset.train.x.shape
    line = f"audio: {count:,} training clips of {samples / dataset.rate:.3g} s at {dataset.rate:,} Hz"
    if (files := dataset.sounds) is None:
        return [line]
    low, median, _, high = files.seconds
    extent = f"  files: {low:.3g} to {high:.3g} s, {median:.3g} in the median; "
    shares = [f" {100 * count / files.examined:.0f} %" * (count < files.examined) for _, count in files.rates]
    return [line, _join(extent, [f"{rate:,} Hz{share}" for (rate, _), share in zip(files.rates, shares)])]


def _text_lines(dataset):
    x, unit = dataset.train.x, dataset.tokenizer
    words = f"{len(dataset.vocabulary or ()):,} {unit} in the vocabulary"
    if dataset.kind == "text":
        return [f"text: {len(x):,} training rows of {x.shape[1]:,} {unit}, {words}"]
    lengths = np.count_nonzero(x, 1)
    return [f"texts: {lengths.min()} to {lengths.max()} {unit}, {np.median(lengths):g} in the median; {words}"]


def _short_number(text):
    """Return a number with at most 6 significant digits; other texts, such as dates, are unchanged."""
    digits = sum(letter.isdigit() for letter in text)
    return f"{float(text):.6g}" if digits > 6 and is_number(text) else text
