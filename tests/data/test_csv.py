"""Tables as text: which column is what, labels, owners, splits; every refusal names file and line."""

import functools

import numpy as np
import pytest
from refusals import check_refusals, refusal

from hetero_tf.data import csv
from hetero_tf.data.codecs import Field, category, number

LINES = ["height,colour,zip,farm,kind"]
LINES += [
    f"{index}.5,{'red' if index % 3 else 'blue'},1{index % 2}7,f{index % 4},{'ox' if index % 2 else 'cow'}"
    for index in range(20)
]


def write(folder, lines=LINES, name="own.csv"):
    (folder / name).write_text("\n".join(lines) + "\n", "utf-8")
    return folder


def load(folder, **options):
    return csv.load(folder, **{"path": "own.csv", "label": "kind", **options})


def test_numbers_are_features_and_texts_are_categories(tmp_path):
    dataset = load(write(tmp_path), categorical=("zip",), ignore=("farm",), test_share=0.25)
    assert (dataset.codec.KIND, dataset.classes, dataset.class_names) == ("table", 2, ("cow", "ox"))
    colour, zips = category.Codec(("blue", "red")), category.Codec(("107", "117"))
    assert dataset.fields == (Field("height", number.Codec()), Field("colour", colour), Field("zip", zips))
    assert dataset.source == f"table ({tmp_path}/own.csv)"
    assert dataset.train.x.dtype == np.float32 and dataset.train.x.shape == (16, 5) and len(dataset.test.x) == 4
    assert dataset.train.owners is None
    index = np.concatenate([dataset.train.x, dataset.test.x])[:, 0] - 0.5
    assert sorted(index.tolist()) == list(range(20))
    for split in (dataset.train, dataset.test):
        index = (split.x[:, 0] - 0.5).astype(int)
        assert split.y.tolist() == (index % 2).tolist()
        assert split.x[:, 1:3].T.tolist() == [(index % 3 == 0).tolist(), (index % 3 > 0).tolist()]
        assert split.x[:, 3:].argmax(1).tolist() == (index % 2).tolist()


def test_categories_as_numbers_are_one_feature_and_a_column_names_the_owners(tmp_path):
    dataset = load(write(tmp_path), categories="numbers", ignore=("farm", "zip"))
    colour = Field("colour", category.Codec(("blue", "red"), one_hot=False))
    assert dataset.fields == (Field("height", number.Codec()), colour)
    assert dataset.train.x[:, 1].tolist() == ((dataset.train.x[:, 0] - 0.5) % 3 > 0).tolist()
    write(tmp_path, [LINES[0], "1,red,1,f9,ox"], "test.csv")
    dataset = load(write(tmp_path), owner="farm", ignore=("zip",), test="test.csv")
    assert len(dataset.train.x) == 20 and len(dataset.test.x) == 1
    assert dataset.train.owners.tolist() == [index % 4 for index in range(20)]
    test = dataset.test
    assert (test.owners.tolist(), test.x.tolist(), test.y.tolist()) == ([4], [[1, 0, 1]], [1])


def test_test_rows_must_be_like_the_training_rows(tmp_path):
    write(tmp_path)
    for line, message in (
        ("1,green,1,f1,ox", "column 'colour' has the value 'green', which is not a category of the "),
        (
            "1,red,1,f1,oxx",
            "column 'kind' has the value 'oxx', which is not a class of the training rows; did you mean 'ox'",
        ),
        (",red,1,f1,ox", "column 'height' has no value here"),
    ):
        write(tmp_path, [LINES[0], line], "test.csv")
        assert f"test.csv:2: {message}" in refusal(load, tmp_path, test="test.csv")
    write(tmp_path, ["height,b,kind", "1,2,ox"], "test.csv")
    message = refusal(load, tmp_path, test="test.csv")
    assert "test.csv: must have the columns of " in message and "own.csv. Received: ['b'" in message


def column(folder, values, **options):
    """The values of a column of a file with semicolons, or its categories."""
    lines = ["sep=;", "a;kind", *(f"{value};{'uv'[index % 2]}" for index, value in enumerate(2 * values))]
    dataset = load(write(folder, lines), delimiter="semicolon", test_share=0.5, **options)
    return dataset.codec.texts or sorted(set(np.concatenate([dataset.train.x, dataset.test.x])[:, 0].tolist()))


def test_numbers_in_another_notation_and_the_order_of_dates_and_ids(tmp_path):
    comma, point = ["1.234,5", "-2,25", "1 000", "12 %", "7"], ["1,234.5", "-2.25", "1'000", "12.5%", "007", "1e2"]
    np.testing.assert_allclose(column(tmp_path, comma, numbers="comma"), [-2.25, 0.12, 7, 1000, 1234.5], rtol=1e-6)
    np.testing.assert_allclose(
        column(tmp_path, point, numbers="point"), [-2.25, 0.125, 7, 100, 1000, 1234.5], rtol=1e-6
    )
    for days, order in {"31.12.2024 01.02.2024": "dmy", "1/2/2024 12/31/2024": "mdy", "1.2.2024": "dmy"}.items():
        lines = ["day,n,kind", *(f"{days.split()[n % len(days.split())]},{n},{'uv'[n % 2]}" for n in range(8))]
        (day, _) = load(write(tmp_path, lines), columns={"day": "date"}, test_share=0.5).fields
        assert day.codec.order == order
    assert column(tmp_path, ["1_3", "2_3"]) == ("1_3", "2_3")
    message = "own.csv:1: the line sep=; declares another delimiter; leave `delimiter"
    assert message in refusal(load, tmp_path, delimiter="comma")


def test_types_and_scales_are_set_by_column(tmp_path):
    lines = ["zip,joined,age,code,kind"]
    lines += [f"{7000 + n % 3},2024-0{1 + n % 9}-15,{n},{n % 2:03},{'uv'[n % 2]}" for n in range(20)]
    types = {"zip": "category", "joined": "date", "code": "number", "age": "ignore"}
    dataset = load(write(tmp_path, lines), columns=types, scale={"code": "minmax", "joined": "none"})
    zips, joined, code = (field.codec for field in dataset.fields)
    assert (zips.categories, joined.order, code.texts) == (("7000", "7001", "7002"), "ymd", ())
    assert joined.features("joined")[:4] == ("joined.year", "joined.month", "joined.day", "joined.weekday")
    assert set(dataset.train.x[:, 3]) == {2024} and set(dataset.train.x[:, -1]) == {0, 1}
    offset, divisor = dataset.feature_statistics
    assert (offset[3:11] == 0).all() and (divisor[3:11] == 1).all() and (offset[-1], divisor[-1]) == (0, 1)
    assert offset[0] == dataset.train.x[:, 0].mean()
    check_refusals(
        functools.partial(load, tmp_path),
        ({"columns": {"zipp": "category"}}, "`columns` must name a column. Received: columns='zipp'; did you mean"),
        ({"columns": {"kind": "number"}}, "only `category` may be set for the label"),
        ({"columns": {"age": "ignore"}, "ignore": ("age",)}, "`columns` repeats 'age' of `ignore` or `categorical`"),
        ({"columns": types, "scale": {"age": "none"}}, "`scale` must name feature columns. Received: scale={'age'"),
        ({"columns": {**types, "age": "date"}}, "column 'age' must be a date such as 2024-12-31, .* Received: '0'"),
        ({"columns": {**types, "joined": "number"}}, "csv:2: column 'joined' must be a number. Received: '2024-01-15'"),
    )


SPARSE = ["size,colour,kind"]
SPARSE += [f"{'' if n == 3 else n},{'NA' if n == 4 else 'red' if n % 4 else 'blue'},{'uv'[n % 2]}" for n in range(20)]


@pytest.mark.parametrize("missing", ["mean", "median", "most_frequent", "category", "drop"])
def test_missing_values_are_replaced_by_values_of_the_training_rows(tmp_path, missing):
    write(tmp_path, [SPARSE[0], ",,u", "500,red,v"], "test.csv")
    dataset = load(write(tmp_path, SPARSE), test="test.csv", missing=missing)
    text = refusal(load, tmp_path, test="test.csv", missing=missing, columns={"colour": "number"})
    assert text.endswith("own.csv:2: column 'colour' must be a number. Received: 'blue'")
    size, colour = (field.codec for field in dataset.fields)
    numbers = np.array([n for n in range(20) if n != 3])
    expected = {"mean": numbers.mean(), "category": numbers.mean(), "median": np.median(numbers), "most_frequent": 0}
    if missing == "drop":
        assert (len(dataset.train.x), len(dataset.test.x), size.fill, colour.fill) == (18, 1, None, None)
        assert [column.missing for column in dataset.summary.columns] == [1, 1, 0]
        return
    np.testing.assert_allclose([size.fill, dataset.train.x[3, 0], dataset.test.x[0, 0]], expected[missing], 1e-6)
    assert colour.fill == ("missing" if missing == "category" else "red")
    position = colour.categories.index(colour.fill) - colour.size
    assert dataset.test.x[0, position] == 1 and dataset.test.x[0, -colour.size :].sum() == 1
    if missing == "category":
        assert size.features("size") == ("size", "size.missing")
        assert dataset.train.x[:, 1].tolist() == [n == 3 for n in range(20)]
