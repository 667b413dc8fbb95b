"""Detects the kind of data at a path, and drafts how a recipe reads it."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np

from hetero_tf.base import registry
from hetero_tf.base.errors import InputError
from hetero_tf.base.npz_reader import read_arrays
from hetero_tf.base.sound_files import ENDINGS as SOUNDS
from hetero_tf.data.arrow_files import ENDINGS as ARROW
from hetero_tf.data.arrow_files import ColumnSelection, column_contents, find_splits, read_splits
from hetero_tf.data.data_files import TEST_NAMES, find
from hetero_tf.data.dataset import NotAvailable
from hetero_tf.data.folder import CLASS_LEVELS, iterate_files, split_folders
from hetero_tf.data.inspection import inspect_column, sample
from hetero_tf.data.labelled_text import has_text_folders, read_text_folders
from hetero_tf.data.picture_files import ENDINGS as PICTURES
from hetero_tf.data.picture_files import picture_header
from hetero_tf.data.table_files import (
    EXCEL,
    JSON_LINES,
    TABLE_ENDINGS,
    Layout,
    find_layout,
    read_content,
    read_table,
    read_text,
    table_ending,
)
from hetero_tf.data.tfds import NAME
from hetero_tf.data.words import read_words
from hetero_tf.starter.choices import LABEL_TASKS, Choice, DataDraft, Request, requested_task
from hetero_tf.starter.labels import LABEL_NAMES, choose_label, task_of_numbers
from hetero_tf.starter.pictures import SAMPLED_PICTURES, choose_size, draft_audio, draft_folder, draft_masks, draft_tfds
from hetero_tf.starter.series import TimeColumns, draft_series, find_times
from hetero_tf.starter.tables import draft_table, find_owner, summarize
from hetero_tf.starter.texts import draft_labelled, draft_running, find_sentences, words_of_column

# The encoding of western Europe in Windows, and bytes that its texts do not have.
WINDOWS, UNPRINTABLE = "cp1252", {*range(32)} - {*b"\t\n\r"}
# Rows of the smallest table.
LEAST_ROWS = 5
TEXTS = (".txt", ".text", ".md")
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
READ = (
    "a folder of pictures, WAV files or text files with one folder for each class; a folder with images/ and masks/; a "
    "CSV, TSV, JSON or Excel file; .parquet or .arrow files, or a folder of save_to_disk; a .npz file; a folder with "
    "x_train.npy, y_train.npy, x_test.npy and y_test.npy; text"
)


def draft_data(request: Request) -> DataDraft:
    """Draft how a recipe reads the data of a request.

    Raises:
        InputError: The path does not exist, or has another kind of data.
    """
    try:
        path = find(request.data_dir, request.path, "PATH")
    except NotAvailable:
        if not NAME.fullmatch(request.path):
            raise
        return draft_tfds(request)
    if not path.is_dir():
        return _draft_file(path, request, None)
    if (path / "x_train.npy").exists():
        return _draft_npy(request)
    if _has_arrow_files(path):
        return _draft_arrow(path, request)
    if files := _find_file_splits(path):
        return _draft_splits(path, files, request)
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
        return draft_labelled(table, "text", request, loader)
    raise InputError(f"{path}: expected {READ}. Received: a folder with {_names(path)}; join text files into one file")


def _names(folder):
    names = sorted(entry.name for entry in folder.iterdir())
    return ", ".join(names[:5]) + (", ..." if len(names) > 5 else "") or "nothing"


def _has_arrow_files(folder):
    folders = (folder, folder / "data", folder / "train")
    return any(each.is_dir() and any(file.suffix in ARROW for file in each.iterdir()) for each in folders)


def _find_file_splits(folder):
    """Return the file of the training and, if present, of the test split, or the only file; empty for others."""
    endings = (*TABLE_ENDINGS, *JSON_LINES, *EXCEL, *TEXTS, ".npz")
    files = [each for each in sorted(folder.iterdir()) if each.is_file() and not each.name.startswith(".")]
    files = [each for each in files if table_ending(each) in endings]
    by_stem = {each.name.partition(".")[0].lower(): each for each in files}
    if "train" in by_stem:
        train = by_stem["train"]
        tests = [by_stem[name] for name in TEST_NAMES if name in by_stem]
        return [train, *(each for each in tests[:1] if each.suffix == train.suffix)]
    return files if len(files) == 1 else []


def _draft_splits(folder, files, request):
    """Draft a folder with files of the splits; paths of the recipe are the user's path with the names of the files."""
    train, *test = (str(Path(request.path, file.relative_to(folder))) for file in files)
    return _draft_file(files[0], replace(request, path=train), test[0] if test else None)


def _draft_file(path, request, test):
    """Draft a file by its ending; `test` is the path of the test rows or None."""
    ending = table_ending(path)
    if ending == ".npz":
        return _draft_npz(path, request)
    if ending in ARROW:
        return _draft_arrow(path, request)
    for name in registry.names("data"):
        if ending in (registry.constant("data", name, "ENDINGS") or ()):
            return _draft_other(path, request, name)
    if ending in (*PICTURES, *SOUNDS, ".npy"):
        raise InputError(f"{path}: expected {READ}. Received: a single file; name its folder")
    if ending not in (*TABLE_ENDINGS, *JSON_LINES, *EXCEL):
        _check_format(path, ending)
    options = {"path": Choice(request.path)}
    if test is not None:
        options["test"] = Choice(test, "the test rows")
    layout = Layout() if ending in JSON_LINES else _find_layout(path, ending)
    if ending in (*TABLE_ENDINGS, *JSON_LINES, *EXCEL) or layout.is_regular:
        table = read_table(
            path, layout.header, None if ending in EXCEL else layout.delimiter, layout.skip, layout.encoding
        )
        return _draft_rows(table, request, "csv", options, layout)
    loader = {"name": Choice("text"), "train": Choice(request.path)}
    return draft_running(read_words(path), request, loader, test)


def _find_layout(path, ending):
    """Return the layout of a table, which may have the encoding of Windows."""
    try:
        return find_layout(path)
    except InputError:
        if ending not in TABLE_ENDINGS or set(read_content(path)) & UNPRINTABLE:
            raise
        return find_layout(path, WINDOWS)


def _check_format(path, ending):
    """Raise `InputError` for a file of another program, which is neither a table nor text."""
    line = read_content(path)[:1000].lstrip().partition(b"\n")[0].decode("latin-1")
    for name, (endings, start) in OTHER_FORMATS.items():
        if ending in endings or re.match(start, line, re.IGNORECASE):
            raise InputError(f"{path}: is {name}; save it as CSV or Parquet, for example with pandas")


def _draft_other(path, request, loader):
    """Draft a file of a format that only one loader reads."""
    tasks, reason = registry.find("data", loader).possible_tasks(path)
    return DataDraft(
        {"name": Choice(loader, f"it reads {path.suffix} files"), "path": Choice(request.path)},
        requested_task(request, tasks) or Choice(tasks[0], reason),
    )


def _draft_rows(table, request, loader, options, layout):
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
    summaries, shape = summarize(table), _layout_options(layout)
    text = find_sentences(table, summaries, request)
    if text is not None and layout.encoding is not None:
        # The loader of texts reads no other encoding.
        read_text(Path(table.source))
    if text is not None and request.task in (None, *LABEL_TASKS) and "skip" not in shape:
        return draft_labelled(table, text, request, {"name": Choice("labelled_text"), **options, **shape})
    owner, times = find_owner(summaries, request.label), None
    if "header" not in shape and "test" not in options:
        times = find_times(table, summaries, owner, request)
    if isinstance(times, TimeColumns):
        return draft_series(table, times, summaries, request, {**options, **shape})
    draft = draft_table(table, request, {"name": Choice(loader), **options, **shape})
    return draft if times is None else replace(draft, notes=(*draft.notes, times))


def _layout_options(layout):
    """Return the options of `data: csv` that differ from the layout that the loader detects."""
    options = {}
    if layout.skip:
        options["skip"] = Choice(layout.skip, "lines above the names of the columns, such as a title", True)
    if layout.encoding is not None:
        options["encoding"] = Choice(
            layout.encoding, "the text is not UTF-8; letters such as ä and é are those of Windows", True
        )
    if not layout.header:
        options["header"] = Choice(False, "the first line has values like the lines below it", True)
    return options


def _draft_arrow(path, request):
    """Draft Parquet or Arrow files: pictures, texts or a table."""
    files = find_splits(path)[0]
    contents = column_contents(files[0])
    lists = [name for name, content in contents.items() if content == "lists"]
    likely = [name for name in lists if name in request.label or name.lower() in LABEL_NAMES]
    readable = ("numbers", "texts", "dates", *["lists"] * bool(likely))
    unreadable = [name for name, content in contents.items() if content not in readable]
    selection = ColumnSelection(None, unreadable, None, lists)
    (table, *_), _ = read_splits(path, None, selection, None)
    images = [name for name, content in contents.items() if content == "bytes" and _has_pictures(path, name)]
    options = {"path": Choice(request.path)}
    if images:
        return _draft_picture_column(path, table, images[0], request, options)
    if len(contents) == 1 and (text := find_sentences(table, summarize(table), request)) is not None:
        loader = {"name": Choice("text"), "train": Choice(request.path), "column": Choice(text, "its only column")}
        return draft_running(words_of_column(table, text), request, loader, None)
    draft = _draft_rows(table, request, "parquet", options, Layout())
    if not unreadable or draft.options["name"].value != "parquet":
        return draft
    ignored = draft.options.get("ignore", Choice([]))
    reason = "; ".join([ignored.reason] * bool(ignored.value) + [f"{', '.join(unreadable)}: neither numbers nor texts"])
    ignore = Choice([*ignored.value, *unreadable], reason, True)
    return replace(draft, options={**draft.options, "ignore": ignore})


def _has_pictures(path, name):
    (table, *_), _ = read_splits(path, None, ColumnSelection([name], (), name), None)
    return any(map(picture_header, table.columns[name][:SAMPLED_PICTURES]))


def _draft_picture_column(path, table, image, request, options):
    task = requested_task(request, LABEL_TASKS)
    label = choose_label(table, summarize(table), replace(request, task="classification"))
    selection = ColumnSelection([image], (), image)
    (pictures, *_), _ = read_splits(path, None, selection, None)
    size = choose_size(sample(pictures.columns[image], SAMPLED_PICTURES))
    loader = {"name": Choice("parquet"), **options, "label": label.columns, "image": Choice(image, "picture files")}
    return DataDraft({**loader, **size}, task or Choice("classification", "one label for each picture"))


def _draft_npz(file, request):
    """Draft how a recipe reads a .npz file."""
    x, y = read_arrays(file, ["x_train", "y_train"]).values()
    options = {"name": Choice("npz"), "path": Choice(request.path)}
    if x.ndim == 3 and x.dtype.kind == "f" and ((x < 0) | (x > 1)).any():
        reason = f"x_train {list(x.shape)} has numbers outside 0 to 1, so its axes are examples, time and channels"
        options["kind"] = Choice("series", reason, True)
    tasks = [*LABEL_TASKS, "regression", "multi_label", "segmentation"]
    return DataDraft(options, requested_task(request, tasks) or _task_of(y))


def _draft_npy(request):
    """Draft how a recipe reads a folder of .npy files, whose labels are whole numbers."""
    options = {"name": Choice("npy"), "path": Choice(request.path)}
    task = requested_task(request, LABEL_TASKS)
    return DataDraft(options, task or Choice("classification", "whole numbers as labels"))


def _task_of(y):
    """Return the task of an array of targets."""
    shape = f"y_train is {y.dtype} {list(y.shape)}"
    if y.dtype.kind in "UO" or y.size == 0:
        return Choice("classification", shape)
    if y.ndim >= 3:
        return Choice("segmentation", f"{shape}: one class for each pixel")
    if y.ndim == 2:
        are_flags = bool(np.isin(y, (0, 1)).all())
        if are_flags and (y.sum(1) == 1).all():
            return Choice("classification", f"{shape} with exactly one 1 in each row")
        return (
            Choice("multi_label", f"{shape} of 0 and 1") if are_flags else Choice("regression", f"{shape} of numbers")
        )
    return task_of_numbers(inspect_column("y_train", y))
