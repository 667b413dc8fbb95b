"""Series in `.ts` files: splits, classes, numbers and missing values. `test_trials` has files that are rejected."""

import numpy as np
from refusals import refusal

from hetero_tf.data import ts

HEADER = "# Two stations\n@problemName Rain\n@univariate false\n@equalLength true\n@classLabel true dry wet\n@data\n"


def write(folder, lines=None, header=HEADER, name="own.ts"):
    lines = [f"{n},{n + 1},{n + 2}:0,{n},1:{'dry' if n % 2 else 'wet'}" for n in range(12)] if lines is None else lines
    (folder / name).write_text(header + "\n".join(lines) + "\n")


CASE = (write, {"path": "own.ts"})


def load(folder, **options):
    return ts.load(folder, **{"path": "own.ts", **options})


def test_a_file_has_series_of_several_channels_and_their_classes_and_another_the_test_series(tmp_path):
    write(tmp_path)
    dataset = load(tmp_path, test_share=0.25)
    assert dataset.train.x.shape == (8, 3, 2) and dataset.test.x.shape == (4, 3, 2)
    assert (dataset.codec.KIND, dataset.class_names) == ("series", ("dry", "wet"))
    assert dataset.source == f"series ({tmp_path}/own.ts)"
    for split in (dataset.train, dataset.test):
        first = split.x[:, 0, 0]
        np.testing.assert_array_equal(split.x[:, :, 0], first[:, None] + np.arange(3))
        assert split.y.tolist() == [int(number % 2 == 0) for number in first]
        np.testing.assert_array_equal(split.x[:, 1, 1], first)
    write(tmp_path, ["1,2,3:4,5,6:wet"], name="test.ts")
    dataset = load(tmp_path, test="test.ts")
    assert len(dataset.train.x) == 12 and dataset.test.x.tolist() == [[[1, 4], [2, 5], [3, 6]]]
    assert dataset.test.y.tolist() == [1]


def test_missing_values_are_those_before_them(tmp_path):
    write(tmp_path, ["?,1,?:4,NaN,6:wet", *["1,2,3:4,5,6:dry"] * 5])
    assert refusal(load, tmp_path) == (
        f"{tmp_path}/own.ts:7: has a missing value; fill it in, or set `missing: previous`"
    )
    write(tmp_path, ["?,1,?:4,NaN,6:wet"] * 6 + ["1,2,3:4,5,6:dry"] * 6)
    dataset = load(tmp_path, missing="previous")
    assert dataset.train.x[dataset.train.y == 1][0].tolist() == [[1, 4], [1, 4], [1, 6]]


def test_numbers_are_targets_of_regression(tmp_path):
    write(tmp_path, [f"{n},1:{n / 2}" for n in range(60)], "@targetLabel true\n@data\n")
    dataset = load(tmp_path, targets="numbers")
    assert dataset.targets == "numbers" and dataset.train.x.shape[1:] == (2, 1)
    np.testing.assert_array_equal(dataset.train.y[:, 0], dataset.train.x[:, 0, 0] / 2)
