"""Images that stay on disk: the numbers are those of images in memory, bit by bit, and only what is needed is read."""

import dataclasses
import json
from types import SimpleNamespace

import folders
import methods
import numpy as np
import pytest
import tensorflow as tf
import tiny

from hetero_tf import learning_process
from hetero_tf.base.errors import InputError, error_from_graph
from hetero_tf.base.files import Damaged
from hetero_tf.base.replicas import Replicas
from hetero_tf.data.disk_array import DiskArray
from hetero_tf.models.state import flatten_state
from hetero_tf.planning.packing import pack_rounds, share_blocks
from hetero_tf.rounds.batches import read_training_rows
from hetero_tf.workers import worker_rounds


def save(folder, array, name="x"):
    np.save(folder / f"{name}.npy", array)
    return DiskArray.open(folder / f"{name}.npy")


@pytest.mark.parametrize("dtype", [np.uint8, np.int64, ">i4", "U3"])
def test_rows_are_those_of_the_array(tmp_path, dtype, monkeypatch):
    array = np.random.default_rng(0).integers(0, 256, (50, 3, 2)).astype(dtype)
    disk_array = save(tmp_path, array)
    assert (disk_array.shape, disk_array.ndim, len(disk_array)) == ((50, 3, 2), 3, 50)
    assert (disk_array.size, disk_array.nbytes) == (300, array.nbytes)
    selected = disk_array.select(np.arange(50) % 3 == 1)
    for rows in (slice(None), slice(7, 3), slice(-4, None), slice(0, 50, 7), np.array([[4, 4], [49, 0]]), np.arange(0)):
        np.testing.assert_array_equal(disk_array[rows], array[rows])
    for rows in (slice(2, 9), np.array([3, 0, 1])):
        np.testing.assert_array_equal(selected[rows], array[1::3][rows])
        np.testing.assert_array_equal(selected.select(np.array([9, 2, 5]))[np.array([1, 2])], array[1::3][[2, 5]])
    monkeypatch.setattr("hetero_tf.data.disk_array.BLOCK", array.nbytes // 5)
    blocks = list(disk_array.blocks())
    assert list(map(len, blocks)) == [10] * 5 and np.array_equal(np.concatenate(blocks), array)
    for wrong in ([50], [-1]):
        with pytest.raises(IndexError, match=r"`rows` must be in 0..49. Received: (50 to 50|-1 to -1)"):
            disk_array[np.array(wrong)]


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda data: data[:-1], r"x.npy: cannot be read as a .npy file of numbers: mmap length is greater than file"),
        (lambda data: data[:20], r"x.npy: cannot be read as a .npy file of numbers: EOF"),
        (lambda data: b"PK" + data, r"x.npy: cannot be read as a .npy file"),
        (lambda data: data.replace(b"'fortran_order': False", b"'fortran_order': True "), r"in C order"),
        (lambda data: data.replace(b"|u1", b"|O8"), r"x.npy: cannot be read as a .npy file of numbers: Array can't be"),
    ],
)
def test_damaged_file_is_rejected(tmp_path, spoil, message):
    save(tmp_path, np.zeros((20, 3), np.uint8))
    path = tmp_path / "x.npy"
    path.write_bytes(spoil(path.read_bytes()))
    with pytest.raises(InputError, match=message) as refusal:
        DiskArray.open(path)
    assert "\n" not in str(refusal.value)


def test_replaced_file_stays_readable_and_truncated_file_is_reported(tmp_path):
    array = np.arange(60, dtype=np.uint8).reshape(20, 3)
    disk_array = save(tmp_path, array)
    (tmp_path / "x.npy").rename(tmp_path / "old.npy")
    save(tmp_path, array + 1)
    np.testing.assert_array_equal(disk_array[:], array)
    with open(tmp_path / "old.npy", "r+b") as file:
        file.truncate(140)
    with pytest.raises(InputError, match=r"x.npy: was truncated after it was opened; restore it and start again"):
        disk_array[:]


def test_dataset_on_disk_has_the_same_digest(tmp_path):
    dataset, _ = tiny.images()
    on_disk = folders.on_disk(tmp_path, dataset)
    assert on_disk.sha256 == dataset.sha256
    chosen = np.array([4, 0, 9])
    np.testing.assert_array_equal(on_disk.train.select(chosen).x[:], dataset.train.select(chosen).x)


def train_and_evaluate(process, rounds=2):
    """Everything that a run of some rounds gives, as bytes: state, rows of metrics, an evaluation, its statistics."""
    state, rows = process.run(process.initialize(), tiny.plans(process, rounds))
    metrics, statistics = process.evaluate(state)
    arrays = {
        **flatten_state(state),
        **{(level, path): value for level in statistics for path, value in statistics[level].items()},
    }
    message = json.dumps([rows, metrics], default=float)
    return {name: np.asarray(value).tobytes() for name, value in arrays.items()}, message


def on_disk_and_in_memory(folder, base, *overrides, device="cpu"):
    dataset, partition = tiny.images()
    sets = (folders.on_disk(folder, dataset), dataset)
    return [tiny.process(base, *overrides, data=(each, partition), device=device) for each in sets]


@pytest.mark.long
@pytest.mark.parametrize(
    ("base", "overrides"),
    [
        (tiny.DROPOUT_IMAGES, ("evaluate.levels=all",)),
        (tiny.DENSE, ("input.augment=crop_flip", "evaluate.statistics=clients")),
        (tiny.DENSE, ("task=ordinal", "client.loss=masked_sigmoid_cross_entropy", "client.sampling=balanced")),
    ],
    ids=["images", "augmented", "ordinal"],
)
def test_rounds_and_evaluations_equal_those_in_memory(tmp_path, base, overrides, eager):
    on_disk, in_memory = on_disk_and_in_memory(tmp_path, base, *overrides)
    assert train_and_evaluate(on_disk) == train_and_evaluate(in_memory)


@pytest.mark.parametrize("device", ["cpu", pytest.param("gpu", marks=pytest.mark.long)])
def test_compiled_rounds_equal_those_in_memory(tmp_path, device):
    on_disk, in_memory = on_disk_and_in_memory(tmp_path, tiny.DENSE, "levels.mix=c", device=device)
    states = [each.run(each.initialize(), tiny.plans(each, 2))[0] for each in (on_disk, in_memory)]
    assert tiny.same(*map(tiny.arrays, states))
    assert on_disk.runner.compiled_round.experimental_get_tracing_count() == 1


def test_personal_models_and_validation_equal_those_in_memory(tmp_path, eager):
    one = methods.built("lg")
    process = learning_process(
        one.recipe, dataset=folders.on_disk(tmp_path, one.dataset), partition=one.partition, parallel=2, device="cpu"
    )
    assert train_and_evaluate(process) == train_and_evaluate(one)


def test_worker_reads_only_rows_of_its_clients(tmp_path):
    dataset, partition = tiny.images()
    process = tiny.process(tiny.IMAGES, data=(folders.on_disk(tmp_path, dataset), partition))
    plan = process.plan(0, (0, 1, 2, 3))
    packed, (slots,) = pack_rounds([plan], process.setup.block_sizes, process.family.submodel_of)
    shared = share_blocks(packed, slots, process.round_cost(plan).train_flops, 2)
    of_workers = []
    for worker in range(2):
        compact, inputs = read_training_rows(process.setup.examples, shared, range(worker, worker + 1))
        mine = shared.replicas == worker
        rows, positions = shared.rows[mine], compact.rows[mine]
        np.testing.assert_array_equal(rows < 0, positions < 0)
        np.testing.assert_array_equal(inputs["x"].numpy()[positions[rows >= 0]], dataset.train.x[rows[rows >= 0]])
        np.testing.assert_array_equal(inputs["y"].numpy()[positions[rows >= 0]], dataset.train.y[rows[rows >= 0]])
        of_workers.append(set(rows[rows >= 0].tolist()))
        assert len(inputs["x"]) == len(of_workers[-1])
    assert all(of_workers) and not of_workers[0] & of_workers[1]
    assert of_workers[0] | of_workers[1] == set(partition.train.ids.tolist())


def test_xla_receives_a_constant_number_of_rows(tmp_path):
    dataset, partition = tiny.images()
    process = tiny.process(tiny.IMAGES, data=(folders.on_disk(tmp_path, dataset), partition), device="gpu")
    sizes = process.setup.block_sizes
    for cohort in ((0, 1, 2), (1, 3), (3,)):
        packed, _ = pack_rounds([process.plan(0, cohort)], sizes, process.family.submodel_of)
        _, inputs = read_training_rows(process.setup.examples, packed, range(1))
        # The largest clients have 9, 7 and 5 examples; a cohort has three.
        assert process.recipe.round.clients == 3 and len(inputs["x"]) == len(inputs["y"]) == 21


def test_replicas_of_each_process():
    def strategy(count, workers, index):
        resolver = SimpleNamespace(task_id=index, cluster_spec=lambda: SimpleNamespace(num_tasks=lambda job: workers))
        return SimpleNamespace(num_replicas_in_sync=count, cluster_resolver=resolver if workers else None)

    assert Replicas(1).local_range == range(1) and Replicas(1, strategy(4, None, None)).local_range == range(4)
    assert [list(Replicas(1, strategy(4, 2, index)).local_range) for index in range(2)] == [[0, 1], [2, 3]]


def test_file_truncated_during_evaluation_is_reported(tmp_path):
    dataset, partition = tiny.images()
    process = tiny.process(tiny.DENSE, data=(folders.on_disk(tmp_path, dataset), partition))
    state = process.initialize()
    with open(tmp_path / "test.npy", "r+b") as file:
        file.truncate(200)
    with pytest.raises(tf.errors.UnknownError) as caught:
        process.evaluate(state)
    refusal = error_from_graph(caught.value)
    assert isinstance(refusal, Damaged) and refusal.code == 2
    assert str(refusal) == f"{tmp_path / 'test.npy'}: was truncated after it was opened; restore it and start again"
    assert error_from_graph(tf.errors.UnknownError(None, None, "nothing of ours")) is None
    assert error_from_graph(ValueError("InputError: x")) is None
    with pytest.raises(Damaged, match="was truncated"), worker_rounds.detecting_lost_workers():
        process.evaluate(state)


def test_round_without_steps_changes_nothing(tmp_path):
    process, _ = on_disk_and_in_memory(tmp_path, tiny.DENSE, "levels.mix=c")
    plan = process.plan(0)
    none = {name: getattr(plan, name)[:, :0] for name in ("rows", "starts", "stages")}
    idle = dataclasses.replace(plan, steps=0 * plan.steps, **none)
    before = process.initialize()
    after, _ = process.run(before, [idle])
    assert tiny.same(tiny.arrays(before), tiny.arrays(after))
