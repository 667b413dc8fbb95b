"""predict: items, their predictions as those of the model and the export, and the files of both."""

import dataclasses
import json
import os
import zlib

import exports
import folders
import numpy as np
import predicted
import pytest
import tensorflow as tf
import tiny
from refusals import refusal

import hetero_tf
from hetero_tf.base.errors import DiskProblem, InputError
from hetero_tf.data.codecs import Field, category, number, picture, series, sound, words
from hetero_tf.data.inputs import all_labels
from hetero_tf.data.masks import decode_mask
from hetero_tf.export import predictions
from hetero_tf.export.predictions import (
    ItemForm,
    check_output,
    encode_class_map,
    open_items,
    parse_row,
    predictor_of_process,
    write,
    write_maps,
)
from hetero_tf.recipe import load
from hetero_tf.run.data import load_data

NAMES = tuple(f"digit {index}" for index in range(10))


@pytest.fixture(scope="module")
def pictures():
    """A process with class names, its model and its predictor."""
    recipe = load("tiny/digits", ["levels.mix=a"])
    dataset = dataclasses.replace(load_data(recipe, None), class_names=NAMES)
    process = hetero_tf.learning_process(recipe, dataset=dataset)
    with tiny.eagerly():
        model = process.network(exports.state(process))
    return process, model, predictor_of_process(process, model)


@pytest.fixture(scope="module")
def sentences():
    process = exports.process(*exports.TEXT)
    return predictor_of_process(process, process.network(exports.state(process)))


def write_picture(folder, pixels, name="picture.png"):
    path = folder / name
    path.write_bytes(tf.io.encode_png(pixels).numpy())
    return str(path)


def test_pictures_get_the_labels_of_the_model(pictures, tmp_path):
    process, model, predictor = pictures
    raw = np.rint(process.dataset.test.x[:2] * (255 / process.dataset.test.x.max())).astype(np.uint8)
    paths = [write_picture(tmp_path, prediction, f"{index}.png") for index, prediction in enumerate(raw)]
    key, labels = tf.zeros([1], tf.int32), tf.zeros([2], tf.int32)
    inputs, _ = process.input.batch(tf.constant(raw), labels, tf.range(2), 0, key, all_labels(10), training=False)
    probabilities = tf.nn.softmax(model(inputs, training=False)).numpy()
    for prediction, path, expected in zip(predicted.run(predictor, paths), paths, probabilities, strict=True):
        best = np.argsort(-expected)[:3]
        names, shares = list(prediction.fields.values())[::2], list(prediction.fields.values())[1::2]
        assert list(prediction.fields)[2:4] == ["class_2", "probability_2"] and names == [
            NAMES[label] for label in best
        ]
        np.testing.assert_allclose(shares, expected[best], rtol=1e-5)
        assert (prediction.source, prediction.value, prediction.error) == (path, None, None)


def test_each_mask_gets_likely_words(sentences):
    (prediction,) = predicted.run(sentences, ["word3 <mask> word4<MASK>"], top=9)
    words, shares = list(prediction.fields.values())[::2], np.array(list(prediction.fields.values())[1::2])
    assert [len(pair) for pair in words] == [2] * 5 and {word for pair in words for word in pair} <= {
        *exports.process(*exports.TEXT).dataset.codec.vocabulary
    }
    assert (np.diff(shares, axis=0) <= 0).all() and (shares > 0).all() and (shares.sum(0) <= 1).all()


def test_an_invalid_item_does_not_lose_the_others(pictures, sentences, tmp_path):
    good = write_picture(tmp_path, np.zeros((8, 8, 1), np.uint8))
    colour = write_picture(tmp_path, np.zeros((30, 12, 3), np.uint8), "colour.png")
    (tmp_path / "notes.txt").write_text("hello")
    results = predicted.run(pictures[2], [good, tmp_path / "notes.txt", tmp_path / "gone.png", colour])
    assert [prediction.error for prediction in results] == [
        None,
        "is not a readable PNG, JPEG, BMP, GIF or WebP picture; convert it, or copy it again",
        "could not read: No such file or directory",
        None,
    ]
    assert set(results[1].fields.values()) == {None}
    # A batch of another size may differ in the last bits.
    assert results[0].fields == {
        key: value if isinstance(value, str) else pytest.approx(value, abs=1e-6)
        for key, value in results[-1].fields.items()
    }
    bad, best = predicted.run(sentences, ["no hidden word", "one <mask>"])
    assert bad.error == "a sentence must contain <mask> for the word to predict" and best.error is None
    process = exports.without_vocabulary()
    assert refusal(predictor_of_process, process, process.network(process.initialize())).startswith(
        "predict needs a data set with a vocabulary."
    )


def test_batches_keep_the_order_and_an_item_above_a_limit_fails_alone(sentences, monkeypatch):
    predictor, texts = sentences, [f"{'word3 ' * (index % 4)}<mask> word{index}" for index in range(9)]
    alone = [predicted.run(predictor, [text])[0] for text in texts]
    requests = []

    def serve(text):
        requests.append(len(text))
        return predictor.serve(text=text)

    together = predicted.run(dataclasses.replace(predictor, serve=serve), texts)
    assert requests == [9] and [each.source for each in together] == [each.source for each in alone] == texts
    for one, other in zip(alone, together):
        assert one.fields["word"] == other.fields["word"]
        np.testing.assert_allclose(one.fields["probability"], other.fields["probability"], rtol=1e-5)
    long = " ".join(["<mask>"] * (predictor.limits["words"] + 1))
    results = predicted.run(predictor, [texts[0], long, texts[1]])
    assert [each.fields for each in results[::2]] == [each.fields for each in alone[:2]]
    assert results[1].error == (
        f"a request must have at most {predictor.limits['words']} words, including the padding to its longest text."
    )
    monkeypatch.setattr(predictions, "BATCH_EXAMPLES", 2)
    requests.clear()
    predicted.run(dataclasses.replace(predictor, serve=serve), texts)
    assert requests == [2, 2, 2, 2, 1]
    assert not predictor.fits(2, predictor.limits["words"]) and predictor.fits(2, 9)


def test_a_row_has_the_input_then_its_columns():
    fields = {"class": "ox", "probability": 0.5}
    item = predictions.Item("a.csv:2", columns={"size": "1", "class": "cow"}, fields=fields)
    assert list(item.to_row(False).items()) == [("input", "a.csv:2"), *fields.items(), ("error", None)]
    assert list(item.to_row(True).items())[:3] == [("input", "a.csv:2"), ("size", "1"), ("input.class", "cow")]


COLUMNS = Field("size", number.Codec()), Field("colour", category.Codec(("blue", "red")))
TABLE = ItemForm("label", 2, ("cow", "ox"), COLUMNS, True)
TEXT = ItemForm("label", 2, ("bad", "good"), (Field("text", words.Codec(9)),), True)
IMAGES = ItemForm("label", 2, ("cat", "dog"), (Field("image", picture.Codec((1, 1, 1))),), True)


def items(form, *inputs):
    """(source, value, error) of each item, and the notes."""
    notes = []
    return [(i.source, i.value, i.error) for i in open_items([*map(str, inputs)], form, notes.append)], notes


def write_input(folder, name, content):
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
    path = write_input(tmp_path, name, content)
    read, notes = items(TABLE, path, "size=3,colour=blue")
    assert [value for _, value, _ in read] == [(1.5, "red"), (2, "blue"), (3, "blue")] and notes == []
    assert [source.removeprefix(f"{path}:").isdigit() for source, *_ in read] == [True, True, False]


def test_other_columns_are_ignored(tmp_path):
    names = ",".join(f"c{index}" for index in range(12))
    path = write_input(tmp_path, "a.csv", f"size,{names},colour\n1,{',' * 11},red\n1,{',' * 11},red\n")
    _, notes = items(TABLE, path)
    assert notes == [f"{path}: ignored columns: {', '.join(f'c{index}' for index in range(10))} and 2 more"]


def test_invalid_values_do_not_hide_the_other_rows(tmp_path):
    read, _ = items(TABLE, write_input(tmp_path, "a.csv", "size,colour\n1,rad\n1,red\n\nx,red\n,red\n3,red\n"))
    assert [source.rpartition(":")[2] for source, *_ in read] == [*"23567"]
    assert [value for _, value, _ in read] == [None, (1, "red"), None, None, (3, "red")]
    assert [error for _, _, error in read if error] == [
        "column 'colour' must be one of blue, red. Received: 'rad'; did you mean 'red'?",
        "column 'size' must be a finite number. Received: 'x'",
        "column 'size' must be a finite number. Received: ''",
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("size,colour\n", "expected at least one row of data. Received: none"),
        ("size;color\n1;red\n", "has no column 'colour'; did you mean 'color'?"),
        ("size,colour\n1,red\n1\n", "must have 2 values separated by ',', like the first line. Received: 1, ['1']; correct or remove the line"),
    ],
)  # fmt: skip
def test_files_without_the_columns_are_rejected(tmp_path, content, message):
    path = write_input(tmp_path, "a.csv", content)
    assert refusal(items, TABLE, path).replace(f"{path}:3: ", "").removeprefix(f"{path}: ") == message


COLUMN_0_2 = Field("column_0", number.Codec()), Field("column_2", number.Codec())


def test_rows_without_a_header(tmp_path):
    form = ItemForm("label", 2, ("cow", "ox"), COLUMN_0_2, False)
    read, _ = items(form, write_input(tmp_path, "a.csv", "1,ox,2\n3,cow,4\n"), write_input(tmp_path, "b.csv", "5,6\n"))
    assert [value for _, value, _ in read] == [(1, 2), (3, 4), (5, 6)]


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
    lines = write_input(tmp_path, "a.txt", b"\xef\xbb\xbfone two\r\n\r\nthree, four\n")
    table = write_input(tmp_path, "b.csv", 'label,text\ngood,"a\nb"\n,"c, d"\n')
    objects = write_input(tmp_path, "c.jsonl", json.dumps({"text": "e", "label": "bad"}))
    read, _ = items(TEXT, "f g", lines, table, objects)
    assert read == [
        ("f g", (b"f g",), None),
        (f"{lines}:1", (b"one two",), None),
        (f"{lines}:3", (b"three, four",), None),
        (f"{table}:3", (b"a\nb",), None),
        (f"{table}:4", (b"c, d",), None),
        (f"{objects}, row 1", (b"e",), None),
    ]
    assert refusal(items, TEXT, "missing.txt") == "missing.txt: no such file"
    assert refusal(items, TEXT, write_input(tmp_path, "d.txt", "\n")) == (
        f"{tmp_path}/d.txt: expected at least one row. Received: none"
    )


def test_pictures_of_a_folder_in_order(tmp_path):
    for name in ("dog/2.png", "cat/x/1.PNG", "cat/.hidden/1.png", "other.png", "notes.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        write_input(tmp_path, name, folders.png(1, 1, zlib.compress(b"\0\7")))
    write_input(tmp_path, "scan.tiff", b"II*\0" + bytes(99))
    write_input(tmp_path, "empty.png", b"")
    read, _ = items(IMAGES, tmp_path, tmp_path / "gone.png")
    assert [(source.removeprefix(f"{tmp_path}/"), error) for source, _, error in read] == [
        ("cat/x/1.PNG", None),
        ("dog/2.png", None),
        ("empty.png", "is empty; copy it again"),
        ("other.png", None),
        ("scan.tiff", "is not a readable PNG, JPEG, BMP, GIF or WebP picture; convert it, or copy it again"),
        ("gone.png", "could not read: No such file or directory"),
    ]
    np.testing.assert_allclose(read[0][1], [[[[7 / 255]]]])
    (tmp_path / "none").mkdir()
    assert refusal(items, IMAGES, tmp_path / "none") == (
        f"{tmp_path}/none: expected .png, .jpg, .jpeg, .bmp, .gif, .webp files. Received: none"
    )


def test_series_are_the_last_rows_of_files(tmp_path):
    form = ItemForm("numbers", 1, ("next",), (Field("series", series.Codec((2, 2), ("b", "a"))),), True)
    long = write_input(tmp_path, "a.csv", "a,x,b\n1,?,2\n3,?,4\n5,?,6\n")
    short = write_input(tmp_path, "b.csv", "a,b\n1,2\n")
    (_, value, error), *others = items(form, long, short, tmp_path / "c.csv")[0]
    assert value[0].tolist() == [[4, 3], [6, 5]] and error is None
    assert [error for _, _, error in others] == [
        "must have 2 columns of numbers and at least 2 rows, the oldest first. Received: 2 columns, 1 rows",
        "could not read: No such file or directory",
    ]


def test_a_clip_has_samples(tmp_path):
    folders.write_sounds(tmp_path / "own", clips=1)
    form = ItemForm("label", 2, ("high", "low"), (Field("audio", sound.Codec(500, 4000)),), True)
    read, _ = items(form, tmp_path / "own")
    assert [error for *_, error in read] == [None, None]
    assert read[0][1][0].shape == (500,) and abs(read[0][1][0]).max() > 0.49


ROWS = [
    {"input": "a,1", "word": ["x", "y"], "probability": [0.5, 0.25], "error": None},
    {"input": "\udcffé", "word": None, "probability": None, "error": 'b "c"', "other": 1},
]


@pytest.mark.parametrize(("ending", "sign"), [("csv", ","), ("TSV", "\t")])
def test_tables(tmp_path, ending, sign):
    write(tmp_path / f"out.{ending}", iter(ROWS))
    first = "a,1" if sign == "\t" else '"a,1"'
    lines = [
        ["input", "word", "probability", "error"],
        [first, "x; y", "0.5; 0.25", ""],
        ["\\udcffé", "", "", '"b ""c"""'],
    ]
    assert (tmp_path / f"out.{ending}").read_text("utf-8") == "".join(f"{sign.join(line)}\n" for line in lines)


def test_json_lines(tmp_path):
    write(tmp_path / "out.jsonl", iter(ROWS))
    text = (tmp_path / "out.jsonl").read_text("utf-8")
    assert "é" in text and [json.loads(line)["word"] for line in text.splitlines()] == [["x", "y"], None]


def test_an_earlier_file_stays_until_the_new_one_is_complete(tmp_path):
    path = tmp_path / "out.csv"
    path.write_text("earlier")

    def rows():
        yield ROWS[0]
        assert path.read_text() == "earlier"
        raise InputError("a file is gone")

    assert refusal(write, path, rows()) == "a file is gone"
    assert path.read_text() == "earlier" and [entry.name for entry in tmp_path.iterdir()] == ["out.csv"]
    message = refusal(write, tmp_path / "none" / "out.csv", iter(ROWS), kind=DiskProblem)
    assert "its folder does not exist" in message


def test_paths_are_checked(tmp_path):
    table = tmp_path / "rows.csv"
    table.write_text("a\n")
    os.link(table, tmp_path / "same.csv")
    (tmp_path / "link.csv").symlink_to(table)
    assert refusal(check_output, tmp_path / "out.xlsx", []) == (
        f"--out must end in one of .csv, .tsv, .jsonl, .ndjson. Received: --out={tmp_path}/out.xlsx"
    )
    for path in (table, tmp_path / "same.csv"):
        assert refusal(check_output, path, ["x", str(table)]) == (
            f"--out must not be an input, which would be lost. Received: --out={path}"
        )
    assert "expected a file or nothing. Received: a symbolic link" in refusal(check_output, tmp_path / "link.csv", [])
    check_output(tmp_path / "new.csv", [str(table)])


@pytest.fixture(scope="module")
def predictor():
    layers = "model.layers=[{PaddedConv2D: {filters: !w 4}}, ReLU, {Conv2D: {filters: !classes, kernel_size: 1}}]"
    process = hetero_tf.learning_process(load("tiny/shapes_unet", ["levels.mix=a", "model.settings={}", layers]))
    return predictor_of_process(process, process.network(process.initialize()))


def test_a_map_has_the_size_of_its_picture_and_is_a_mask_of_the_classes():
    classes = np.array([[0, 1, 2], [3, 4, 255]], np.int32)
    png = encode_class_map(classes, (6, 4))
    np.testing.assert_array_equal(decode_mask("map.png", png), np.kron(classes, np.ones((2, 2), int)))
    np.testing.assert_array_equal(decode_mask("map.png", encode_class_map(classes, (2, 1))), [[3, 255]])
    colors = tf.io.decode_png(encode_class_map(np.arange(256)[None], (256, 1)), 3).numpy()[0]
    assert colors[:4].tolist() == [[0, 0, 0], [128, 0, 0], [0, 128, 0], [128, 128, 0]]
    assert len(np.unique(colors, axis=0)) == 256


def test_every_valid_picture_gets_a_map(predictor, tmp_path):
    rng = np.random.default_rng(0)
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        picture = tf.constant(rng.integers(0, 256, (20, 30, 3), np.uint8))
        (tmp_path / folder / "a.png").write_bytes(tf.io.encode_png(picture).numpy())
    (tmp_path / "one" / "bad.png").write_bytes(b"\x89PNG\r\n\x1a\n123")
    maps = tmp_path / "new" / "maps"
    predictions = list(write_maps(maps, predictor.form, predicted.run(predictor, [tmp_path / "one", tmp_path / "two"])))
    paths = [prediction.fields["map"] for prediction in predictions]
    assert paths == [str(maps / "0001.png"), None, str(maps / "0003.png")]
    assert "is not a readable" in predictions[1].error and sorted(map(str, maps.iterdir())) == [paths[0], paths[2]]
    for path, prediction in zip(paths[::2], predictions[::2]):
        mask = decode_mask(path, (maps / path).read_bytes())
        assert mask.shape == (20, 30)
        rows, columns = ((np.arange(size) + 0.5) * 16 // size for size in mask.shape)
        np.testing.assert_array_equal(mask, prediction.class_map[np.ix_(rows.astype(int), columns.astype(int))])
        assert prediction.to_row(False).keys() >= {"class", "share", "map", "error"}


def test_a_folder_of_maps_does_not_replace_a_file(predictor, tmp_path):
    (tmp_path / "maps").write_text("")
    assert "expected a folder or nothing" in refusal(list, write_maps(tmp_path / "maps", predictor.form, []))
