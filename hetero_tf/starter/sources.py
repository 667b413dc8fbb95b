"""Detect the kind of data at a path, and draft how a recipe reads it."""

import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from hetero_tf.base import registry
from hetero_tf.base.errors import InputError
from hetero_tf.base.files import read_bytes
from hetero_tf.base.npz_reader import read_arrays
from hetero_tf.data import table_files
from hetero_tf.data.arrow_files import ENDINGS as ARROW
from hetero_tf.data.arrow_files import read_splits
from hetero_tf.data.audio import inspect_sounds
from hetero_tf.data.codecs.picture import PICTURES
from hetero_tf.data.codecs.sound import SOUNDS
from hetero_tf.data.columns import RawTable, TextColumn
from hetero_tf.data.data_files import LOADERS, find, find_split_names
from hetero_tf.data.dataset import NotAvailable
from hetero_tf.data.folder import CLASS_LEVELS, iterate_files, list_folders, split_folders
from hetero_tf.data.inspection import inspect_column, inspect_table, sample
from hetero_tf.data.labelled_text import has_text_folders, read_text_folders
from hetero_tf.data.masks import decode_mask
from hetero_tf.data.picture_files import LARGEST_FILE, picture_header
from hetero_tf.data.tfds import NAME
from hetero_tf.data.tokenizers import unspaced_length
from hetero_tf.data.words import read_words, split_lines, split_text
from hetero_tf.starter.choices import LABEL_TASKS, Choice, DataDraft, Options, Request, Summaries, requested_task
from hetero_tf.starter.series import draft_series, find_times
from hetero_tf.starter.tables import LABEL_NAMES, choose_label, draft_table, find_owner, task_of_numbers
from hetero_tf.starter.training import ROWS_PER_CLIENT

# Mean words or, without spaces, characters of a text from which a column has sentences.
LEAST_WORDS, LEAST_CHARACTERS = 5, 12
# A table with more columns of numbers, categories or dates is trained on those.
MOST_OTHER_FEATURES = 2
SAMPLED_TEXTS = 2000
# Usual names of columns of texts.
TEXT_NAMES = ("text", "texts", "sentence", "review", "comment", "message", "content", "body", "tweet", "document")
# Share of the texts that fit into a row, its least length, and the share of cut texts that is worth a check.
FITTING_SHARE, LEAST_LENGTH, MOST_CUT = 0.95, 8, 0.1
# Longest rows: an LSTM learns little more from more tokens of a few thousand texts, and takes longer.
LONGEST_LENGTHS = {"words": 32, "characters": 64}
# Largest vocabulary of labelled texts, and tokens of running text for each of its words.
LARGEST_VOCABULARY, TOKENS_PER_WORD = 5000, 10
WORDS_PER_CLIENT, MOST_CLIENTS = 2000, 50
# Words of the shortest text that has a training and a test part, and of the shortest one that is learned by words.
LEAST_TOKENS, FEW_WORDS = 200, 30_000


def find_sentences(table: RawTable, summaries: Summaries, request: Request) -> str | None:
    """Return the column of texts that a model should read; None: the table is trained on its other columns.

    A column with the name of a text beside the name of a label wins over the lengths of its texts.
    """
    texts = [name for name, column in table.columns.items() if isinstance(column, TextColumn)]
    texts = [name for name in texts if name not in request.label and summaries[name].type in ("text", "id", "category")]
    named = [name for name in texts if name.strip().lower() in TEXT_NAMES and _has_words(table.columns[name])]
    if named and len(summaries) > 1 and (request.label or any(each.lower() in LABEL_NAMES for each in summaries)):
        return named[0]
    lengths = {name: _mean_length(table.columns[name]) for name in texts if summaries[name].type != "category"}
    features = [s for s in summaries.values() if s.type in ("number", "category", "date") and s.distinct > 1]
    # One of them is the label.
    if max(lengths.values(), default=0) < 1 or len(features) - 1 > MOST_OTHER_FEATURES:
        return None
    return max(lengths, key=lengths.__getitem__)


def _has_words(column):
    """Return whether most texts have several words, or differ."""
    sample = column.texts[:SAMPLED_TEXTS]
    return 2 * sum(" " in text for text in sample) > len(sample) or len(column.texts) > len(column) // 4


def _mean_length(column):
    """Return the mean length of texts, where 1 is the length of a short sentence."""
    sample = column.texts[:SAMPLED_TEXTS]
    # Ids in ASCII have no spaces either.
    if not "".join(sample).isascii() and unspaced_length(" ".join(sample).split()) is not None:
        return np.mean(list(map(len, sample))) / LEAST_CHARACTERS
    return np.mean([len(text.split()) * any(map(str.isalpha, text)) for text in sample]) / LEAST_WORDS


def _choose_tokenizer(words):
    if unspaced_length(words) is not None:
        return Choice("characters", "the text has no spaces between words")
    return Choice("words", "the text has spaces between words")


def draft_labelled(table: RawTable, text: str, summaries: Summaries, request: Request, loader: Options) -> DataDraft:
    """Draft how a recipe reads a table with a column of texts; `loader` has the options that name the file."""
    others = {name: summary for name, summary in summaries.items() if name != text}
    label, _ = choose_label(table, others, replace(request, task="classification"))
    name = str(label.value)
    _, likely = choose_label(table, others, replace(request, task=None, label=(name,)))
    reason = likely.reason + "; each distinct list is one class" * (likely.value == "multi_label")
    task = requested_task(request, LABEL_TASKS) or Choice("classification", reason, likely.value == "multi_label")
    options = {**loader, "text": Choice(text, "its values are sentences"), "label": label}
    if (owner := find_owner(others, (name,))) is not None:
        options["owner"] = Choice(owner, f"{others[owner].distinct:,} distinct values: clients", True)
    if missing := np.count_nonzero(table.missing_rows(text) | table.missing_rows(name)):
        options["missing"] = Choice("drop", f"{missing:,} rows without a text or a label are left out", True)
    sample = [each for each in table.columns[text].texts[:SAMPLED_TEXTS] if each.strip()]
    tokenizer = _choose_tokenizer([word for each in sample for word in each.split()])
    lengths = np.array([len(split_text(each, tokenizer.value)) for each in sample])
    # Most texts fit into a row, whose length is a multiple of 8.
    fitting = max(-(-int(np.quantile(lengths, FITTING_SHARE)) // 8) * 8, LEAST_LENGTH)
    length = min(fitting, LONGEST_LENGTHS[tokenizer.value])
    cut = (lengths > length).mean()
    options |= {
        "tokenizer": tokenizer,
        "length": Choice(length, f"{cut:.0%} of the texts are longer and cut", cut > MOST_CUT),
        "vocabulary": Choice(LARGEST_VOCABULARY, "at most; the most frequent ones are used"),
    }
    unused = [each for each in others if each not in (name, owner)]
    note = f"columns {', '.join(unused)} are not used: the model reads {text} alone; `data: csv` reads other columns"
    return DataDraft(options, task, (note,) if unused else ())


def draft_running(words: Sequence[str], request: Request, loader: Options) -> DataDraft:
    """Draft how a recipe reads running text of some words; `loader` has the options of `data` that name the files."""
    tokenizer, tokens = _choose_tokenizer(words), len(words)
    if tokenizer.value == "words" and tokens < FEW_WORDS:
        reason = f"{tokens:,} words are few; characters are learned from less text than words"
        tokenizer = Choice("characters", reason, True)
    if tokenizer.value == "characters":
        tokens = sum(len(word) + 1 for word in words)
    if tokens < LEAST_TOKENS:
        raise InputError(f"{request.path}: a text must have at least {LEAST_TOKENS} words. Received: {tokens}")
    rows = ROWS_PER_CLIENT * min(max(tokens // WORDS_PER_CLIENT, 2), MOST_CLIENTS)
    parts = f"parts of the text with about {tokens // rows:,} {tokenizer.value}, {ROWS_PER_CLIENT} for each client"
    vocabulary = min(max(tokens // TOKENS_PER_WORD, 100), LARGEST_VOCABULARY)
    options = {
        "tokenizer": tokenizer,
        "rows": Choice(rows, parts),
        "test_rows": Choice(min(max(tokens // (10 * 200), 1), 10)),
        "vocabulary": Choice(vocabulary, "at most; the most frequent ones are used"),
    }
    task = requested_task(request, ["classification"]) or Choice("classification", "the next word of a text")
    return DataDraft({**loader, **options}, task)


# Pictures that are examined; up to the second size they stay unchanged, others become the largest size that fits.
SAMPLED_PICTURES, LARGEST_UNCHANGED, SIZES = 200, 96, (96, 64, 32)


def _draft(request, loader, options, reason="one folder for each class", tasks=LABEL_TASKS, key="path"):
    """Draft how a loader reads the path of a request for one of some tasks, of which the first one is likely."""
    options = {"name": Choice(loader), key: Choice(request.path), **options}
    return DataDraft(options, requested_task(request, tasks) or Choice(tasks[0], reason))


def _draft_masks(folder, request):
    train, _ = split_folders(folder)
    options = choose_size(_sample_files(train / "images"))
    contents = {str(file): read_bytes(file, LARGEST_FILE, follow=True) for file in _sample_files(train / "masks")}
    present = {int(value) for each in contents.items() for value in np.unique(decode_mask(*each))}
    if present != set(range(len(present))):
        reason = f"values of the masks of {SAMPLED_PICTURES} pictures, one for each class"
        options["values"] = Choice(sorted(present), reason, True)
    return _draft(request, "masks", options, "one class for each pixel", ["segmentation"])


def _sample_files(folder):
    files = sorted(file for file in iterate_files(folder, CLASS_LEVELS) if file.suffix.lower() in PICTURES.endings)
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


# Speech and most sounds differ below half of this rate, and a clip of more seconds costs much time.
ENOUGH, LONGEST = 16_000, 10.0


def _draft_audio(folder, request):
    files = sorted(str(file) for file in iterate_files(folder, CLASS_LEVELS) if file.suffix.lower() in SOUNDS.endings)
    sounds = inspect_sounds(files)
    if sounds is None:
        raise InputError(f"{folder}: none of the sampled WAV files has a readable header; copy them again")
    rate = sounds.rates[0]
    choice = Choice(rate, "the rate of the files")
    if rate > ENOUGH:
        reason = f"most files have {rate:,} Hz; sounds above {ENOUGH // 2:,} Hz need a higher rate"
        choice = Choice(ENOUGH, reason, True)
    elif len(sounds.rates) > 1:
        choice = Choice(rate, "the rate of most files; others are converted", True)
    shortest, median, most, longest = sounds.seconds
    seconds = Choice(longest, "the duration of all files")
    if shortest < longest or longest > LONGEST:
        extent = f"files have {shortest:.3g} to {longest:.3g} s, {median:.3g} in the median"
        reason = f"{extent}; longer ones are cut off, zeros follow shorter ones"
        seconds = Choice(max(round(min(most, 2 * median, LONGEST), 1), 0.1), reason, True)
    return _draft(request, "audio", {"rate": choice, "seconds": seconds})


# Encodings of Windows with their usual words: western ones also have letters of ASCII, Russian ones a capital at most.
WINDOWS = {"cp1252": r".*[A-Za-z].*|.", "cp1251": r"\W*\w?[а-яё]+\W*"}
FOREIGN_WORD, UNPRINTABLE = r"[^\s\d,;|\"']*[^\0-\x7f][^\s\d,;|\"']*", {*range(32)} - {*b"\t\n\r"}
# Rows of the smallest table.
LEAST_ROWS = 5
TABLES, TEXTS = (*table_files.TABLE_ENDINGS, *table_files.JSON_LINES, *table_files.EXCEL), (".txt", ".text", ".md")
# Endings and first lines of files that other programs read, with their format.
OTHER_FORMATS = {
    "HTML or XML": ((".html", ".htm", ".xml"), r"<[!?a-z][^>]*>"),
    "an ARFF file": ((".arff",), r"@relation\b"),
    "a LibSVM file": ((".libsvm", ".svm"), r"\S+( \d+:\S+)+\s*$"),
    "a file of fastText": ((".ft",), "__label__"),
    "a PDF or Word file": ((".pdf", ".doc", ".docx", ".odt", ".rtf"), r"%PDF"),
    "a database": ((".db", ".sqlite", ".sqlite3", ".mdb", ".sql"), r"SQLite format|create table\b|insert into\b"),
    "a file of a statistics program": ((".sav", ".dta", ".sas7bdat", ".rds", ".rdata", ".mat"), r"\$FL2"),
    "a file of Python or HDF5": ((".pkl", ".pickle", ".joblib", ".h5", ".hdf5", ".pt"), "\x80[\x02-\x05]"),
    "an archive": ((".tar", ".tgz", ".7z", ".rar"), "7z\xbc\xaf"),
    "a spreadsheet or zip file other than .xlsx": ((".ods", ".numbers", ".xlsb"), "PK\x03\x04"),
    "JSON, Parquet or Arrow with another ending": ((), r"PAR1|ARROW1|[\[{]\s*($|[\"\[{])"),
}


def draft_data(request: Request) -> DataDraft:
    """Draft how a recipe reads the data of a request."""
    try:
        path = find(request.data_dir, request.path, "PATH")
    except NotAvailable:
        if not NAME.fullmatch(request.path):
            raise
        options = {"transpose": Choice(True, "emnist is transposed")} if request.path.split("/")[0] == "emnist" else {}
        return _draft(request, "tfds", options, "pictures with one label each", key="dataset")
    if not path.is_dir():
        return _draft_file(path, request)
    names, draft = {entry.name for entry in path.iterdir()}, _draft_folder(path, request)
    _, tests = find_split_names(names)
    _, others = find_split_names(names - {*tests})
    notes = [f"{name} is not read, since {tests[0]} is the test split" for name in others]
    return replace(draft, notes=(*draft.notes, *notes))


def _draft_folder(path, request):
    if (path / "x_train.npy").exists():
        return _draft(request, "npy", {}, "whole numbers as labels")
    folders = (path, path / "data", path / "train")
    if any(each.is_dir() and any(file.suffix in ARROW for file in each.iterdir()) for each in folders):
        return _draft_arrow(path, request)
    endings, files = {file.suffix.lower() for file in iterate_files(path, CLASS_LEVELS)}, _find_file_splits(path)
    kind = next((kind for kind in (PICTURES, SOUNDS) if not endings.isdisjoint(kind.endings)), None)
    if kind and files and len(list_folders(split_folders(path)[0])) < 2:
        advice = f"move the {kind.noun} of each class into a folder with its name, or name {files[0]}"
        raise InputError(f"{path}: has {kind.noun} and {files[0].name}; {advice}")
    # A text beside folders describes them.
    if kind is None and files and not (files[0].suffix.lower() in TEXTS and has_text_folders(path)):
        # Paths of the recipe are the user's path with the names of the files.
        train, *test = (str(Path(request.path, file.name)) for file in files)
        return _draft_file(files[0], replace(request, path=train), *test)
    if {"images", "masks"} <= {entry.name for entry in split_folders(path)[0].iterdir()}:
        return _draft_masks(path, request)
    if kind is not None:
        is_audio, notes = kind is SOUNDS, tuple(f"{file.name} is not read: folders are the classes" for file in files)
        draft = _draft_audio(path, request) if is_audio else _draft(request, "folder", choose_size(_sample_files(path)))
        return replace(draft, notes=notes)
    if has_text_folders(path):
        table, *_ = read_text_folders(path, "text", "label")
        loader = {"name": Choice("labelled_text"), "path": Choice(request.path)}
        return draft_labelled(table, "text", inspect_table(table), request, loader)
    raise _folder_error(path)


def _folder_error(path):
    for file, kind in itertools.product(iterate_files(path, CLASS_LEVELS), (PICTURES, SOUNDS)):
        # It refuses other formats.
        kind.includes(file)
    names = sorted(entry.name for entry in path.iterdir())
    listed = ", ".join(names[:5]) + ", ..." * (len(names) > 5) or "nothing"
    return InputError(
        f"{path}: expected data of a loader. Received: a folder with {listed}; join text files into one file; {LOADERS}"
    )


def _find_file_splits(folder):
    """Return the file of the training and, if present, of the test split, or the only file; empty for others."""
    files = [each for each in sorted(folder.iterdir()) if each.is_file() and not each.name.startswith(".")]
    files = [each for each in files if table_files.table_ending(each) in (*TABLES, *TEXTS, ".npz")]
    train, test = find_split_names(each.name for each in files)
    if len(train) != 1 or len(test) > 1:
        return files if len(files) == 1 else []
    return [folder / each for each in (*train, *test) if Path(each).suffix == Path(train[0]).suffix]


def _draft_file(path, request, test=None):
    """Draft a file by its ending; `test` is the path of the test rows or None."""
    ending = table_files.table_ending(path)
    if ending == ".npz":
        return _draft_npz(path, request)
    if ending in ARROW:
        return _draft_arrow(path, request)
    for name in registry.names("data"):
        if ending in (registry.constant("data", name, "ENDINGS") or ()):
            tasks, reason = registry.find("data", name).possible_tasks(path)
            return _draft(request, name, {"name": Choice(name, f"it reads {path.suffix} files")}, reason, tasks)
    if ending in (*PICTURES.endings, *SOUNDS.endings, ".npy"):
        raise InputError(f"{path}: expected data of a loader. Received: a single file; name its folder; {LOADERS}")
    options = {"path": Choice(request.path)}
    if test is not None:
        options["test"] = Choice(test, "the file of the test split")
    content = table_files.read_content(path)
    line = content[:1000].lstrip().partition(b"\n")[0].decode("latin-1")
    is_known = ending in (*table_files.EXCEL, *table_files.JSON_LINES)
    for name, (endings, start) in OTHER_FORMATS.items():
        if ending in endings or (not is_known and re.match(start, line, re.IGNORECASE)):
            raise InputError(f"{path}: is {name}; save it as CSV or Parquet, for example with pandas")
    if ending not in TABLES and not table_files.is_table(path, content):
        loader = {"name": Choice("text"), "train": options.pop("path"), **options}
        return draft_running(read_words(path), request, loader)
    rows = _read_rows(path, content, ending, options)
    header = ending in table_files.JSON_LINES or rows.have_names
    if not header:
        options["header"] = Choice(False, "the first line has values like the lines below it", True)
    return _draft_rows(rows.build_table(header), request, "csv", options)


def _read_rows(path, content, ending, options):
    """Return the rows of a table, which may have an encoding of Windows; add the option that says so."""
    try:
        return table_files.read_rows(path, content)
    except InputError:
        is_text = ending in table_files.TABLE_ENDINGS and not UNPRINTABLE & {*content}
        for encoding, usual in WINDOWS.items() if is_text else ():
            words = re.findall(FOREIGN_WORD, content.decode(encoding, "replace"))
            if 2 * sum(bool(re.fullmatch(usual, word)) for word in words) > len(words):
                reason = f"the text is not UTF-8; set another encoding if {max(words, key=len)[:20]} has wrong letters"
                options["encoding"] = Choice(encoding, reason, True)
                return table_files.read_rows(path, content, encoding=encoding)
        raise


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
    if text is not None and request.task in (None, *LABEL_TASKS):
        return draft_labelled(table, text, summaries, request, {"name": Choice("labelled_text"), **options})
    if not {"header", "test"} & options.keys():
        times = find_times(table, summaries, request)
    if isinstance(times, tuple):
        return draft_series(table, times, summaries, request, options)
    draft = draft_table(table, summaries, request, {"name": Choice(loader), **options})
    return draft if times is None else replace(draft, notes=(*draft.notes, times))


def _draft_arrow(path, request):
    """Draft Parquet or Arrow files: pictures, texts or a table."""
    (table, *_), _ = read_splits(path, None)
    lists = [name for name in table.odd_types if name in table.columns]
    are_labels = any(name in request.label or name.lower() in LABEL_NAMES for name in lists)
    unreadable = [name for name in table.odd_types if not (are_labels and name in lists)]
    table = replace(table, columns={name: each for name, each in table.columns.items() if name not in unreadable})
    for image in (name for name, type_ in table.odd_types.items() if "binary" in type_):
        (pictures, *_), _ = read_splits(path, None, [image])
        if any(map(picture_header, pictures.columns.get(image, ())[:SAMPLED_PICTURES])):
            label, _ = choose_label(table, inspect_table(table), replace(request, task="classification"))
            size = choose_size(sample(pictures.columns[image], SAMPLED_PICTURES))
            options = {"label": label, "image": Choice(image, "picture files"), **size}
            return _draft(request, "parquet", options, "one label for each picture")
    is_single = len(table.columns) == 1 and not unreadable
    if is_single and (text := find_sentences(table, inspect_table(table), request)) is not None:
        column = table.columns[text]
        loader = {"name": Choice("text"), "train": Choice(request.path), "column": Choice(text, "its only column")}
        return draft_running(split_lines(column.texts[code] for code in column.codes), request, loader)
    draft = _draft_rows(table, request, "parquet", {"path": Choice(request.path)})
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
