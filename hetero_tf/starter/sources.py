"""Detect the kind of data at a path, and draft how a recipe reads it."""

import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np

from hetero_tf.base import registry
from hetero_tf.base.errors import InputError
from hetero_tf.base.files import read_bytes
from hetero_tf.base.npz_reader import read_arrays
from hetero_tf.base.sound_files import ENDINGS as SOUNDS
from hetero_tf.data.arrow_files import ENDINGS as ARROW
from hetero_tf.data.arrow_files import ColumnSelection, column_contents, find_splits, read_splits
from hetero_tf.data.audio import inspect_sounds
from hetero_tf.data.data_files import LOADERS, TEST_NAMES, find
from hetero_tf.data.dataset import NotAvailable
from hetero_tf.data.folder import CLASS_LEVELS, iterate_files, split_folders
from hetero_tf.data.inspection import inspect_column, inspect_table, sample
from hetero_tf.data.labelled_text import has_text_folders, read_text_folders
from hetero_tf.data.masks import decode_mask
from hetero_tf.data.picture_files import ENDINGS as PICTURES
from hetero_tf.data.picture_files import LARGEST_FILE, picture_header
from hetero_tf.data.table_files import (
    EXCEL,
    JSON_LINES,
    TABLE_ENDINGS,
    is_table,
    read_content,
    read_rows,
    read_text,
    table_ending,
)
from hetero_tf.data.tfds import NAME
from hetero_tf.data.words import read_words, split_lines
from hetero_tf.starter.choices import LABEL_TASKS, Choice, DataDraft, Request, requested_task
from hetero_tf.starter.series import TimeColumns, draft_series, find_times
from hetero_tf.starter.tables import LABEL_NAMES, choose_label, draft_table, task_of_numbers
from hetero_tf.starter.texts import draft_labelled, draft_running, find_sentences

# The encoding of western Europe in Windows, and bytes that its texts do not have.
WINDOWS, UNPRINTABLE = "cp1252", {*range(32)} - {*b"\t\n\r"}
# Rows of the smallest table.
LEAST_ROWS = 5
TABLES, TEXTS = (*TABLE_ENDINGS, *JSON_LINES, *EXCEL), (".txt", ".text", ".md")
# Endings and first lines of files that other programs read, with their format.
OTHER_FORMATS = {
    "HTML or XML": ((".html", ".htm", ".xml"), r"<[!?a-z][^>]*>"),
    "an ARFF file": ((".arff",), r"@relation\b"),
    "a LibSVM file": ((".libsvm", ".svm"), r"\S+( \d+:\S+)+\s*$"),
    "a file of fastText": ((".ft",), "__label__"),
    "a PDF or Word file": ((".pdf", ".doc", ".docx", ".odt", ".rtf"), r"%PDF"),
    "a database": ((".db", ".sqlite", ".sqlite3", ".mdb"), "SQLite format"),
    "a file of a statistics program": ((".sav", ".dta", ".sas7bdat", ".rds", ".rdata", ".mat"), r"\$FL2"),
    "a file of Python or HDF5": ((".pkl", ".pickle", ".joblib", ".h5", ".hdf5", ".pt"), "\x80"),
    "an archive": ((".tar", ".tgz", ".7z", ".rar"), "7z"),
    "a spreadsheet other than Excel": ((".ods", ".numbers", ".xlsb"), "PK"),
}


def draft_data(request: Request) -> DataDraft:
    """Draft how a recipe reads the data of a request."""
    try:
        path = find(request.data_dir, request.path, "PATH")
    except NotAvailable:
        if not NAME.fullmatch(request.path):
            raise
        return draft_tfds(request)
    if not path.is_dir():
        return _draft_file(path, request)
    if (path / "x_train.npy").exists():
        task = requested_task(request, LABEL_TASKS) or Choice("classification", "whole numbers as labels")
        return DataDraft({"name": Choice("npy"), "path": Choice(request.path)}, task)
    folders = (path, path / "data", path / "train")
    if any(each.is_dir() and any(file.suffix in ARROW for file in each.iterdir()) for each in folders):
        return _draft_arrow(path, request)
    if files := _find_file_splits(path):
        # Paths of the recipe are the user's path with the names of the files.
        train, *test = (str(Path(request.path, file.name)) for file in files)
        return _draft_file(files[0], replace(request, path=train), *test)
    if {"images", "masks"} <= {entry.name for entry in split_folders(path)[0].iterdir()}:
        return draft_masks(path, request)
    endings = {file.suffix.lower() for file in iterate_files(path, CLASS_LEVELS)}
    if not endings.isdisjoint(PICTURES):
        return draft_folder(path, request)
    if not endings.isdisjoint(SOUNDS):
        return draft_audio(path, request)
    if has_text_folders(path):
        table, *_ = read_text_folders(path, "text", "label")
        loader = {"name": Choice("labelled_text"), "path": Choice(request.path)}
        return draft_labelled(table, "text", inspect_table(table), request, loader)
    names = sorted(entry.name for entry in path.iterdir())
    listed = ", ".join(names[:5]) + ", ..." * (len(names) > 5) or "nothing"
    raise InputError(
        f"{path}: expected data of a loader. Received: a folder with {listed}; join text files into one file; {LOADERS}"
    )


def _find_file_splits(folder):
    """Return the file of the training and, if present, of the test split, or the only file; empty for others."""
    endings = (*TABLES, *TEXTS, ".npz")
    files = [each for each in sorted(folder.iterdir()) if each.is_file() and not each.name.startswith(".")]
    files = [each for each in files if table_ending(each) in endings]
    by_stem = {each.name.partition(".")[0].lower(): each for each in files}
    if "train" not in by_stem:
        return files if len(files) == 1 else []
    tests = [by_stem[name] for name in TEST_NAMES if name in by_stem][:1]
    return [by_stem["train"], *(each for each in tests if each.suffix == by_stem["train"].suffix)]


def _draft_file(path, request, test=None):
    """Draft a file by its ending; `test` is the path of the test rows or None."""
    ending = table_ending(path)
    if ending == ".npz":
        return _draft_npz(path, request)
    if ending in ARROW:
        return _draft_arrow(path, request)
    for name in registry.names("data"):
        if ending in (registry.constant("data", name, "ENDINGS") or ()):
            tasks, reason = registry.find("data", name).possible_tasks(path)
            options = {"name": Choice(name, f"it reads {path.suffix} files"), "path": Choice(request.path)}
            return DataDraft(options, requested_task(request, tasks) or Choice(tasks[0], reason))
    if ending in (*PICTURES, *SOUNDS, ".npy"):
        raise InputError(f"{path}: expected data of a loader. Received: a single file; name its folder; {LOADERS}")
    options = {"path": Choice(request.path)}
    if test is not None:
        options["test"] = Choice(test, "the file of the test split")
    if ending not in TABLES:
        _check_format(path, ending)
        if not is_table(path):
            loader = {"name": Choice("text"), "train": options.pop("path"), **options}
            return draft_running(read_words(path), request, loader)
    rows = _read_rows(path, ending, options)
    header = ending in JSON_LINES or rows.have_names
    if not header:
        options["header"] = Choice(False, "the first line has values like the lines below it", True)
    return _draft_rows(rows.build_table(header), request, "csv", options)


def _read_rows(path, ending, options):
    """Return the rows of a table, which may have the encoding of Windows; add the option that says so."""
    try:
        return read_rows(path)
    except InputError:
        if ending not in TABLE_ENDINGS or set(read_content(path)) & UNPRINTABLE:
            raise
        rows = read_rows(path, encoding=WINDOWS)
        reason = "the text is not UTF-8; letters such as ä and é are those of Windows"
        options["encoding"] = Choice(WINDOWS, reason, True)
        return rows


def _check_format(path, ending):
    """Raise `InputError` for a file of another program, which is neither a table nor text."""
    line = read_content(path)[:1000].lstrip().partition(b"\n")[0].decode("latin-1")
    for name, (endings, start) in OTHER_FORMATS.items():
        if ending in endings or re.match(start, line, re.IGNORECASE):
            raise InputError(f"{path}: is {name}; save it as CSV or Parquet, for example with pandas")


def _draft_rows(table, request, loader, options):
    """Draft the rows of a table as labelled texts, a series or single rows."""
    if table.rows < LEAST_ROWS:
        raise InputError(
            f"{table.source}: expected at least {LEAST_ROWS} rows to train and test. Received: {table.rows}"
        )
    if len(table.columns) == 1:
        raise InputError(
            f"{table.source}: a table must have a label and at least one other column; for a model of running text, "
            f"save the texts in a .txt file. Received: the single column {next(iter(table.columns))!r}"
        )
    summaries, times = inspect_table(table), None
    text = find_sentences(table, summaries, request)
    if text is not None and "encoding" in options:
        # The loader of texts reads no other encoding.
        read_text(Path(table.source))
    if text is not None and request.task in (None, *LABEL_TASKS):
        return draft_labelled(table, text, summaries, request, {"name": Choice("labelled_text"), **options})
    if not {"header", "test"} & options.keys():
        times = find_times(table, summaries, request)
    if isinstance(times, TimeColumns):
        return draft_series(table, times, summaries, request, options)
    draft = draft_table(table, summaries, request, {"name": Choice(loader), **options})
    return draft if times is None else replace(draft, notes=(*draft.notes, times))


def _draft_arrow(path, request):
    """Draft Parquet or Arrow files: pictures, texts or a table."""
    contents = column_contents(find_splits(path)[0][0])
    lists = [name for name, content in contents.items() if content == "lists"]
    are_labels = any(name in request.label or name.lower() in LABEL_NAMES for name in lists)
    readable = ("numbers", "texts", "dates", *["lists"] * are_labels)
    unreadable = [name for name, content in contents.items() if content not in readable]
    (table, *_), _ = read_splits(path, None, ColumnSelection(None, unreadable, None, lists), None)
    options = {"path": Choice(request.path)}
    for image in (name for name, content in contents.items() if content == "bytes"):
        (pictures, *_), _ = read_splits(path, None, ColumnSelection([image], (), image), None)
        if any(map(picture_header, pictures.columns[image][:SAMPLED_PICTURES])):
            task = requested_task(request, LABEL_TASKS) or Choice("classification", "one label for each picture")
            label, _ = choose_label(table, inspect_table(table), replace(request, task="classification"))
            size = choose_size(sample(pictures.columns[image], SAMPLED_PICTURES))
            options |= {"label": label, "image": Choice(image, "picture files"), **size}
            return DataDraft({"name": Choice("parquet"), **options}, task)
    if len(contents) == 1 and (text := find_sentences(table, inspect_table(table), request)) is not None:
        column = table.columns[text]
        loader = {"name": Choice("text"), "train": Choice(request.path), "column": Choice(text, "its only column")}
        return draft_running(split_lines(column.texts[code] for code in column.codes), request, loader)
    draft = _draft_rows(table, request, "parquet", options)
    if not unreadable or draft.options["name"].value != "parquet":
        return draft
    ignored = draft.options.get("ignore", Choice([]))
    reason = "; ".join([*filter(None, [ignored.reason]), f"{', '.join(unreadable)}: neither numbers nor texts"])
    return replace(draft, options={**draft.options, "ignore": Choice([*ignored.value, *unreadable], reason, True)})


def _draft_npz(file, request):
    x, y = read_arrays(file, ["x_train", "y_train"]).values()
    options = {"name": Choice("npz"), "path": Choice(request.path)}
    if x.ndim == 3 and x.dtype.kind == "f" and ((x < 0) | (x > 1)).any():
        reason = f"x_train {list(x.shape)} has numbers outside 0 to 1, so its axes are examples, time and channels"
        options["kind"] = Choice("series", reason, True)
    tasks = [*LABEL_TASKS, "regression", "multi_label", "segmentation"]
    return DataDraft(options, requested_task(request, tasks) or _task_of(y))


def _task_of(y):
    shape = f"y_train is {y.dtype} {list(y.shape)}"
    if y.dtype.kind in "UO" or y.size == 0:
        return Choice("classification", shape)
    if y.ndim >= 3:
        return Choice("segmentation", f"{shape}: one class for each pixel")
    if y.ndim < 2:
        return task_of_numbers(inspect_column("y_train", y))
    if not np.isin(y, (0, 1)).all():
        return Choice("regression", f"{shape} of numbers")
    if (y.sum(1) == 1).all():
        return Choice("classification", f"{shape} with exactly one 1 in each row")
    return Choice("multi_label", f"{shape} of 0 and 1")


# Pictures whose size and channels are read.
SAMPLED_PICTURES = 200
# Pictures of one size stay unchanged up to this one; others become the largest of these sizes that fits.
LARGEST_UNCHANGED, SIZES = 96, (96, 64, 32)


def draft_folder(folder: Path, request: Request) -> DataDraft:
    """Draft how a recipe reads a folder with one folder of pictures for each class."""
    task = requested_task(request, LABEL_TASKS)
    options = choose_size(_sample_files(folder))
    loader = {"name": Choice("folder"), "path": Choice(request.path)}
    return DataDraft({**loader, **options}, task or Choice("classification", "one folder for each class"))


def draft_masks(folder: Path, request: Request) -> DataDraft:
    """Draft how a recipe reads a folder with images/ and masks/."""
    task = requested_task(request, ["segmentation"])
    train, _ = split_folders(folder)
    options = choose_size(_sample_files(train / "images"))
    loader = {"name": Choice("masks"), "path": Choice(request.path)}
    contents = {str(file): read_bytes(file, LARGEST_FILE, follow=True) for file in _sample_files(train / "masks")}
    present = {int(value) for each in contents.items() for value in np.unique(decode_mask(*each))}
    if present != set(range(len(present))):
        reason = f"values of the masks of {SAMPLED_PICTURES} pictures, one for each class"
        options["values"] = Choice(sorted(present), reason, True)
    return DataDraft({**loader, **options}, task or Choice("segmentation", "one class for each pixel"))


def _sample_files(folder):
    files = sorted(file for file in iterate_files(folder, CLASS_LEVELS) if file.suffix.lower() in PICTURES)
    return sample(files, SAMPLED_PICTURES)


def choose_size(sources: Iterable[bytes | Path]) -> dict[str, Choice]:
    """Choose the options `size` and `channels` from the contents or paths of picture files."""
    headers = [header for source in sources if (header := picture_header(source))]
    if not headers:
        raise InputError("none of the sampled pictures has a readable header; save them as PNG or JPEG")
    is_grey = all(mode == "grey" for *_, mode in headers)
    channels = Choice(1, "all sampled pictures are grey") if is_grey else Choice(3, "color")
    side = int(np.median([min(width, height) for width, height, _ in headers]))
    width, height, _ = headers[0]
    if len({header[:2] for header in headers}) > 1 or max(width, height) > LARGEST_UNCHANGED:
        size = next((each for each in SIZES if each <= side), side)
        reason = f"the median of the shorter sides is {side}; a larger size costs time and may score higher"
    else:
        size, reason = side, f"all sampled pictures have {width} x {height} pixels and become squares"
        if width == height:
            return {"size": Choice(width, "the size of all sampled pictures"), "channels": channels}
    return {"size": Choice(size, reason, True), "channels": channels}


def draft_tfds(request: Request) -> DataDraft:
    """Draft how a recipe reads a set of TensorFlow Datasets."""
    task = requested_task(request, LABEL_TASKS)
    options = {"name": Choice("tfds"), "dataset": Choice(request.path)}
    if request.path.partition("/")[0] == "emnist":
        options["transpose"] = Choice(True, "the pictures of emnist are stored transposed")
    return DataDraft(options, task or Choice("classification", "pictures with one label each"))


# Speech and most sounds differ below half of this rate.
ENOUGH = 16_000
# Seconds of a longer clip cost much time.
LONGEST = 10.0


def draft_audio(folder: Path, request: Request) -> DataDraft:
    """Draft how a recipe reads a folder with one folder of WAV files for each class."""
    task = requested_task(request, LABEL_TASKS)
    files = sorted(str(file) for file in iterate_files(folder, CLASS_LEVELS) if file.suffix.lower() in SOUNDS)
    sounds = inspect_sounds(files)
    if sounds is None:
        raise InputError(f"{folder}: none of the sampled WAV files has a readable header; copy them again")
    loader = {"name": Choice("audio"), "path": Choice(request.path)}
    options = {"rate": _choose_rate(sounds), "seconds": _choose_seconds(sounds)}
    return DataDraft({**loader, **options}, task or Choice("classification", "one folder for each class"))


def _choose_rate(sounds):
    rate, count = sounds.rates[0]
    if rate > ENOUGH:
        return Choice(ENOUGH, f"most files have {rate:,} Hz; sounds above {ENOUGH // 2:,} Hz need a higher rate", True)
    if count < sounds.examined:
        return Choice(rate, "the rate of most files; others are converted", True)
    return Choice(rate, "the rate of the files")


def _choose_seconds(sounds):
    shortest, median, most, longest = sounds.seconds
    if shortest == longest and longest <= LONGEST:
        return Choice(longest, "the duration of all files")
    seconds = max(round(min(most, 2 * median, LONGEST), 1), 0.1)
    extent = f"files have {shortest:.3g} to {longest:.3g} s, {median:.3g} in the median"
    return Choice(seconds, f"{extent}; longer ones are cut off, zeros follow shorter ones", True)
