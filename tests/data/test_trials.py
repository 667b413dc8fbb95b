"""Data sets as strangers bring them: each is loaded correctly, or rejected with a sentence that names the fix."""

import datetime
import decimal
import warnings

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hetero_tf import data
from hetero_tf.base import registry
from hetero_tf.base.constraints import Plugin
from hetero_tf.base.errors import InputError

N = 40
RNG = np.random.default_rng(0)
NUMBERS = [round(float(value), 3) for value in RNG.normal(size=N)]
LABELS = ["ab"[index % 2] for index in range(N)]
DAYS = [datetime.date(2024, 1, 1 + index % 28) for index in range(N)]
ROWS = RNG.normal(size=(20, 3)).astype(np.float32)
PICTURES = RNG.integers(0, 256, (20, 6, 6, 1), np.uint8)
CLASSES = np.arange(20) % 3


def written(columns, separator=","):
    rows = zip(*columns.values())
    return "".join(separator.join(map(str, row)) + "\n" for row in (tuple(columns), *rows))


def csv(name, x, expected, y=LABELS, targets="label", **options):
    """A trial of a CSV file with the columns x and y."""
    content = written({"x": x, "y": y})
    return pytest.param("csv", content, {"label": "y", **options}, targets, expected, id=f"csv: {name}")


def file(name, content, expected, loader="csv", **options):
    options = {"label": "y", **options} if loader == "csv" else options
    return pytest.param(loader, content, options, "label", expected, id=f"{loader}: {name}")


def arrays(name, x, y, expected, targets="label"):
    content = {"x_train": x, "y_train": y, "x_test": x, "y_test": y}
    return pytest.param("npz", content, {}, targets, expected, id=f"npz: {name}")


def parquet(name, x, expected, y=LABELS, targets="label", **options):
    return pytest.param("parquet", pa.table({"x": x, "label": y}), options, targets, expected, id=f"parquet: {name}")


def sentences(first, second, *, number=False):
    texts = [f"{[first, second][index % 2]}{index if number else ''}" for index in range(30)]
    return written({"text": texts, "label": LABELS[:30]})


RECORD, STATIONS = '{"text": "a", "label": 1}\n', "# Two stations\n@classLabel true dry wet\n@data\n"
WHOLE = RNG.permutation(np.arange(20, 20 + 9 * N, 9)).tolist()
GOOD = {"x": NUMBERS, "y": LABELS}
LISTS = [["a;b", "b", ""][index % 3] for index in range(N)]
AMBIGUOUS = [f"{1 + index % 12:02d}/01/2024" for index in range(N)]
MANY, ABSENT = [f"c{n}" for n in range(1001)], ("", "NA", "NaN", "null", "?", "N/A", "None")
TRIALS = [
    # A table: (features, classes or targets, names) or a part of the error.
    csv("two classes", NUMBERS, (1, 2, ("a", "b"))),
    csv("continuous target", NUMBERS, "must name a column of classes; to predict its", y=NUMBERS[::-1]),
    csv("whole continuous target", NUMBERS, "must name a column of classes; to predict its", y=WHOLE),
    csv("continuous target named as classes", NUMBERS, "distinct values", y=WHOLE, columns={"y": "category"}),
    csv("class numbers in their order", NUMBERS, (1, 3, ("9", "10", "100")), y=[(10, 9, 100)[n % 3] for n in range(N)]),
    csv("regression", NUMBERS, (1, 1, ("y",)), y=WHOLE, targets="numbers"),
    csv("regression of texts", NUMBERS, "column 'y' must be a number. Received: 'a'", targets="numbers"),
    csv("no target", NUMBERS, ":41: column 'y' has no value here", y=[*WHOLE[1:], ""], targets="numbers"),
    csv("regression of percentages", NUMBERS, "must be a number", y=[f"{n} %" for n in WHOLE], targets="numbers"),
    csv("percentages", NUMBERS, (1, 1, ("y",)), y=[f"{n} %" for n in WHOLE], targets="numbers", numbers="point"),
    csv("labels 0.0 and 1.0", NUMBERS, (1, 2, ("0.0", "1.0")), y=[float(n % 2) for n in range(N)]),
    csv("labels True and False", NUMBERS, (1, 2, ("False", "True")), y=[n % 2 == 0 for n in range(N)]),
    csv("labels with spaces", NUMBERS, (1, 2, ("no", "yes")), y=[["yes", "yes ", "no"][n % 3] for n in range(N)]),
    csv("labels in two cases", NUMBERS, "differ only in case", y=[["yes", "Yes", "no"][n % 3] for n in range(N)]),
    csv("a missing label", NUMBERS, ":41: column 'y' has no value here", y=[*LABELS[1:], ""]),
    csv("a label in each row", NUMBERS, "`label` must name a column of classes", y=[f"c{n}" for n in range(N)]),
    csv("row numbers", list(range(1, N + 1)), "column 'x' numbers the rows; add it to `ignore`"),
    csv("ids", [f"{n * 7919:08x}-z" for n in range(N)], "has row numbers or ids; set `columns: {'x': ignore}`"),
    csv("categories", MANY, "at most 1000 categories", y=LABELS * 26, columns={"x": "category"}),
    csv("ids of 1,001 rows", MANY, "row numbers or ids", y=LABELS * 26),
    csv("names", [f"Anna {n} B" for n in range(N)], "has names or free text, 40 distinct in 40 rows; set `columns: {"),
    csv("dates", DAYS, "has dates such as '2024-01-01'; they become year, month, day and weekday; set `columns: {"),
    csv("dates as features", DAYS, (8, 2, ("a", "b")), columns={"x": "date"}),
    csv("German dates", [f"{d:%d.%m.%Y}" for d in DAYS], (8, 2, ("a", "b")), columns={"x": "date"}),
    csv("ambiguous dates", AMBIGUOUS, "must say which number is the day", columns={"x": "date"}),
    csv("times", [f"{d} 10:07:00" for d in DAYS], (8, 2, ("a", "b")), columns={"x": "date"}),
    csv("percent", [f"{n} %" for n in range(N)], "set `numbers: point`"),
    csv("percent as numbers", [f"{n} %" for n in range(N)], (1, 2, ("a", "b")), numbers="point"),
    csv("currency", [f"${n}.50" for n in range(N)], (1, 2, ("a", "b")), numbers="point"),
    csv("currencies", [f"{'$€'[n % 2]}{n}" for n in range(N)], "amounts in several currencies", numbers="point"),
    csv("steps below float32", [1_700_000_000 + n for n in range(N)], "differences are too small for float32"),
    csv("a number for missing", [*NUMBERS[1:], -999], (1, 2, ("a", "b")), missing="median", missing_values=("-999",)),
    csv("NA as category", ["NA", "DE"] * 20, (2, 2, ("a", "b")), columns={"x": "category"}),
    csv("groups", [n // 4 for n in range(N)], "at least one feature column", group="x"),
    csv("thousands", [f'"{n + 1},234.5"' for n in range(N)], "set `numbers: point`"),
    csv("thousands as numbers", [f'"{n + 1},234.5"' for n in range(N)], (1, 2, ("a", "b")), numbers="point"),
    *(csv(f"missing {each!r}", [*NUMBERS[1:], each], ":41: column 'x' has no value here") for each in ABSENT),
    csv("a word", [*NUMBERS[1:], "missing"], ":41: column 'x' has numbers, but here 'missing'"),
    csv("infinity", [*NUMBERS[1:], "inf"], ":41: column 'x' has numbers, but here 'inf'"),
    csv("missing value filled", [*NUMBERS[1:], "NA"], (1, 2, ("a", "b")), missing="mean"),
    csv("number beyond float32", [*NUMBERS[1:], "1e39"], "must be finite numbers in the range of float32"),
    csv("leading zeros", [f"0{1000 + n % 7}" for n in range(N)], "has numbers with leading zeros such as"),
    csv("leading zeros as categories", [f"0{n % 7}" for n in range(N)], (7, 2, ("a", "b")), categorical=("x",)),
    csv("lists of labels", NUMBERS, (1, 2, ("a", "b")), y=LISTS, targets="label_set"),
    csv("lists with commas", NUMBERS, (1, 2, ("a", "b")), y=['"a, b"', "a"] * 20, targets="label_set"),
    csv("lists with two signs", NUMBERS, "by different signs", y=['"a, b"', "a|b"] * 20, targets="label_set"),
    csv("columns of labels", [n % 2 for n in range(N)], "one feature column", label=("x", "y"), targets="label_set"),
    csv("a column twice", NUMBERS, "must name each column once", label=("y", "y"), targets="numbers"),
    file("two label columns", "x,y,z\n1,a,b\n2,b,a\n", "several columns are targets of the", label=("y", "z")),
    file("Latin-1", written({"x": NUMBERS, "y": ["süß", "no"] * 20}).encode("latin-1"), ":2: is not UTF-8 text"),
    file("decimal commas", written(GOOD, ";").replace(".", ","), "set `numbers: comma`"),
    file("no header", written(GOOD).partition("\n")[2], "`label` must name a column"),
    file("names of columns", written(GOOD).partition("\n")[2], (1, 2, ("a", "b")), header=False, label="column_1"),
    file("numbers as names", "1,2,3\n1,2,3\n", "if the file has no header, set `header: false`"),
    file("a blank line", written(GOOD) + "\n", (1, 2, ("a", "b"))),
    file("an index", ",x,y\n" + "0,1,a\n1,2,b\n" * 9, "has an index written by pandas without `index=False`; set `col"),
    file("two rows", "x,y\n1,a\n2,b\n", "`test_share` is too small"),
    arrays("a table", ROWS, CLASSES, (3, 3, ())),
    arrays("continuous labels", ROWS, ROWS[:, 0], "whole numbers 0..k-1, texts or one-hot rows"),
    arrays("numbers", ROWS, ROWS[:, 0], (3, 1, ()), "numbers"),
    arrays("NaN as target", ROWS, np.full(20, np.nan), "targets must be finite", "numbers"),
    arrays("sets of labels", ROWS, ROWS > 0, (3, 3, ()), "label_set"),
    arrays("NaN", np.where(ROWS > 1, np.nan, ROWS), CLASSES, "expected finite numbers"),
    arrays("objects", np.array([1, "a"], object), CLASSES, "contains Python objects"),
    arrays("channels first", np.moveaxis(PICTURES.repeat(3, -1), -1, 1), CLASSES, "np.moveaxis(x, 1, -1)"),
    arrays("NaN in images", np.where(PICTURES > 99, np.nan, PICTURES / 255), CLASSES, "(20, 6, 6, 1), nan to nan"),
    arrays("floats below 0", PICTURES / 255 - 0.5, CLASSES, "(20, 6, 6, 1), -0.5 to "),
    arrays("other integers", PICTURES.astype(np.int64), CLASSES, "above 0. Received: int64 (20, 6, 6, 1), "),
    arrays("floats up to 255", PICTURES.astype(np.float32), CLASSES, "uint8 in 0..255 or floats in [0, 1]"),
    arrays("label maps", PICTURES, PICTURES[..., 0] % 3, (6, 3, ()), "label_map"),
    arrays("smaller maps", PICTURES, PICTURES[:, :5, :, 0] % 3, "must have the size of the images", "label_map"),
    parquet("numbers and texts", NUMBERS, (1, 2, ("a", "b"))),
    parquet("null", [*NUMBERS[1:], None], "row 39: column 'x' has no value here"),
    parquet("null as label", NUMBERS, "row 39: column 'label' has no value here", y=[*LABELS[1:], None]),
    parquet("mappings", [{"a": 1}] * N, "must contain numbers, texts or dates"),
    parquet("decimals", [decimal.Decimal("1.25") + n for n in range(N)], (1, 2, ("a", "b"))),
    parquet("categories", pa.array(LABELS[::-1]).dictionary_encode(), (2, 2, ("a", "b"))),
    parquet("dates", DAYS, "set `columns: {'x': date}`"),
    parquet("nanoseconds", np.full(N, "2024-01-01T00:00:00.000000001", "M8[ns]"), "set `columns: {'x': date}`"),
    parquet("continuous label", NUMBERS, "set `task: regression`", y=NUMBERS[::-1]),
    file("German", sentences("Heute ist es schön ", "Die Börse fällt ", number=True), (64, 2, ("a", "b")), "labelled_text"),
    *(
        file(language, sentences(*texts), "Set `tokenizer: characters`", "labelled_text")
        for language, texts in {
            "Chinese": ("今天天气很好我们去公园散步", "股票市场今天下跌了很多"),
            "Japanese": ("今日は天気がいいので散歩に行きます", "株式市場は今日大きく下落しました"),
            "Thai": ("วันนี้อากาศดีมากไปเดินเล่นกัน", "ตลาดหุ้นวันนี้ตกลงมาก"),
        }.items()
    ),
    file("characters", sentences("天气很好", "股票下跌"), (64, 2, ("a", "b")), "labelled_text", tokenizer="characters"),
    file("an unknown label", written(GOOD), "`label` must name a column. Received: label='yy'; did you mean 'y'?", label="yy"),
    file("an unknown owner", written(GOOD), "`owner` must name a column. Received: owner='xx'; did you mean 'x'?", owner="xx"),
    file("an unknown column", written(GOOD), "`ignore` must name a column. Received: ignore='q'; known: ", ignore=("q",)),
    file("a misspelt column", written(GOOD), "`categorical` must name a column. Received: categorical='xx'; did you mean", categorical=("xx",)),
    file("names as a row", written(GOOD), "column 'column_0' has numbers, but here 'x'", header=False, label="column_1"),
    file("another column", "txt,label\na,x\nb,y\n", "`text` must name a column. Received: text='text'; did you mean 'txt'?", "labelled_text"),
    file("a list", RECORD + "[1]\n", ".jsonl:2: must be a JSON object. Received: [1]", "labelled_text.jsonl"),
    file("no label", RECORD + '{"text": "a"}\n', ".jsonl:2: column 'label' has no value here", "labelled_text.jsonl"),
    file("half an object", RECORD + '{"text"\n', ".jsonl:2: is not valid JSON: ", "labelled_text.jsonl"),
    file("other bytes", RECORD.encode() + b"\xff\n", ".jsonl:2: is not UTF-8 text; save it as UTF-8", "labelled_text.jsonl"),
    file("blank lines", "\n\n", ".jsonl: expected at least one row of data. Received: none", "labelled_text.jsonl"),
    file("no series", STATIONS, ".ts: expected a header that ends with @data, and a line for each series", "ts"),
    file("no @data", "@problemName x\n1,2:a\n", ".ts: expected a header that ends with @data", "ts"),
    file("times", "@timeStamps true\n@data\n1,2:a\n", ".ts: series with @timeStamps true are not supported", "ts"),
    file("a short series", STATIONS + "1,2:a\n1:b\n", ".ts:5: every series must have 1 channels of 2 values, as the first one", "ts"),
    file("more channels", STATIONS + "1,2:a\n1,2:3,4:b\n", ".ts:5: every series must have 1 channels of 2 values", "ts"),
    file("no class", STATIONS + "1,2\n", ".ts:4: every series must have 0 channels of 0 values", "ts"),
    file("a word", STATIONS + "1,x:a\n", ".ts:4: could not convert string to float: 'x'", "ts"),
    file("no value", STATIONS + "?,?:a\n", ".ts:4: has a missing value", "ts", missing="previous"),
    file("a text without words", "text,label\ngood,a\n ,b\n", ":3: column 'text' has no words", "labelled_text"),
]  # fmt: skip


@pytest.mark.parametrize(("loader", "content", "options", "targets", "expected"), TRIALS)
def test_data_are_correct_or_rejected_with_the_fix(loader, content, options, targets, expected, tmp_path):
    loader, _, ending = loader.partition(".")
    path = tmp_path / f"data.{ending or (loader if loader in ('npz', 'parquet', 'ts') else 'csv')}"
    if isinstance(content, dict):
        np.savez(path, **content)
    elif isinstance(content, pa.Table):
        pq.write_table(content, path)
    else:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    defaults = {
        name: option.default for name, option in registry.options("data", loader).items() if not option.required
    }
    plugin = Plugin(loader, {**defaults, "path": str(path), **options})
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            loaded = data.load(plugin, targets=targets)
    except InputError as error:
        assert isinstance(expected, str) and expected in str(error), error
        return
    if isinstance(expected, str):
        assert any(expected in warning for warning in loaded.warnings(1))
        return
    features, classes, names = expected
    assert (loaded.train.x.shape[1], loaded.classes, loaded.class_names or ()) == (features, classes, names)
    assert loaded.targets == targets and len(loaded.train.x) + len(loaded.test.x) in (30, 40)
