"""Tables as text: which column is what, labels, owners, splits; every refusal names file and line."""

import re

import numpy as np
import pytest

from hetero_tf.base.errors import InputError
from hetero_tf.data import csv
from hetero_tf.data.columns import Column, encode_row
from hetero_tf.data.dataset import NotAvailable

LINES = ["height,colour,zip,farm,kind"]
LINES += [
    f"{place}.5,{'red' if place % 3 else 'blue'},1{place % 2}7,f{place % 4},{'ox' if place % 2 else 'cow'}"
    for place in range(20)
]


def write(folder, lines=LINES, name="own.csv"):
    (folder / name).write_text("\n".join(lines) + "\n", "utf-8")
    return folder


def load(folder, **options):
    return csv.load(folder, **{"path": "own.csv", "label": "kind", **options})


def test_numbers_are_features_and_texts_are_categories(tmp_path):
    found = load(write(tmp_path), categorical=("zip",), ignore=("farm",), test_share=0.25)
    assert (found.kind, found.classes, found.class_names) == ("table", 2, ("cow", "ox"))
    assert found.columns == (Column("height"), Column("colour", ("blue", "red")), Column("zip", ("107", "117")))
    assert found.source == f"table ({tmp_path}/own.csv)"
    assert found.train.x.dtype == np.float32 and found.train.x.shape == (16, 5) and len(found.test.x) == 4
    assert found.train.owners is None
    place = np.concatenate([found.train.x, found.test.x])[:, 0] - 0.5
    assert sorted(place.tolist()) == list(range(20))
    for split in (found.train, found.test):
        place = (split.x[:, 0] - 0.5).astype(int)
        assert split.y.tolist() == (place % 2).tolist()
        assert (
            split.x[:, 1].tolist() == (place % 3 == 0).tolist() and split.x[:, 2].tolist() == (place % 3 > 0).tolist()
        )
        assert split.x[:, 3:].argmax(1).tolist() == (place % 2).tolist()


def test_categories_as_numbers_are_one_feature(tmp_path):
    found = load(write(tmp_path), categories="numbers", ignore=("farm", "zip"))
    assert found.columns == (Column("height"), Column("colour", ("blue", "red"), one_hot=False))
    assert found.train.x[:, 1].tolist() == ((found.train.x[:, 0] - 0.5) % 3 > 0).tolist()


def test_a_column_names_the_owners(tmp_path):
    write(tmp_path, [LINES[0], "1,red,1,f9,ox"], "test.csv")
    found = load(write(tmp_path), owner="farm", ignore=("zip",), test="test.csv")
    assert len(found.train.x) == 20 and len(found.test.x) == 1
    assert found.train.owners.tolist() == [place % 4 for place in range(20)]
    assert found.test.owners.tolist() == [4] and found.test.x.tolist() == [[1, 0, 1]] and found.test.y.tolist() == [1]


def test_other_signs_and_no_header(tmp_path):
    (tmp_path / "own.csv").write_bytes(b"\xef\xbb\xbf1;a;2\r\n\r\n3;b;4\r\n5;a;6\r\n7;b;8\r\n")
    found = load(tmp_path, label="column_1", header=False, delimiter="semicolon", test_share=0.5)
    assert found.class_names == ("a", "b") and [column.name for column in found.columns] == ["column_0", "column_2"]
    assert sorted(np.concatenate([found.train.x, found.test.x]).tolist()) == [[1, 2], [3, 4], [5, 6], [7, 8]]


def test_labels_that_are_numbers_stand_in_their_order(tmp_path):
    write(tmp_path, ["a,kind", *(f"{place},{label}" for place, label in enumerate([10, 9, 100, 10, 9, 100] * 2))])
    found = load(tmp_path, test_share=0.5)
    assert found.class_names == ("9", "10", "100")
    assert sorted(found.train.y.tolist()) == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("", None),
        ("1,red,1,f", r"own.csv:22: must have 5 values with ',' between them, as the first line has. Received: 4, \["),
        ("1,red,1,f,ox,1", r"own.csv:22: must have 5 values .* Received: 6"),
        (",red,1,f,ox", r"own.csv:22: column 'height' has no value here \(''\); fill it in, remove the row, or leave"),
        ("NA,red,1,f,ox", r"own.csv:22: column 'height' has no value here \('NA'\)"),
        ("nan,red,1,f,ox", r"own.csv:22: column 'height' has no value here \('nan'\)"),
        ("1, ,1,f,ox", r"own.csv:22: column 'colour' has no value here"),
        ("1,red,1,f,?", r"own.csv:22: column 'kind' has no value here"),
        ("1O,red,1,f,ox", r"own.csv:22: column 'height' holds numbers, but here '1O'; correct it, or name the column"),
        ("inf,red,1,f,ox", r"own.csv:22: column 'height' holds numbers, but here 'inf'"),
        ("1e39,red,1,f,ox", r"own.csv:22: column 'height' must hold finite numbers that float32 can hold. .* 1e\+39"),
        ('1,"red,1,f,ox', r"own.csv:22: is no row of a table: unexpected end of data"),
    ],
)
def test_a_line_that_does_not_fit_is_named(tmp_path, line, told):
    write(tmp_path, [*LINES, line])
    if told is None:
        assert len(load(tmp_path).train.x) == 16
        return
    with pytest.raises(InputError, match=told) as refusal:
        load(tmp_path)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("1,green,1,f1,ox", r"test.csv:2: column 'colour' holds 'green', which is no category of the training rows"),
        (
            "1,red,1,f1,oxx",
            r"test.csv:2: column 'kind' holds 'oxx', which is no class of the training rows; did you mean 'ox'",
        ),
        ("tall,red,1,f1,ox", r"test.csv:2: column 'height' must hold a number. Received: 'tall'"),
        (",red,1,f1,ox", r"test.csv:2: column 'height' has no value here"),
    ],
)
def test_test_rows_must_be_like_the_training_rows(tmp_path, line, told):
    write(tmp_path, [LINES[0], line], "test.csv")
    with pytest.raises(InputError, match=told):
        load(write(tmp_path), test="test.csv")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"label": "knd"}, r"`label` must name a column. Received: label='knd'; did you mean 'kind'\?"),
        ({"owner": "frm"}, r"`owner` must name a column. Received: owner='frm'; did you mean 'farm'\?"),
        ({"ignore": ("x",)}, r"`ignore` must name a column. Received: ignore='x'; known: "),
        ({"categorical": ("hight",)}, r"`categorical` must name a column. Received: categorical='hight'; did you mean"),
        (
            {"label": "height"},
            r"`label` must name a column of classes. Received: label='height' with 20 different values in 20 rows",
        ),
        ({"ignore": ("height", "colour", "zip", "farm")}, r"expected at least one column beside the label"),
        ({"test": "other.csv"}, r"other.csv: must have the columns of .*own.csv. Received: \['b'"),
        ({"header": False, "label": "column_4"}, r"column 'column_0' holds numbers, but here 'height'"),
        ({"delimiter": "tab"}, r"own.csv:1: has no .* between names; is it `delimiter: comma`\?"),
    ],
)
def test_options_that_do_not_fit_are_refused(tmp_path, options, told):
    write(tmp_path, ["height,b,kind", "1,2,ox"], "other.csv")
    with pytest.raises(InputError, match=told):
        load(write(tmp_path), **options)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "own.csv: expected rows of a table. Received: none"),
        (b"a,kind\n", "own.csv: expected rows of a table. Received: none"),
        (b"a,a,kind\n1,2,x\n", "every column must have a name of its own. Received: 'a' again"),
        (b"a,,kind\n1,2,x\n", r"column 'Unnamed: 1' has no name, or is an index .* `index=False`, or .* `ignore: "),
        (
            b"1,2,3\n1,2,3\n",
            "own.csv:1: expected the names of the columns; if there is no such line, say `header: false`",
        ),
        (b"a,kind\n1,\xff\n", r"own.csv:\d+: is not UTF-8 text; save it as UTF-8 .data: npz reads .npz"),
        (b"a,kind\n1," + b"x" * 200_000, "own.csv:2: is no row of a table: field larger than field limit"),
    ],
)
def test_what_is_no_table_is_refused(tmp_path, content, told):
    (tmp_path / "own.csv").write_bytes(content)
    with pytest.raises(InputError, match=told):
        load(tmp_path)


def test_a_column_of_all_different_texts_is_no_category(tmp_path):
    write(tmp_path, ["name,kind", *(f"n{place},{place % 2}" for place in range(1001))])
    with pytest.raises(InputError, match="column 'name' must have at most 1000 categories; leave it out by `ignore`"):
        load(tmp_path)


def test_a_folder_or_nothing_instead_of_a_file(tmp_path):
    with pytest.raises(InputError, match="expected a file. Received: a folder; .*data: folder a folder of pictures"):
        load(tmp_path, path=".")
    with pytest.raises(NotAvailable, match="`path` must name an existing file"):
        load(tmp_path, path="nothing.csv")


def test_a_row_is_written_in_order_or_by_name():
    columns = (Column("size (cm)"), Column("c", ("a=b", "red")), Column("k", ("x", "y"), one_hot=False))
    assert encode_row("2.5, red, y", columns) == encode_row("k=y,size (cm) = 2.5,c=red", columns) == [2.5, 0, 1, 1]
    assert encode_row("2.5,a=b,x", columns) == [2.5, 1, 0, 0]
    for row in ("", "1,red", "1,red,x,x", "k=x,k=y,c=red", "k=x,2.5,red", "c=red,k=x,sice=2"):
        with pytest.raises(
            InputError, match=r"a value for each column, size \(cm\), c, k, with commas between"
        ) as told:
            encode_row(row, columns)
        assert repr(row) in str(told.value)


def test_columns_encode_what_a_person_writes():
    one_hot, number = Column("c", ("blue", "red")), Column("c", ("blue", "red"), one_hot=False)
    assert (one_hot.features, one_hot.encode("red")) == (("c=blue", "c=red"), [0.0, 1.0])
    assert (number.features, number.encode("red"), Column("n").encode("-1e3")) == (("c",), [1.0], [-1000.0])
    with pytest.raises(InputError, match="column 'c' must hold one of blue, red. Received: 'rad'; did you mean 'red'?"):
        one_hot.encode("rad")
    for value in ("x", "nan", "inf", "1e39", ""):
        with pytest.raises(InputError, match=f"column 'n' must hold finite numbers. Received: '{value}'"):
            Column("n").encode(value)


def column(folder, values, **options):
    """The values of a column of a file with semicolons, or its categories."""
    lines = ["sep=;", "a;kind", *(f"{value};{'uv'[place % 2]}" for place, value in enumerate(2 * values))]
    found = load(write(folder, lines), delimiter="semicolon", test_share=0.5, **options)
    return found.columns[0].categories or sorted(set(np.concatenate([found.train.x, found.test.x])[:, 0].tolist()))


@pytest.mark.parametrize(
    "value",
    [
        "1,5",
        "1.234,56",
        "1,234.5",
        "12 %",
        "1_000",
        "0x1f",
        "inf",
        "$12",
        "2024-01-05",
        "05.01.2024",
        "12:30",
        "\uff11",
    ],
)
def test_numbers_in_another_notation_are_no_categories(tmp_path, value):
    values = [value, value.replace("1", "2"), "3"]
    told = (
        rf"own.csv:3: column 'a' holds '{re.escape(value)}', which is no plain number such as -1234.5; set `numbers: "
    )
    with pytest.raises(InputError, match=told):
        column(tmp_path, values)
    assert set(values) <= set(column(tmp_path, values, categorical=("a",)))


@pytest.mark.parametrize(
    ("notation", "values", "expected"),
    [
        ("comma", ["1.234,5", "-2,25", "1 000", "12 %", "7"], [-2.25, 0.12, 7, 1000, 1234.5]),
        ("point", ["1,234.5", "-2.25", "1'000", "12.5%", "007", "1e2"], [-2.25, 0.125, 7, 100, 1000, 1234.5]),
    ],
)
def test_numbers_in_another_notation_are_read_by_an_option(tmp_path, notation, values, expected):
    np.testing.assert_allclose(column(tmp_path, values, numbers=notation), expected, rtol=1e-6)


def test_ids_are_no_numbers(tmp_path):
    assert column(tmp_path, ["1_3", "2_3"]) == ("1_3", "2_3")
    with pytest.raises(InputError, match=r"own.csv:3: column 'a' holds '007', whose leading zero a number would lose"):
        column(tmp_path, ["007", "12"])
    with pytest.raises(
        InputError, match=r"own.csv:1: the first line sep=; names another delimiter; set `delimiter: semi"
    ):
        load(tmp_path)


def test_lines_and_columns_have_limits(tmp_path, monkeypatch):
    monkeypatch.setattr(csv, "LONGEST_LINE", 100)
    with pytest.raises(InputError, match="own.csv:2: a line may have up to 100 characters"):
        load(write(tmp_path, ["a,kind", "1" * 200 + ",x"]))
    monkeypatch.setattr(csv, "MOST_COLUMNS", 4)
    with pytest.raises(InputError, match="own.csv:1: a table may have up to 4 columns. Received: 5"):
        load(write(tmp_path))
