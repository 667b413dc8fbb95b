"""Options of the loaders of tables: each changes what is read in the direction that its description says."""

import numpy as np
import pandas as pd
import pytest
from refusals import refusal

from hetero_tf.data import csv, labelled_text, series
from hetero_tf.data.targets import NUMBERS

ROWS = pd.DataFrame({"person": np.arange(40) // 4, "size": np.arange(40) % 7 + 0.5, "kind": ["no", "yes"] * 20})
# Hours with a gap of five hours in the middle.
TIMES = pd.Timestamp("2024-01-01") + pd.to_timedelta(np.where(np.arange(40) < 20, 0, 5) + np.arange(40), "h")
VALUES = pd.DataFrame({"time": TIMES, "x": np.sin(np.arange(40.0)).round(3)})


def write(tmp_path, rows, name="rows.csv", above="", encoding="utf-8"):
    path = tmp_path / name
    if path.suffix == ".parquet":
        rows.to_parquet(path)
    else:
        path.write_bytes((above + rows.to_csv(index=False)).encode(encoding))
    return str(path)


def forecast(path, **options):
    return series.load(None, path=path, label=("x",), time="time", window=3, targets=NUMBERS, **options)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_rows_of_a_group_are_in_one_split_and_missing_values_are_listed(ending, tmp_path):
    options = {"path": write(tmp_path, ROWS, f"rows.{ending}"), "label": ("kind",), "owner": "person"}
    apart, together = csv.load(None, **options), csv.load(None, **options, group="person")
    groups = [set(split.owners.tolist()) for split in (together.train, together.test)]
    assert len(groups[1]) == 2 and not groups[0] & groups[1]
    assert set(apart.train.owners.tolist()) & set(apart.test.owners.tolist())
    path = write(tmp_path, ROWS.assign(size=ROWS["size"].replace(0.5, -999.0)), f"rows.{ending}")
    options = {"path": path, "label": ("kind",), "ignore": ("person",), "missing": "median"}
    assert csv.load(None, **options).train.x.min() == -999
    assert csv.load(None, **options, missing_values=("-999",)).train.x.min() == 1.5


def test_lines_above_a_table_are_skipped_and_other_encodings_read(tmp_path):
    path = write(tmp_path, ROWS.replace({"kind": {"yes": "größer"}}), above="Ergebnis;\n", encoding="cp1252")
    dataset = csv.load(None, path=path, label=("kind",), skip=1, delimiter="comma", encoding="cp1252")
    assert dataset.class_names == ("größer", "no")
    assert "encoding" in refusal(csv.load, None, path=path, label=("kind",), skip=1, delimiter="comma")


def test_series_have_the_options_of_tables(tmp_path):
    path = write(tmp_path, VALUES, above="Messwerte für März\n", encoding="cp1252")
    split = forecast(path, skip=1, encoding="cp1252")
    joined = forecast(path, skip=1, encoding="cp1252", gaps="join")
    # Three windows of 3 + 1 times would contain the gap.
    assert len(joined.train.x) + len(joined.test.x) == len(split.train.x) + len(split.test.x) + 3
    path = write(tmp_path, VALUES.assign(x=VALUES["x"].where(VALUES.index != 7, -999)))
    assert forecast(path).train.x.min() == -999
    assert forecast(path, missing="previous", missing_values=("-999",)).train.x.min() > -1.1


def test_texts_without_a_header_or_a_label(tmp_path):
    rows = pd.DataFrame({"text": ["a good day", "a bad day"] * 10, "label": ["up", "down"] * 9 + ["up", None]})
    path = tmp_path / "texts.csv"
    path.write_text(rows.to_csv(index=False, header=False))
    options = {"path": str(path), "text": "column_0", "label": "column_1", "header": False}
    assert len(labelled_text.load(None, **options, missing="drop").train.x) == 15
    assert "missing" in refusal(labelled_text.load, None, **options)
