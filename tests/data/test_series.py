"""Windows of series: order, times of the test split, classes, missing values, and what is refused."""

import numpy as np
import pytest
from refusals import refusal

from hetero_tf.data import from_arrays
from hetero_tf.data.series import load

STATIONS, MONTHS = ("north", "east", "south", "west"), 12


def write(path, value=lambda station, month: month + 100 * station, month="2020-{:02}"):
    """A file with a row for each month of each station, latest first; south and west are warm."""
    rows = [
        f"{month.format(number + 1)},{name},{value(station, number)},{'warm' if station > 1 else 'cold'}"
        for station, name in enumerate(STATIONS)
        for number in reversed(range(MONTHS))
    ]
    path.write_text("\n".join(["month,station,rain,climate", *rows]) + "\n")
    return path


def forecasts(path, **options):
    defaults = {"label": "rain", "time": "month", "series": "station", "channels": ["rain"], "window": 3}
    return load(None, path=str(path), targets="numbers", **{**defaults, **options})


def test_windows_are_in_the_order_of_time_and_predict_the_next_values(tmp_path):
    dataset = forecasts(write(tmp_path / "rain.csv"), horizon=2)
    assert dataset.codec.KIND == "series" and dataset.class_names == ("rain +1", "rain +2")
    for split in (dataset.train, dataset.test):
        month = split.x[:, 0, 0] % 100
        station = np.array([1, 0, 2, 3])[split.owners]
        np.testing.assert_array_equal(split.x[..., 0] % 100, month[:, None] + range(3))
        np.testing.assert_array_equal(split.y, split.x[:, -1] + [1, 2])
        # Owners have the order of their names.
        np.testing.assert_array_equal(split.x[:, 0, 0] // 100, station)


def test_lines_show_roles_and_the_baseline_is_the_last_value(tmp_path):
    dataset = forecasts(write(tmp_path / "rain.csv", month="{}"))
    assert dataset.describe()[:6] == [
        "series: 24 training windows of 3 positions, channels: 1",
        "columns: 4 of 48 rows",
        "  month    time     1 to 12, 12 distinct",
        "  station  owner    4 distinct",
        "  rain     number   0 to 311, 48 distinct",
        "  climate  ignored  2 distinct",
    ]
    assert dataset.warnings(4) == []
    assert dataset.baseline == ("rmse", 1.0, "the last value of the window")


def test_relative_windows_end_with_0_and_have_the_changes_as_targets(tmp_path):
    path = write(tmp_path / "rain.csv")
    dataset = forecasts(path, relative=True, horizon=2)
    for split in (dataset.train, dataset.test):
        assert (split.x[:, :, 0] == [-2, -1, 0]).all() and (split.y == [1, 2]).all()
    assert dataset.baseline == ("rmse", 0.0, "the last value of the window and the mean change")
    assert dataset.describe()[0].startswith("series: 20 training windows of 3 positions, relative to the last one")
    message = refusal(forecasts, path, relative=True, label="climate")
    assert "needs the columns to forecast among `channels`. Received: label='climate', channels=rain" in message


@pytest.mark.parametrize("stride", [1, 2])
def test_training_windows_contain_no_time_that_the_test_windows_predict(tmp_path, stride):
    dataset = forecasts(write(tmp_path / "rain.csv"), test_share=0.25, stride=stride)
    first_predicted = dataset.test.y.min(1) % 100
    assert first_predicted.min() == 9
    assert max(dataset.train.x.max() % 100, dataset.train.y.max() % 100) == 8 if stride == 1 else 7
    assert np.diff(dataset.train.x[:3, 0, 0]).tolist() == [stride] * 2


def test_every_series_of_a_class_is_in_one_split(tmp_path):
    options = {"time": "month", "series": "station", "window": 4, "test_share": 0.5}
    dataset = load(None, path=str(write(tmp_path / "rain.csv")), label="climate", **options)
    assert dataset.class_names == ("cold", "warm") and dataset.train.x.shape == (6, 4, 1)
    stations = [set((split.x[:, 0, 0] // 100).tolist()) for split in (dataset.train, dataset.test)]
    assert not stations[0] & stations[1]
    for split in (dataset.train, dataset.test):
        np.testing.assert_array_equal(split.y, split.x[:, 0, 0] // 100 > 1)
        assert sorted(set(split.y)) == [0, 1]


def test_times_are_numbers_or_dates(tmp_path):
    for month in ("{}", "2020-{:02}-01", "2020-01-01 {:02}:30", "{:02}/13/2020"):
        assert (np.diff(forecasts(write(tmp_path / "rain.csv", month=month)).train.x[..., 0]) == 1).all()


def test_a_missing_value_becomes_the_one_before(tmp_path):
    path = write(tmp_path / "rain.csv", lambda station, month: "" if month == 5 else month)
    assert "column 'rain' has no value here; fill it in, or set `missing: previous`" in refusal(forecasts, path)
    assert sorted(set(forecasts(path, missing="previous").train.x.flat)) == [0, 1, 2, 3, 4, 6, 7]
    # The first values become the one after them.
    first = write(tmp_path / "first.csv", lambda station, month: "" if month == 0 else month)
    assert sorted(set(forecasts(first, missing="previous").train.x.flat)) == [1, 2, 3, 4, 5, 6, 7]


def test_options_that_do_not_fit_are_rejected(tmp_path):
    path = write(tmp_path / "rain.csv")
    for options, message in (
        ({"series": None}, "repeats a time of the same series; set `series` to the column of its name"),
        ({"window": 12}, "has 12 rows, but a window and its horizon need 13; remove the series, or choose a smaller"),
        ({"window": 11}, "no training window fits before or after the first time of the test split"),
        ({"time": "climate"}, "`time` must name a column of numbers or of dates such as 2024-12-31 or"),
        ({"channels": ["snow"]}, "`channels` must name a column. Received: channels='snow'"),
        ({"channels": None}, "column 'climate' must be a number. Received: 'cold'"),
    ):
        assert message in refusal(forecasts, path, **options)


def test_a_series_with_two_classes_is_rejected(tmp_path):
    (tmp_path / "two.csv").write_text("time,value,kind\n" + "".join(f"{n},{n},{n % 2}\n" for n in range(8)))
    options = {"path": str(tmp_path / "two.csv"), "label": "kind", "time": "time", "window": 3}
    message = refusal(lambda: load(None, **options))
    assert message.startswith(f"{tmp_path}/two.csv:3: column 'kind' has another class than the first row of its series")
    assert refusal(lambda: load(None, **options, horizon=2)).startswith("`horizon` needs `task: regression`")
    assert refusal(lambda: load(None, **options, relative=True)).startswith("`relative` needs `task: regression`")
    message = refusal(lambda: load(None, **options, channels=["kind"]))
    assert message.endswith("`channels` must not name the label. Received: channels=kind")


def test_arrays_are_series_if_the_user_says_so():
    x, y = np.arange(48.0).reshape(4, 6, 2), [0, 1, 0, 1]
    dataset = from_arrays(x, y, x, y, kind="series", feature_names=["wind", "rain"])
    assert dataset.codec.KIND == "series" and dataset.train.x.dtype == np.float32
    mean, std = dataset.feature_statistics
    np.testing.assert_allclose(mean, x.mean((0, 1)))
    np.testing.assert_allclose(std, x.std((0, 1)))
    assert from_arrays(x[..., 0], y, x[..., 0], y, kind="series").train.x.shape == (4, 6, 1)
    assert "(for series, set `kind: series`)" in refusal(from_arrays, x, y, x, y)
    x[1, 2, 1] = np.nan
    message = refusal(lambda: from_arrays(x, y, x, y, kind="series"))
    assert message.endswith("expected finite numbers. Received: nan in (1, 2, 1)")
