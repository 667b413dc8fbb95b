"""Parquet and Arrow files, and the folders of Hugging Face's `datasets`: splits, columns, pictures, refusals."""

import datetime
import functools
import json
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf
from refusals import check_refusals, refusal

from hetero_tf.base.errors import InputError
from hetero_tf.data import parquet
from hetero_tf.data.codecs import Field, category, number

KINDS = ("cow", "ox")


def rows(count=20, first=0, kinds=True):
    index = np.arange(first, first + count)
    return pa.table(
        {
            "height": index + 0.5,
            "number": index % 5,
            "colour": pa.array(["red" if one % 3 else "blue" for one in index]).dictionary_encode(),
            "wild": index % 2 == 0,
            "farm": [f"f{one % 4}" for one in index],
            "label": [KINDS[one % 2] for one in index] if kinds else index % 2,
        }
    )


def features(names=("ox", "cow")):
    """Return the metadata that `datasets` writes for a column of labels."""
    return {"label": {"names": list(names), "_type": "ClassLabel"}}


def write_arrow(folder, table, **state):
    """A folder as `save_to_disk` writes it, in two files."""
    folder.mkdir(parents=True)
    for part in range(2):
        half = table.slice(part * (table.num_rows // 2), table.num_rows // 2)
        path = folder / f"data-0000{part}-of-00002.arrow"
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(half)
    (folder / "dataset_info.json").write_text(json.dumps({"features": features()}))
    (folder / "state.json").write_text(json.dumps(state))


def picture(shade, size=5):
    return tf.io.encode_png(np.full((size, size, 1), shade, np.uint8)).numpy()


def load(folder, **options):
    return parquet.load(folder, **{"path": "own.parquet", **options})


def test_file_is_a_table(tmp_path):
    pq.write_table(rows(), tmp_path / "own.parquet", row_group_size=7)
    dataset = load(tmp_path, owner="farm", categorical=("number",))
    assert (dataset.codec.KIND, dataset.class_names) == ("table", KINDS)
    codecs = number.Codec(), category.Codec(tuple("01234")), category.Codec(("blue", "red")), number.Codec()
    assert dataset.fields == tuple(map(Field, ("height", "number", "colour", "wild"), codecs))
    assert (len(dataset.train.x), len(dataset.test.x)) == (16, 4)
    for split in (dataset.train, dataset.test):
        index = (split.x[:, 0] - 0.5).astype(int)
        assert split.y.tolist() == (index % 2).tolist() and split.owners.tolist() == (index % 4).tolist()
        assert split.x[:, 1:6].argmax(1).tolist() == (index % 5).tolist()
        assert split.x[:, 8].tolist() == (index % 2 == 0).tolist()


def layouts(folder):
    """The two splits, 8 and 4 rows, in every layout that is known: `{name: path}`."""
    train, test = rows(8, kinds=False), rows(4, 100, kinds=False)
    about = {b"huggingface": json.dumps({"info": {"features": features()}}).encode()}
    tables = [table.replace_schema_metadata(about) for table in (train, test)]
    write_arrow(folder / "saved" / "train", train)
    write_arrow(folder / "saved" / "test", test)
    (folder / "saved" / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    for name in ("hub/data", "names"):
        (folder / name).mkdir(parents=True)
        pq.write_table(tables[0].slice(0, 5), folder / name / "train-00000-of-00002.parquet")
        pq.write_table(tables[0].slice(5), folder / name / "train-00001-of-00002.parquet")
        pq.write_table(tables[1], folder / name / "Validation-00000-of-00001.parquet")
    return ("saved", "hub", "names")


def test_every_layout_gives_the_same_rows(tmp_path):
    datasets = [load(tmp_path, path=name, ignore=("farm",)) for name in layouts(tmp_path)]
    assert len({one.sha256 for one in datasets}) == 1
    assert datasets[0].class_names == ("ox", "cow") and datasets[0].source == f"table ({tmp_path}/saved)"
    assert (datasets[0].train.x[:, 0] - 0.5).tolist() == list(range(8))
    assert datasets[0].train.y.tolist() == [0, 1] * 4 and datasets[0].test.x[0, 0] == 100.5
    other = load(tmp_path, path="saved", test="hub/data/train-00000-of-00002.parquet", ignore=("farm",))
    assert (len(other.train.x), len(other.test.x)) == (8, 5)


@pytest.mark.parametrize("hugging_face", [True, False])
def test_column_of_pictures_becomes_images(tmp_path, hugging_face):
    files = [picture(shade, 4 + index) for index, shade in enumerate([10, 200] * 6)]
    column = [{"bytes": file, "path": None} for file in files] if hugging_face else files
    table = pa.table({"image": column, "label": [index % 2 for index in range(12)], "writer": [7, 7, 9, 9] * 3})
    pq.write_table(table, tmp_path / "own.parquet")
    dataset = load(tmp_path, image="image", size=6, channels=1, owner="writer", test_share=0.5)
    assert (dataset.codec.KIND, dataset.class_names) == ("images", ("0", "1")) and len(dataset.fields) == 1
    assert dataset.train.x.shape == (6, 6, 6, 1) and dataset.source == f"pictures ({tmp_path}/own.parquet)"
    for split in (dataset.train, dataset.test):
        assert (split.x[:, 0, 0, 0] == np.array([10, 200])[split.y]).all() and set(split.owners.tolist()) <= {0, 1}
    assert re.search(r"'image' must contain numbers, texts or dates; .* or set it as `image`", refusal(load, tmp_path))
    if hugging_face:
        paths = table.set_column(0, "image", [[{"bytes": None, "path": f"{index}.png"} for index in range(12)]])
        pq.write_table(paths, tmp_path / "own.parquet")
        assert "row 0: column 'image' has no picture bytes here" in refusal(load, tmp_path, image="image", size=6)
    table = table.set_column(0, "image", [[b"GIF89a"] * 12])
    pq.write_table(table, tmp_path / "own.parquet")
    assert "own.parquet, row 0: is not a readable PNG, JPEG, BMP, GIF" in refusal(load, tmp_path, image="image", size=6)


def test_nulls_are_filled_and_dates_become_features(tmp_path):
    days = [datetime.date(2024, 1, 31), datetime.date(2024, 2, 1), None, datetime.date(2023, 1, 1)]
    table = rows(4).append_column("day", [days]).append_column("odd", [[1, None, 3, 8]])
    pq.write_table(table, tmp_path / "own.parquet")
    dataset = load(tmp_path, test_share=0.5, columns={"day": "date"}, missing="median", scale={"odd": "none"})
    day, odd = (field.codec for field in dataset.fields[-2:])
    missing = {column.name: column.missing for column in dataset.summary.columns}
    assert (day.order, odd.scale, missing["day"]) == ("ymd", "none", 1)
    values = np.concatenate([dataset.train.x, dataset.test.x])
    drawn = values[:, 1].astype(int).tolist()
    assert (
        float(odd.fill) in values[:, -1]
        and [[1, float(odd.fill), 3, 8][row] for row in drawn] == values[:, -1].tolist()
    )


def test_labels_that_are_numbers_have_few_texts_and_the_first_wrong_row_is_named(tmp_path):
    labels = [[2.5, -0.0, 0.0, 2.5], [True, False, False, True], [7, -1, 7, -1]]
    for values, names in zip(labels, [("0", "2.5"), ("0", "1"), ("-1", "7")], strict=True):
        pq.write_table(rows(4).set_column(5, "label", [values]), tmp_path / "own.parquet")
        dataset = load(tmp_path, test_share=0.5)
        # Rows are drawn apart; `number` says which they were.
        for split in (dataset.train, dataset.test):
            rows_drawn = split.x[:, 1].astype(int)
            assert [dataset.class_names[y] for y in split.y] == [names[values[row] > 0.5] for row in rows_drawn]
    for row, values in ((1, [0.5, float("nan"), float("nan"), 0.0]), (2, ["x", "y", " ", " "])):
        pq.write_table(rows(4).set_column(5, "label", [values]), tmp_path / "own.parquet")
        assert f"row {row}: column 'label' has no value here" in refusal(load, tmp_path, test_share=0.5)


def test_files_that_are_damaged_or_do_not_belong_together(tmp_path):
    pq.write_table(rows(), tmp_path / "own.parquet")
    whole = (tmp_path / "own.parquet").read_bytes()
    for content in (b"", b"PAR1", whole[:-9], whole[:100] + whole[120:], b"x" * 400):
        (tmp_path / "own.parquet").write_bytes(content)
        with pytest.raises(InputError, match="own.parquet: is damaged, or not a Parquet or Arrow file") as error:
            load(tmp_path)
        assert "\n" not in str(error.value)
    (tmp_path / "own.arrow").write_bytes(b"x" * 40)
    assert "own.arrow: is damaged, or not a Parquet or Arrow file" in refusal(load, tmp_path, path="own.arrow")
    with pa.OSFile(str(tmp_path / "own.arrow"), "wb") as sink, pa.ipc.new_file(sink, rows().schema) as writer:
        writer.write_table(rows())
    assert len(load(tmp_path, path="own.arrow").train.x) == 16
    content = (tmp_path / "own.arrow").read_bytes()
    (tmp_path / "own.arrow").write_bytes(content.replace(b"cowoxcow", b"cow\xff\xffcow"))
    assert re.search("own.arrow: is damaged, .* Invalid UTF8", refusal(load, tmp_path, path="own.arrow"))
    (tmp_path / "two").mkdir()
    pq.write_table(rows(), tmp_path / "two" / "a.parquet")
    pq.write_table(rows(kinds=False), tmp_path / "two" / "b.parquet")
    assert re.search("b.parquet: must have the columns of .*a.parquet, with the", refusal(load, tmp_path, path="two"))
    (tmp_path / "none").mkdir()
    assert " or .pq files. Received: none; data: npz reads .npz files" in refusal(load, tmp_path, path="none")


def test_saved_sets_in_another_order_or_with_odd_labels_are_rejected(tmp_path):
    write_arrow(tmp_path / "mixed", rows(), _indices_data_files=[{"filename": "indices.arrow"}])
    assert "flatten_indices() and save_to_disk() again" in refusal(load, tmp_path, path="mixed")
    write_arrow(tmp_path / "odd", rows(kinds=False).set_column(5, "label", [[0, 1] * 9 + [2, 1]]))
    with pytest.raises(InputError, match=r"of-00002.arrow, row 8: column 'label' must be in 0..1, .* Received: 2"):
        load(tmp_path, path="odd")
    (tmp_path / "odd" / "dataset_info.json").write_text("{")
    assert "dataset_info.json: is damaged" in refusal(load, tmp_path, path="odd")


def test_options_that_do_not_fit_are_rejected(tmp_path):
    pq.write_table(rows(), tmp_path / "own.parquet")
    check_refusals(
        functools.partial(load, tmp_path),
        ({"image": "height"}, "`image` and `size` must be set together, or neither. Received: image='height'"),
        ({"size": 8}, "`image` and `size` must be set together"),
        (
            {"image": "height", "size": 8},
            "own.parquet: `image` must name a column of picture files. Received: image='height'",
        ),
        ({"image": "im", "size": 8}, "`image` must name a column. Received: image='im'"),
    )


@pytest.mark.parametrize("options", [{}, {"use_dictionary": False, "column_encoding": {"kind": "DELTA_BYTE_ARRAY"}}])
def test_texts_of_each_encoding_are_read_and_nested_columns_may_be_ignored(tmp_path, options):
    table = pa.table({"kind": ["a", "b"] * 10, "deep": [[0]] * 20, "label": np.arange(20) % 2})
    pq.write_table(table, tmp_path / "own.parquet", **options)
    assert load(tmp_path, ignore=("deep",)).codec.categories == ("a", "b")


def test_ignored_columns_may_be_absent_in_the_test_rows(tmp_path):
    pq.write_table(rows(), tmp_path / "own.parquet")
    pq.write_table(rows(6).drop(["number"]), tmp_path / "test.parquet")
    dataset = load(tmp_path, test="test.parquet", ignore=("number", "farm"))
    assert (len(dataset.train.x), len(dataset.test.x)) == (20, 6)
    message = refusal(load, tmp_path, test="test.parquet", ignore=("farm",))
    assert message.endswith("Received: ['number'] in only one of them")
