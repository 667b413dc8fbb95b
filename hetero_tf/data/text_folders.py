"""Reads folders of text files, one folder for each class, as tables of texts and labels."""

from pathlib import Path

from hetero_tf.base.files import decode, read_bytes
from hetero_tf.data.folder import FileKind, iterate_files, list_class_folders, list_folders, split_folders
from hetero_tf.data.raw_table import RawTable, TextColumn

TEXTS = FileKind("labelled_text", "text files", ".txt", (".txt", ".text"), (".pdf", ".doc", ".docx", ".odt", ".rtf"))
# Bytes of the largest text.
LARGEST_TEXT = 2**20


def has_text_folders(folder: Path) -> bool:
    """Return whether a folder, or the one of its training split, has folders with text files."""
    train, _ = split_folders(folder)
    return any(
        file.suffix.lower() in TEXTS.endings for name in list_folders(train) for file in iterate_files(train / name)
    )


def read_text_folders(folder: Path, text: str, label: str) -> list[RawTable]:
    """Read the tables of the training and, if present, of the test split.

    Args:
        folder: FOLDER/CLASS/*.txt, or FOLDER/train/CLASS/*.txt and FOLDER/test/CLASS/*.txt.
        text, label: Names of the columns.

    Raises:
        InputError: See `list_class_folders`; or a file is not UTF-8 text.
    """
    names, *splits = list_class_folders(folder, TEXTS)
    return [_read_table(split, names, text, label) for split in splits if split is not None]


def _read_table(split, names, text, label):
    contents = [decode(read_bytes(file, LARGEST_TEXT, follow=True), file) for file in split.files]
    labels = TextColumn.from_values(names[number] for number in split.labels)
    columns = {text: TextColumn.from_values(contents), label: labels}
    return RawTable(str(split.folder), columns, lambda row: str(split.files[row]))
