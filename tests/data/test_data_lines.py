"""Summaries of columns, and the lines and warnings about a data set."""

import io

import numpy as np
import pytest
from PIL import Image

from hetero_tf.base.formatting import LINE
from hetero_tf.data import csv
from hetero_tf.data.codecs import Field, running_text, words
from hetero_tf.data.columns import RawTable, TextColumn
from hetero_tf.data.dataset import Dataset, Split
from hetero_tf.data.fields import array_fields
from hetero_tf.data.inspection import describe_pictures, inspect_column, inspect_table, sample


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["3", "1.5", "", "3"], ("number", 1, 2, "1.5", "3")),
        (["1,5", "2,25", "-"] * 2, ("number", 2, 2, "1.5", "2.25")),
        (["1", "2", "two"], ("number", 0, 2, "1", "2")),
        (["1,5", "2,25", "NA"], ("number", 1, 2, "1.5", "2.25")),
        (["12 %", "5 %"], ("number", 0, 2, "0.05", "0.12")),
        (["(1,500)", "$-2.50", "$1,000"], ("number", 0, 3, "-1500", "1000")),
        (["0,446", "12,50-", "1.234,5"], ("number", 0, 3, "-12.5", "1234.5")),
        (["007", "012"], ("number", 0, 2, "7", "12")),
        ([str(n) for n in range(5, 30)], ("id", 0, 25, "5", "29")),
        (["red", "blue", "red"], ("category", 0, 2, "", "")),
        ([f"user{n}" for n in range(30)], ("id", 0, 30, "", "")),
        ([f"Anna {n}" for n in range(30)], ("text", 0, 30, "", "")),
        (["2024-02-29 07", "2023-12-31T10:00:00Z", ""], ("date", 1, 2, "2023-12-31", "2024-02-29")),
        (["3-Jan-21", "Jan-22", "202302", "2024022907", "2023-12-31 24"], ("date", 0, 5, "2021-01-03", "2024-02-29")),
        (["20240229", "20231231"], ("date", 0, 2, "2023-12-31", "2024-02-29")),
        (["", "NA"], ("category", 2, 0, "", "")),
        (["9999-12-31 24:00", "red"], ("category", 0, 2, "", "")),
    ],
)
def test_type_follows_from_the_values(values, expected):
    summary = inspect_column("c", TextColumn.from_values(values))
    assert (summary.type, summary.missing, summary.distinct, summary.low, summary.high) == expected
    assert (summary.name, summary.rows) == ("c", len(values))


def test_notations_and_numbers_of_files_with_types_are_summarized():
    notations = {"1.234,5": "comma", "1,234.5": "point", "₹1,234": "point", "12": "plain", "007": "plain"}
    for text, notation in notations.items():
        assert inspect_column("c", TextColumn.from_values([text])).notation == notation
    for text, orders in {"01/02/2024": ("dmy", "mdy"), "01/13/2024": ("mdy",), "2024-Jan-9": ("ymd",)}.items():
        assert inspect_column("c", TextColumn.from_values([text])).date_orders == orders
    columns = {"a": np.array([1, 2, 2]), "b": np.array([0.5, np.nan, 2], np.float32), "c": [b"png"] * 3}
    first, second = inspect_table(RawTable("t", columns, str)).values()
    assert (first.type, first.low, first.high, first.is_whole) == ("number", "1", "2", True)
    assert first.frequent == (("2", 2), ("1", 1))
    assert (second.missing, second.distinct, second.low, second.high, second.is_whole) == (1, 2, "0.5", "2", False)


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        *((numbers, False) for numbers in (range(30), range(1, 31), range(20))),
        *((numbers, True) for numbers in (range(17, 90), np.arange(30) / 2, [*range(29), 40])),
    ],
)
def test_many_numbers_are_continuous_unless_they_number_classes(numbers, expected):
    values = np.array([*numbers, *numbers])
    assert inspect_column("c", values).is_continuous == expected
    assert inspect_column("c", TextColumn.of(values)).is_continuous == expected


def test_sizes_and_modes_of_pictures_are_in_their_headers():
    contents = []
    for kind, mode, size in (
        *[("PNG", "L", (9, 7)), ("PNG", "RGB", (20, 8)), ("JPEG", "L", (9, 7)), ("JPEG", "RGB", (20, 8))],
        *[("GIF", "P", (30, 10)), ("BMP", "RGB", (9, 9)), ("JPEG", "CMYK", (9, 9))],
    ):
        file = io.BytesIO()
        Image.new(mode, size, 1).save(file, kind)
        contents.append(file.getvalue())
    text = describe_pictures([*contents, b"", b"GIF8", contents[0][:20], b"no picture"])
    assert text == "files 7 x 9 to 10 x 30 (3 color, 2 grey, 1 palette, 1 CMYK)"
    assert describe_pictures([b"no picture"]) is None
    assert (sample(range(5), 9), sample(range(11), 3), sample([7], 3)) == ([0, 1, 2, 3, 4], [0, 5, 10], [7])


def dataset(x, y=None, codec=None, **named):
    y = np.asarray(y, np.int32) if isinstance(y, list) else y
    fields = array_fields("table" if x.ndim == 2 else "images", x) if codec is None else (Field("text", codec),)
    split = Split(x, y)
    return Dataset(split, split, named.pop("fields", fields), named.pop("classes", 2), "s", **named)


def test_each_column_of_a_table_has_a_line(tmp_path):
    lines = ["id,price,colour,joined,farm,name,kind"]
    lines += [
        f"{n},{n}.5,{'red' if n % 4 else 'blue'},2024-01-{1 + n:02},f{n % 3},n{n},{'uv'[n % 2]}" for n in range(24)
    ]
    lines[3] = lines[3].replace("2.5", "NA")
    (tmp_path / "t.csv").write_text("\n".join(lines))
    options = {"columns": {"joined": "date", "name": "ignore"}, "owner": "farm", "missing": "mean", "label": "kind"}
    table = csv.load(tmp_path, path="t.csv", **options)
    assert table.describe() == [
        "columns: 7 of 24 rows",
        "  id      number    0 to 23, 24 distinct",
        "  price   number    1 missing, 0.5 to 23.5, 23 distinct",
        "  colour  category  2 distinct: red 75 %, blue 25 %",
        "  joined  date      2024-01-01 to 2024-01-24, 24 distinct",
        "  farm    owner     3 distinct",
        "  name    ignored   24 distinct",
        "  kind    label     2 distinct",
        "classes: u 50.0 %, v 50.0 % of 20 examples",
    ]
    assert table.warnings(3) == ["column 'id' numbers the rows; add it to `ignore`"]


def test_wide_tables_and_long_names_keep_to_the_page():
    names = tuple(f"a very long name of a class, number {number}" for number in range(6))
    wide = dataset(np.random.rand(12, 300).astype(np.float32), [*range(6)] * 2, classes=6, class_names=names)
    lines = wide.describe()
    assert lines[0] == "columns: 300 of 12 rows" and lines[21] == "  and 280 more" and len(lines) == 23
    assert max(map(len, lines)) <= LINE
    assert lines[-1] == "classes: a very long name of a... 16.7 %, and 5 more of 12 examples"


def test_pictures_texts_and_many_classes_have_one_line():
    x, y, files = np.zeros((4, 6, 5, 1), np.uint8), [0, 1, 1, 1], "files 20 x 30 to 480 x 640 (90 color, 10 grey)"
    sentences = dataset(
        np.array([[2, 3, 0], [2, 0, 0]], np.int32), [0, 1], words.Codec(3, ("<pad>", "<ukn>", "a", "b"))
    )
    text = dataset(np.ones((3, 5), np.int32), None, running_text.Codec(5, ("a", "b"), "characters"))
    assert [each.describe()[0] for each in (dataset(x, y), dataset(x, y, summary=files), sentences, text)] == [
        "pictures: 6 x 5 pixels, grey, uint8",
        f"pictures: 6 x 5 pixels, grey; {files}",
        "texts: 1 to 2 words, 1.5 in the median; 4 words in the vocabulary",
        "text: 3 training rows of 5 characters, 2 characters in the vocabulary",
    ]
    y = np.repeat(np.arange(10), np.arange(1, 11))
    assert dataset(np.zeros((55, 2, 2, 3), np.float32), y.tolist(), classes=10).describe() == [
        "pictures: 2 x 2 pixels, color, float32",
        "classes: 10, from 1.8 % (0) to 18.2 % (9) of 55 examples",
    ]


def test_rare_classes_and_a_majority_are_warnings():
    data = dataset(np.zeros((10, 2), np.float32), [0] * 9 + [1], class_names=("ox", "cow"))
    majority = "always predicting ox has an accuracy of 90.0 % on the test examples"
    assert data.warnings(1) == [majority]
    assert data.warnings(4) == ["class cow has only 1 training example for 4 clients", majority]
    assert data.warnings(12) == [
        "2 classes have fewer training examples than there are clients, such as ox with 9 for 12",
        majority,
    ]


def test_numbers_and_sets_of_labels_have_their_lines():
    x, numbers = np.zeros((4, 2, 2, 1), np.uint8), np.array([[1, 0], [2, 0], [3, 0], [6, 8]], np.float32)
    data = dataset(x, numbers, class_names=("price", "size"))
    assert data.describe()[1:] == [
        "target: price, 1 to 6, mean 3, standard deviation 1.871",
        "target: size, 0 to 8, mean 2, standard deviation 3.464",
    ]
    assert data.warnings(9) == []
    metric, value, prediction = data.baseline
    assert (metric, prediction) == ("rmse", "the mean of the training examples")
    assert value == pytest.approx(np.sqrt((3.5 + 12) / 2))
    data = dataset(x, numbers > 2, class_names=("red", "large"))
    assert data.describe()[1:] == ["labels: red 50.0 %, large 25.0 % of 4 examples"]
    assert data.baseline == ("micro_f1", pytest.approx(100 * 2 * 2 / (4 + 3)), "red")


def test_outliers_that_hide_all_other_values_are_worth_a_warning():
    rng = np.random.default_rng(0)
    x, y = (np.exp(3 * rng.standard_normal((200, 2))).astype(np.float32) for _ in range(2))

    def warnings():
        fields = array_fields("table", x, ("size", "weight"))
        return dataset(x, y, fields=fields, class_names=("price", "age")).warnings(4)

    assert warnings() == []
    y[:50, 0], x[3, 1] = 1e30, -1e12
    end = ", beside which its other values are equal after scaling; correct or remove them"
    assert warnings() == [
        f"column 'weight' has outliers such as -1e+12{end}",
        f"target 'price' has outliers such as 1e+30{end}",
    ]


def test_baselines_of_label_maps_and_words():
    maps = np.array([[[0, 0], [0, 1]], [[0, 0], [2, 1]]], np.int32)
    assert dataset(np.zeros((2, 2, 2, 1), np.uint8), maps, classes=3).baseline == (
        "mean_iou",
        pytest.approx(100 * 5 / 8 / 3),
        "0, the most frequent class",
    )
    text = dataset(np.array([[0, 1, 1, 1]], np.int32), None, running_text.Codec(4, ("a", "b")))
    metric, perplexity, _ = text.baseline
    assert (metric, perplexity) == ("global_perplexity", pytest.approx((1 / 3) ** -0.25 * (2 / 3) ** -0.75))
