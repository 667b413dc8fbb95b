"""The label column and the task follow from names and values, with the reason."""

import numpy as np
import pytest

from hetero_tf.base.errors import InputError
from hetero_tf.data.inspection import inspect_table
from hetero_tf.data.raw_table import RawTable, TextColumn
from hetero_tf.starter.choices import Request
from hetero_tf.starter.labels import choose_label

ROWS = 60
COLUMNS = {
    "size": np.linspace(0, 1, ROWS),
    "grade": np.arange(ROWS) % 6 + 3,
    "kind": ["a", "b", "c"] * 20,
    "price": np.arange(ROWS) ** 2,
    "tags": ["red;large", "red", "blue;small"] * 20,
    "id": np.arange(ROWS),
    "flag": np.arange(ROWS) % 2,
}


def choose(*names, task=None, label=(), **renamed):
    """The choice for a table of some columns of `COLUMNS`; `new=old` gives a column another name."""
    values = {name: COLUMNS[name] for name in names} | {new: COLUMNS[old] for new, old in renamed.items()}
    columns = {name: TextColumn.from_values(v) if isinstance(v, list) else v for name, v in values.items()}
    table = RawTable("t.csv", columns, lambda row: f"t.csv:{row}")
    request = Request("t.csv", None, task, label, lambda likely, default: default)
    return choose_label(table, {each.name: each for each in inspect_table(table)}, request)


def test_requests_override_the_values():
    choice = choose("size", "price", "kind", label=("size", "price"))
    assert choice.names == ("size", "price") and choice.task.reason == "2 columns of numbers"
    assert choose("price", "kind", task="regression").names == ("price",)
    assert choose("price", "grade", task="regression", label=("grade",)).task.value == "regression"


def test_columns_with_one_stem_are_several_targets():
    numbers = choose("kind", "grade", target_0="size", target_1="price")
    assert (numbers.names, numbers.task.value) == (("target_0", "target_1"), "regression")
    flags = choose("kind", "grade", "size", is_1="flag", is_2="flag")
    assert (flags.names, flags.task.value, flags.columns.is_doubtful) == (("is_1", "is_2"), "multi_label", True)
    assert choose("grade", "size", label_name="kind", species="kind", is_1="flag", is_2="flag").names == ("species",)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"task": "segmentation"},
            "--task: t.csv can train classification or binary or ordinal or regression or multi_label. Received: ",
        ),
        ({"label": ("sise",)}, r"t\.csv: `--label` must name a column\. Received: --label='sise'; did you mean 'size'"),
        ({"task": "multi_label"}, "no column can be the label of multi_label; .* Columns: size, kind"),
        ({"task": "classification", "label": ("size", "kind")}, "the task classification needs one column"),
    ],
)
def test_requests_that_do_not_fit_are_rejected(options, message):
    with pytest.raises(InputError, match=message):
        choose("size", "kind", **options)
