"""Items of files, folders and the command line: order, matched columns, labels, and invalid ones among valid ones."""

import json
import struct
import zlib

import folders
import numpy as np
import pytest
from refusals import refusal

from hetero_tf.data.codecs import Field, category, number, picture, series, sound, words
from hetero_tf.export.predictions import ItemForm, open_items, parse_row

COLUMNS = Field("size", number.Codec()), Field("colour", category.Codec(("blue", "red")))
TABLE = ItemForm("label", 2, ("cow", "ox"), COLUMNS, ("kind",), True)
TEXT = ItemForm("label", 2, ("bad", "good"), (Field("text", words.Codec(9)),), ("label",), True)
IMAGES = ItemForm("label", 2, ("cat", "dog"), (Field("image", picture.Codec((1, 1, 1))),), (), True)


def items(form, *inputs):
    """(source, value, error, label) of each item, and the notes."""
    notes = []
    return [(i.source, i.value, i.error, i.label) for i in open_items([*map(str, inputs)], form, notes.append)], notes


def write(folder, name, content):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", "colour , size\r\nred, 1.5\r\n\r\nblue,2\r\n"),
        ("a.txt", "size\tcolour\n1.5\tred\n2\tblue\n"),
        ("a.jsonl", '{"size": 1.5, "colour": "red"}\n\n{"colour": "blue", "size": "2"}\n'),
    ],
)
def test_rows_are_read_by_column_name(tmp_path, name, content):
    path = write(tmp_path, name, content)
    read, notes = items(TABLE, path, "size=3,colour=blue")
    assert [value for _, value, _, _ in read] == [(1.5, "red"), (2, "blue"), (3, "blue")] and notes == []
    assert [source.removeprefix(f"{path}:").isdigit() for source, *_ in read] == [True, True, False]


def test_other_columns_are_ignored_and_the_label_is_read(tmp_path):
    names = ",".join(f"c{index}" for index in range(12))
    path = write(tmp_path, "a.csv", f"kind,size,{names},colour\nox,1,{',' * 11},red\n bull ,1,{',' * 11},red\n")
    read, notes = items(TABLE, path)
    assert [label for *_, label in read] == ["ox", None]
    assert notes == [f"{path}: ignored columns: {', '.join(f'c{index}' for index in range(10))} and 2 more"]


def test_invalid_values_do_not_hide_the_other_rows(tmp_path):
    read, _ = items(TABLE, write(tmp_path, "a.csv", "size,colour\n1,rad\n1,red\n\nx,red\n,red\n3,red\n"))
    assert [source.rpartition(":")[2] for source, *_ in read] == [*"23567"]
    assert [value for _, value, _, _ in read] == [None, (1, "red"), None, None, (3, "red")]
    assert [error for _, _, error, _ in read if error] == [
        "column 'colour' must be one of blue, red. Received: 'rad'; did you mean 'red'?",
        "column 'size' must be a finite number. Received: 'x'",
        "column 'size' must be a finite number. Received: ''",
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("size,colour\n", "expected at least one row of data. Received: none"),
        ("size;color\n1;red\n", "has no column 'colour'; did you mean 'color'?"),
        ("size,colour\n1,red\n1\n", "must have 2 values separated by ',', like the first line. Received: 1, ['1']"),
    ],
)
def test_files_without_the_columns_are_rejected(tmp_path, content, message):
    path = write(tmp_path, "a.csv", content)
    assert refusal(items, TABLE, path).replace(f"{path}:3: ", "").removeprefix(f"{path}: ") == message


COLUMN_0_2 = Field("column_0", number.Codec()), Field("column_2", number.Codec())


def test_rows_without_a_header(tmp_path):
    form = ItemForm("label", 2, ("cow", "ox"), COLUMN_0_2, ("column_1",), False)
    read, _ = items(form, write(tmp_path, "a.csv", "1,ox,2\n3,cow,4\n"), write(tmp_path, "b.csv", "5,6\n"))
    assert [(value, label) for _, value, _, label in read] == [((1, 2), "ox"), ((3, 4), "cow"), ((5, 6), None)]


def test_row_is_written_in_order_or_by_name():
    names = ["size (cm)", "c", "k"]
    for row in ("2.5, red, y", "k=y,size (cm) = 2.5,c=red"):
        assert {name: text.strip() for name, text in parse_row(row, names).items()} == dict(
            zip(names, ("2.5", "red", "y"))
        )
    assert parse_row("2.5,a=b,x", names)["c"] == "a=b"
    for row in ("", "1,red", "1,red,x,x", "k=x,k=y,c=red", "k=x,2.5,red", "c=red,k=x,sice=2"):
        message = refusal(parse_row, row, names)
        assert "a value for each column, size (cm), c, k, separated by commas" in message and repr(row) in message


def test_texts_are_lines_columns_or_arguments(tmp_path):
    lines = write(tmp_path, "a.txt", b"\xef\xbb\xbfone two\r\n\r\nthree, four\n")
    table = write(tmp_path, "b.csv", 'label,text\ngood,"a\nb"\n,"c, d"\n')
    objects = write(tmp_path, "c.jsonl", json.dumps({"text": "e", "label": "bad"}))
    read, _ = items(TEXT, "f g", lines, table, objects)
    assert read == [
        ("f g", (b"f g",), None, None),
        (f"{lines}:1", (b"one two",), None, None),
        (f"{lines}:3", (b"three, four",), None, None),
        (f"{table}:3", (b"a\nb",), None, "good"),
        (f"{table}:4", (b"c, d",), None, None),
        (f"{objects}, row 1", (b"e",), None, "bad"),
    ]
    assert refusal(items, TEXT, "missing.txt") == "missing.txt: no such file"
    assert refusal(items, TEXT, write(tmp_path, "d.txt", "\n")) == (
        f"{tmp_path}/d.txt: expected at least one row. Received: none"
    )


def png():
    """A grey PNG of one pixel."""

    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    parts = chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)), chunk(b"IDAT", zlib.compress(b"\0\7"))
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts) + chunk(b"IEND", b"")


def test_pictures_of_a_folder_in_order(tmp_path):
    for name in ("dog/2.png", "cat/x/1.PNG", "cat/.hidden/1.png", "other.png", "notes.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        write(tmp_path, name, png())
    write(tmp_path, "scan.tiff", b"II*\0" + bytes(99))
    write(tmp_path, "empty.png", b"")
    read, _ = items(IMAGES, tmp_path, tmp_path / "gone.png")
    assert [(source.removeprefix(f"{tmp_path}/"), error, label) for source, _, error, label in read] == [
        ("cat/x/1.PNG", None, "cat"),
        ("dog/2.png", None, "dog"),
        ("empty.png", "is empty; copy it again", None),
        ("other.png", None, None),
        ("scan.tiff", "is not a readable PNG, JPEG, BMP, GIF or WebP picture; convert it, or copy it again", None),
        ("gone.png", "could not read: No such file or directory", None),
    ]
    np.testing.assert_allclose(read[0][1], [[[[7 / 255]]]])
    (tmp_path / "none").mkdir()
    assert refusal(items, IMAGES, tmp_path / "none") == (
        f"{tmp_path}/none: expected .png, .jpg, .jpeg, .bmp, .gif, .webp files. Received: none"
    )


def test_series_are_the_last_rows_of_files(tmp_path):
    form = ItemForm("numbers", 1, ("next",), (Field("series", series.Codec((2, 2), ("b", "a"))),), (), True)
    long = write(tmp_path, "a.csv", "a,x,b\n1,?,2\n3,?,4\n5,?,6\n")
    short = write(tmp_path, "b.csv", "a,b\n1,2\n")
    (_, value, error, _), *others = items(form, long, short, tmp_path / "c.csv")[0]
    assert value[0].tolist() == [[4, 3], [6, 5]] and error is None
    assert [error for _, _, error, _ in others] == [
        "must have 2 columns of numbers and at least 2 rows, the oldest first. Received: 2 columns, 1 rows",
        "could not read: No such file or directory",
    ]


def test_a_clip_has_samples(tmp_path):
    folders.write_sounds(tmp_path / "own", clips=1)
    form = ItemForm("label", 2, ("high", "low"), (Field("audio", sound.Codec(500, 4000)),), (), True)
    read, _ = items(form, tmp_path / "own")
    assert [(error, label) for *_, error, label in read] == [(None, "high"), (None, "low")]
    assert read[0][1][0].shape == (500,) and abs(read[0][1][0]).max() > 0.49
