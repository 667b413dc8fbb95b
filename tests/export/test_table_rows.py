"""Texts of table rows become the same features in the graph as in Python."""

import datetime
import itertools

import numpy as np
import pytest
import tensorflow as tf

from hetero_tf.base.errors import InputError
from hetero_tf.data.columns import Column
from hetero_tf.export.table_rows import build_tables, encode_rows

VALUES = {
    Column("a"): "1|-2.5|+.5|1.|1e3|1_0|nan|inf|x| 3 |\uff11|1e39|0x1||-|.",
    Column("a", fill="2.5", marks_missing=True): "|NA| ? |4|z",
    Column(
        "a", fill="29.699", notation="comma"
    ): "|1.234,5|12 %|-3,5|1 000|1.5|1.500|%|1.23,4|\u22122|1,5e3|1'000,25|1\xa0000",
    Column("a", notation="point"): "1,234.5|12%|1'000.5|007|1,23|1.5|5 %|,5|1.5.2",
    Column("a", ("x", "y z", "\xe9")): "x|y z|\xe9|w|| x ",
    Column("a", ("u", "v"), one_hot=False, fill="v"): "u|v|none|k",
    Column("a", date="ymd", fill="2024-01-31"): (
        "2024-02-29|2023-02-29|1900-02-29|2000-02-29|2024/1/5|2024.12.31|2024-1/5|2024-01-05T10:20:30.5Z|"
        "2024-01-05 10:20||0000-01-01|2024-13-01|2024-00-10|2024-04-31"
    ),
    Column("a", date="dmy"): "31.12.2024|1-2-1999|31/11/2024|12.31.2024|2024-01-01|",
    Column("a", date="mdy"): "12/31/2024|1/2/1999|31/12/2024",
}


@pytest.mark.parametrize(("column", "values"), VALUES.items())
def test_graph_and_python_encode_alike(column, values):
    texts = values.split("|")
    features = encode_rows(tf.constant(texts)[:, None], (column,), build_tables((column,))).numpy()
    assert features.shape == (len(texts), column.width)
    for text, encoded in zip(texts, features):
        try:
            expected = column.encode(text)
        except InputError:
            assert not np.isfinite(encoded).all(), text
        else:
            np.testing.assert_allclose(encoded, expected, rtol=1e-6, atol=1e-6, err_msg=text)


def test_weekdays_of_all_times():
    days = [datetime.date(1, 1, 1) + datetime.timedelta(days=9_973 * index) for index in range(300)]
    texts = tf.constant([[day.isoformat()] for day in days])
    features = encode_rows(texts, (Column("a", date="ymd"),), {}).numpy()
    assert features[:, 3].tolist() == [day.weekday() for day in days]


def test_columns_are_joined_in_their_order():
    columns = (Column("n", fill="1.0", marks_missing=True), Column("c", ("u", "v")), Column("m"))
    rows = list(itertools.product(["", "5"], ["u", "v"], ["7"]))
    features = encode_rows(tf.constant(rows), columns, build_tables(columns)).numpy()
    assert features.tolist() == [[1, 1, 1, 0, 7], [1, 1, 0, 1, 7], [5, 0, 1, 0, 7], [5, 0, 0, 1, 7]]
    assert encode_rows(tf.zeros([0, 3], tf.string), columns, build_tables(columns)).shape == (0, 5)
