"""Initial weights from a file or a run: every variable by its path, in its shape; refusals name each mismatch."""

from dataclasses import dataclass

import numpy as np
import pytest
from refusals import refusal
from written_runs import save_round

from hetero_tf.base import files
from hetero_tf.base.errors import InputError
from hetero_tf.models import initial_weights
from hetero_tf.runs.run_folder import RunFolder


@dataclass(frozen=True)
class Variable:
    """The attributes of a Keras variable that are used."""

    path: str
    shape: tuple
    dtype: str = "float32"


VARIABLES = (
    Variable("1_1/kernel", (2, 3)),
    Variable("1_10/kernel", (2,)),
    Variable("2_0_dense/kernel", (3, 4)),
    Variable("2_0_dense/bias", (4,)),
)
ARRAYS = {variable.path: np.random.default_rng(0).normal(size=variable.shape) for variable in VARIABLES}


@pytest.fixture
def read(tmp_path):
    """`(changes of the arrays; None drops one) -> arrays that are read`."""

    def start(changes=None, reinitialize=(), variables=VARIABLES):
        arrays = {name: value for name, value in (ARRAYS | (changes or {})).items() if value is not None}
        np.savez(tmp_path / "weights.npz", **arrays)
        weights, source = initial_weights.read(str(tmp_path / "weights.npz"), variables, reinitialize)
        assert source == str(tmp_path / "weights.npz")
        return weights

    return start


@pytest.fixture
def run(tmp_path):
    """`(round, changes of the weights, best) -> RunFolder` with a checkpoint, and the number of the best round."""

    def save(number, changes=None, best=None, **others):
        folder = RunFolder(tmp_path / "run")
        folder.path.mkdir(exist_ok=True)
        folder.recipe.write_text("name: run\n")
        weights = {f"weights/{name}": value for name, value in (ARRAYS | (changes or {})).items() if value is not None}
        named = {"statistics/9_norm/mean": np.ones(3), "server/momentum/1_1/kernel": np.ones((2, 3)), **others}
        save_round(folder, number, weights | named, best)
        return folder

    return save


def test_values_come_in_the_order_and_dtype_of_the_variables(read):
    arrays = read()
    assert list(arrays) == [variable.path for variable in VARIABLES]
    for name, value in arrays.items():
        assert value.dtype == np.float32
        np.testing.assert_array_equal(value, ARRAYS[name].astype(np.float32))
    exact = read(variables=[Variable(one.path, one.shape, "float64") for one in VARIABLES])
    assert all((exact[name] == ARRAYS[name]).all() and exact[name].dtype == np.float64 for name in exact)


def test_reinitialized_variables_ignore_the_file(read):
    for changes in ({}, {"2_0_dense/kernel": np.ones((3, 9)), "2_0_dense/bias": None}):
        assert list(read(changes, reinitialize=("2_0_dense",))) == ["1_1/kernel", "1_10/kernel"]
    assert list(read(reinitialize=("1_1/kernel",))) == ["1_10/kernel", "2_0_dense/kernel", "2_0_dense/bias"]
    # A layer's name is not a prefix of another layer's.
    assert "1_10/kernel" in read(reinitialize=("1_1",))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"2_0_dense/bias": None},
            r"expected the arrays of the model at its full width; first difference: 2_0_dense/bias, floats of shape \(4,\); "
            "take weights of the same model, or name the layer in model.reinitialize. Received: no array; "
            "did you mean '2_0_dense/kernel'?",
        ),
        (dict.fromkeys(ARRAYS), "first difference: 1_1/kernel, .* Received: no array$"),
        ({"2_0_dense/scale": np.ones(3)}, "first difference: 2_0_dense/scale, no array; take .* Received: an array; did"),
        (
            {"1_1/kernel": np.ones((3, 2))},
            r"first difference: 1_1/kernel, floats of shape \(2, 3\); take .* Received: floats of shape \(3, 2\)$",
        ),
        ({"1_10/kernel": np.ones(2, np.int32)}, r"1_10/kernel, floats of shape .* Received: int32 of shape \(2,\)$"),
        ({"1_10/kernel": np.array([1, np.nan])}, "1_10/kernel must be finite. Received: NaN or infinity"),
        ({"1_10/kernel": np.ones(2, object)}, "contains Python objects, which could run code when read"),
    ],
)  # fmt: skip
def test_arrays_that_do_not_fit_are_refused(read, changes, message):
    with pytest.raises(InputError, match=message) as refusal:
        read(changes)
    assert "weights.npz" in str(refusal.value)


def test_unknown_reinitialize_name_is_refused(read):
    assert (
        "model.reinitialize: must name variables or layers of the model. Received: '2_0_dens'; did you mean"
        in refusal(read, reinitialize=("2_0_dens",))
    )


def test_run_folder_prefers_its_best_state_to_its_newest(run):
    later = {name: value + 7 for name, value in ARRAYS.items()}
    folder = run(7, later)
    arrays, source = initial_weights.read(str(folder.path), VARIABLES)
    assert source == f"{folder.checkpoints}, round 7" and (arrays["1_10/kernel"] > 4).all()
    run(3, best=3)
    run(7, later, best=3)
    arrays, source = initial_weights.read(str(folder.path), VARIABLES)
    assert source == f"{folder.checkpoints}, round 3"
    for name, value in arrays.items():
        np.testing.assert_array_equal(value, ARRAYS[name].astype(np.float32))
    fresh, _ = initial_weights.read(str(folder.path), VARIABLES, ("2_0_dense",))
    assert list(fresh) == ["1_1/kernel", "1_10/kernel"]


def test_personal_units_of_a_run_are_averaged(run):
    personal = {"clients/personal/1_10/kernel": np.asarray([[1, 2], [3, 6]], np.float32)}
    arrays, _ = initial_weights.read(str(run(1, **personal).path), VARIABLES)
    np.testing.assert_array_equal(arrays["1_10/kernel"], np.asarray([2, 4], np.float32))


def test_incomplete_run_is_refused(run, tmp_path):
    for path, message in (
        (
            tmp_path / "gone",
            "gone: could not read: No such file or directory; name a .npz file, or the folder of a run",
        ),
        (tmp_path, "is not a run folder: it has no recipe.yaml; name a folder that `train` wrote"),
    ):
        with pytest.raises(InputError, match=message):
            initial_weights.read(str(path), VARIABLES)
    folder = run(2)
    assert "checkpoints: is not a run folder" in refusal(initial_weights.read, str(folder.checkpoints), VARIABLES)
    (arrays,) = folder.checkpoints.iterdir()
    arrays.write_bytes(arrays.read_bytes()[:-100])
    with pytest.raises(InputError, match="checkpoints: all 1 checkpoints are damaged .*is not a zip file"):
        initial_weights.read(str(folder.path), VARIABLES)
    files.remove(folder.checkpoints)
    with pytest.raises(InputError, match="run: holds no finished round yet; train that run first"):
        initial_weights.read(str(folder.path), VARIABLES)
