"""Detects the kind of data at a path, and drafts how a recipe reads it."""

from dataclasses import replace
from pathlib import Path

from hetero_tf.base.errors import InputError
from hetero_tf.base.sound_files import ENDINGS as SOUNDS
from hetero_tf.data.arrow_files import ColumnSelection, column_contents
from hetero_tf.data.csv import DELIMITERS, TAB_ENDINGS, TABLE_ENDINGS, read_table
from hetero_tf.data.data_files import TEST_NAMES, find
from hetero_tf.data.dataset import NotAvailable
from hetero_tf.data.folder import CLASS_LEVELS, iterate_files, split_folders
from hetero_tf.data.inspection import inspect_table, sample
from hetero_tf.data.labelled_text import JSON_LINES, read_rows
from hetero_tf.data.parquet import ENDINGS, find_splits, read_splits
from hetero_tf.data.picture_files import ENDINGS as PICTURES
from hetero_tf.data.text_folders import has_text_folders, read_text_folders
from hetero_tf.data.tfds import NAME
from hetero_tf.data.words import read_words
from hetero_tf.starter.arrays import draft_npy, draft_npz
from hetero_tf.starter.choices import LABEL_TASKS, Choice, DataDraft, Request, requested_task
from hetero_tf.starter.delimited import detect_layout
from hetero_tf.starter.labels import choose_label
from hetero_tf.starter.pictures import SAMPLED_PICTURES, choose_size, draft_folder, draft_masks, draft_tfds
from hetero_tf.starter.series import draft_series, find_times
from hetero_tf.starter.sounds import draft_audio
from hetero_tf.starter.tables import draft_table, find_owner
from hetero_tf.starter.texts import draft_labelled, draft_running, find_sentences, words_of_column

TEXTS = (".txt", ".text", ".md", ".gz")
READ = (
    "a folder of pictures, WAV files or text files with one folder for each class; a folder with images/ and masks/; a "
    "CSV or TSV file; .parquet or .arrow files, or a folder of save_to_disk; a .npz file; a folder with x_train.npy, "
    "y_train.npy, x_test.npy and y_test.npy; JSON lines; text"
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
        return draft_npy(request)
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
    return any(each.is_dir() and any(file.suffix in ENDINGS for file in each.iterdir()) for each in folders)


def _find_file_splits(folder):
    """Return the file of the training and, if present, of the test split, or the only file; empty for others."""
    files = [each for each in sorted(folder.iterdir()) if each.is_file() and _is_readable(each)]
    by_stem = {each.name.partition(".")[0].lower(): each for each in files}
    if "train" in by_stem:
        train = by_stem["train"]
        tests = [by_stem[name] for name in TEST_NAMES if name in by_stem]
        return [train, *(each for each in tests[:1] if each.suffix == train.suffix)]
    return files if len(files) == 1 else []


def _is_readable(file):
    return not file.name.startswith(".") and file.suffix.lower() in (*TABLE_ENDINGS, *JSON_LINES, *TEXTS, ".npz")


def _draft_splits(folder, files, request):
    """Draft a folder with files of the splits; paths of the recipe are the user's path with the names of the files."""
    train, *test = (str(Path(request.path, file.relative_to(folder))) for file in files)
    return _draft_file(files[0], replace(request, path=train), test[0] if test else None)


def _draft_file(path, request, test):
    """Draft a file by its ending; `test` is the path of the test rows or None."""
    ending = path.suffix.lower()
    if ending == ".npz":
        return draft_npz(path, request)
    if ending in ENDINGS:
        return _draft_arrow(path, request)
    options = {"path": Choice(request.path)}
    if test is not None:
        options["test"] = Choice(test, "the test rows")
    if ending in JSON_LINES:
        return _draft_json_lines(path, request, options)
    if ending in (*PICTURES, *SOUNDS, ".npy"):
        raise InputError(f"{path}: expected {READ}. Received: a single file; name its folder")
    layout = None if ending in TEXTS else detect_layout(path)
    if ending in TABLE_ENDINGS or (layout is not None and layout.delimiter != "space"):
        return _draft_csv(path, layout, request, options)
    loader = {"name": Choice("text"), "train": Choice(request.path)}
    return draft_running(read_words(path), request, loader, test)


def _draft_csv(path, layout, request, options):
    table = read_table(path, layout.has_header, DELIMITERS[layout.delimiter])
    summaries = {summary.name: summary for summary in inspect_table(table)}
    text = find_sentences(table, summaries, request)
    # `labelled_text` reads only commas, or tabs in files of these endings.
    is_default = layout.has_header and layout.delimiter == ("tab" if path.suffix.lower() in TAB_ENDINGS else "comma")
    if text is not None and request.task in (None, *LABEL_TASKS) and is_default:
        return draft_labelled(table, text, request, {"name": Choice("labelled_text"), **options})
    owner = find_owner(summaries, request.label)
    if layout.has_header and "test" not in options and (times := find_times(table, summaries, owner, request)):
        return draft_series(table, times, summaries, request, {**options, **layout.options})
    return draft_table(table, request, {"name": Choice("csv"), **options, **layout.options})


def _draft_json_lines(path, request, options):
    table = read_rows(path)
    text = find_sentences(table, {summary.name: summary for summary in inspect_table(table)}, request)
    if text is None:
        raise InputError(
            f"{path}: a file of JSON lines needs a column of texts and one of labels; save numbers and categories as "
            f"CSV. Received: {', '.join(table.columns)}"
        )
    return draft_labelled(table, text, request, {"name": Choice("labelled_text"), **options})


def _draft_arrow(path, request):
    """Draft Parquet or Arrow files: pictures, texts or a table."""
    files = find_splits(path)[0]
    contents = column_contents(files[0])
    unreadable = [name for name, content in contents.items() if content not in ("numbers", "texts", "dates")]
    (table, *_), _ = read_splits(request.data_dir, request.path, None, ColumnSelection(None, unreadable, None), None)
    images = [name for name, content in contents.items() if content == "bytes"]
    options = {"path": Choice(request.path)}
    if images:
        return _draft_picture_column(table, images[0], request, options)
    summaries = {summary.name: summary for summary in inspect_table(table)}
    text = find_sentences(table, summaries, request)
    if text is not None and len(summaries) == 1:
        loader = {"name": Choice("text"), "train": Choice(request.path), "column": Choice(text, "its only column")}
        return draft_running(words_of_column(table, text), request, loader, None)
    if text is not None and request.task in (None, *LABEL_TASKS):
        return draft_labelled(table, text, request, {"name": Choice("labelled_text"), **options})
    draft = draft_table(table, request, {"name": Choice("parquet"), **options})
    if not unreadable:
        return draft
    ignored = draft.options.get("ignore", Choice([]))
    reasons = "; ".join(
        [ignored.reason] * bool(ignored.value) + [f"{', '.join(unreadable)}: neither numbers nor texts"]
    )
    ignore = Choice([*ignored.value, *unreadable], reasons, True)
    return DataDraft({**draft.options, "ignore": ignore}, draft.task)


def _draft_picture_column(table, image, request, options):
    task = requested_task(request, LABEL_TASKS)
    summaries = {summary.name: summary for summary in inspect_table(table)}
    label = choose_label(table, summaries, replace(request, task="classification"))
    selection = ColumnSelection([image], (), image)
    (pictures, *_), _ = read_splits(request.data_dir, request.path, None, selection, None)
    size = choose_size(sample(pictures.columns[image], SAMPLED_PICTURES))
    loader = {"name": Choice("parquet"), **options, "label": label.columns, "image": Choice(image, "picture files")}
    return DataDraft({**loader, **size}, task or Choice("classification", "one label for each picture"))
