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
from hetero_tf.data.dataset import Dataset, Split
from hetero_tf.data.disk_array import DiskArray
from hetero_tf.models.state import named
from hetero_tf.planning.packing import pack_rounds
from hetero_tf.planning.sharing import share_stacks
from hetero_tf.rounds.disk_rows import read_training_rows
from hetero_tf.workers import lead


def stored(folder, array, name="x"):
    np.save(folder / f"{name}.npy", array)
    return DiskArray.open(folder / f"{name}.npy")


@pytest.mark.parametrize("dtype", [np.uint8, np.int64, ">i4", "U3"])
def test_rows_are_those_of_the_array(tmp_path, dtype):
    array = np.random.default_rng(0).integers(0, 256, (50, 3, 2)).astype(dtype)
    kept = stored(tmp_path, array)
    assert (kept.shape, kept.ndim, kept.size, kept.nbytes, len(kept)) == ((50, 3, 2), 3, 300, array.nbytes, 50)
    some = kept.of(np.arange(50) % 3 == 1)
    for rows in (slice(None), slice(7, 3), slice(-4, None), slice(0, 50, 7), np.array([[4, 4], [49, 0]]), np.arange(0)):
        np.testing.assert_array_equal(kept[rows], array[rows])
    for rows in (slice(2, 9), np.array([3, 0, 1])):
        np.testing.assert_array_equal(some[rows], array[1::3][rows])
        np.testing.assert_array_equal(some.of(np.array([9, 2, 5]))[np.array([1, 2])], array[1::3][[2, 5]])
    for wrong in ([50], [-1]):
        with pytest.raises(IndexError, match=r"`rows` must be in 0..49. Received: (50 to 50|-1 to -1)"):
            kept[np.array(wrong)]


def test_a_pass_over_all_rows_holds_some_at_a_time(tmp_path, monkeypatch):
    array = np.arange(60, dtype=np.uint8).reshape(20, 3)
    monkeypatch.setattr("hetero_tf.data.disk_array.BLOCK", 10)
    blocks = list(stored(tmp_path, array).blocks())
    assert {len(block) for block in blocks} == {3, 2} and np.array_equal(np.concatenate(blocks), array)


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda data: data[:-1], r"x.npy: must have the size that its header claims, 60 bytes .* Received: 59 bytes"),
        (lambda data: data + b"x", r"Received: 61 bytes"),
        (lambda data: data[:20], r"x.npy: cannot be read as a .npy file, it is damaged or something else: EOF"),
        (lambda data: b"PK" + data, r"x.npy: cannot be read as a .npy file"),
        (lambda data: data.replace(b"'fortran_order': False", b"'fortran_order': True "), r"in C order; .* Fortran"),
        (lambda data: data.replace(b"|u1", b"|O8"), r"must hold numbers with at least one axis .* Received: object"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path, spoil, told):
    stored(tmp_path, np.zeros((20, 3), np.uint8))
    path = tmp_path / "x.npy"
    path.write_bytes(spoil(path.read_bytes()))
    with pytest.raises(InputError, match=told) as refusal:
        DiskArray.open(path)
    assert "\n" not in str(refusal.value)


def test_an_open_file_stays_what_it_was_and_a_cut_one_is_told(tmp_path):
    array = np.arange(60, dtype=np.uint8).reshape(20, 3)
    kept = stored(tmp_path, array)
    (tmp_path / "x.npy").rename(tmp_path / "old.npy")
    stored(tmp_path, array + 1)
    np.testing.assert_array_equal(kept[:], array)
    with open(tmp_path / "old.npy", "r+b") as file:
        file.truncate(140)
    with pytest.raises(InputError, match=r"x.npy: became shorter since it was opened; restore it and start again"):
        kept[:]


def test_a_data_set_has_the_same_digest_on_disk(tmp_path):
    dataset, _ = tiny.images()
    kept = folders.on_disk(tmp_path, dataset)
    assert kept.sha256 == dataset.sha256 and kept.kind == "images"
    chosen = np.array([4, 0, 9])
    np.testing.assert_array_equal(kept.train.of(chosen).x[:], dataset.train.of(chosen).x)
    with pytest.raises(InputError, match=r"noise, train split: only images uint8 may stay on disk; .* Received: int32"):
        Dataset(Split(stored(tmp_path, np.zeros((5, 3), np.int32))), Split(np.zeros((5, 3), np.int32)), 3, "noise")


def played(process, rounds=2):
    """Everything that a run of some rounds gives, as bytes: state, rows of metrics, an evaluation, its statistics."""
    state, rows = process.run(process.initialize(), tiny.plans(process, rounds))
    metrics, statistics = process.evaluate(state)
    arrays = {
        **named(state),
        **{(level, path): value for level in statistics for path, value in statistics[level].items()},
    }
    told = json.dumps([rows, metrics], default=float)
    return {name: np.asarray(value).tobytes() for name, value in arrays.items()}, told


@pytest.mark.parametrize(
    ("base", "overrides", "device"),
    [
        (tiny.DROPOUT_IMAGES, ("evaluate.levels=all",), "cpu"),
        (tiny.DENSE, ("input.augment=crop_flip", "evaluate.statistics=clients"), "cpu"),
        pytest.param(tiny.IMAGES, ("levels.mix=a-c",), "gpu", marks=pytest.mark.long),
    ],
    ids=["images", "augmented", "xla"],
)
def test_rounds_and_evaluations_are_those_of_images_in_memory(tmp_path, base, overrides, device):
    dataset, partition = tiny.images()
    kept = tiny.process(base, *overrides, data=(folders.on_disk(tmp_path, dataset), partition), device=device)
    assert played(kept) == played(tiny.process(base, *overrides, data=(dataset, partition), device=device))
    assert kept._round.experimental_get_tracing_count() == 1


def test_personal_models_and_held_out_examples_are_too(tmp_path):
    one = methods.built("lg")
    kept = learning_process(
        one.recipe, dataset=folders.on_disk(tmp_path, one.dataset), partition=one.partition, parallel=2, device="cpu"
    )
    assert played(kept) == played(one)


def test_a_worker_reads_its_own_clients_only(tmp_path):
    dataset, partition = tiny.images()
    kept = tiny.process(tiny.IMAGES, data=(folders.on_disk(tmp_path, dataset), partition))
    plan = kept.plan(0, (0, 1, 2, 3))
    packed = pack_rounds([plan], [stack.clients for stack in kept.parts.engine.stacks], kept.family.submodel_of)
    shared = share_stacks(packed, kept.work(plan), 2)
    of_workers = []
    for worker in range(2):
        given_rounds, given = read_training_rows(kept.parts.examples, shared, range(worker, worker + 1))
        mine = shared.replicas == worker
        rows, positions = shared.rows[mine], given_rounds.rows[mine]
        np.testing.assert_array_equal(rows < 0, positions < 0)
        np.testing.assert_array_equal(given["x"].numpy()[positions[rows >= 0]], dataset.train.x[rows[rows >= 0]])
        np.testing.assert_array_equal(given["y"].numpy()[positions[rows >= 0]], dataset.train.y[rows[rows >= 0]])
        of_workers.append(set(rows[rows >= 0].tolist()))
        assert len(given["x"]) == len(of_workers[-1])
    assert all(of_workers) and not of_workers[0] & of_workers[1]
    assert of_workers[0] | of_workers[1] == set(partition.train.ids.tolist())


def test_xla_is_given_equally_many_rows_each_time(tmp_path):
    dataset, partition = tiny.images()
    kept = tiny.process(tiny.IMAGES, data=(folders.on_disk(tmp_path, dataset), partition), device="gpu")
    sizes = [stack.clients for stack in kept.parts.engine.stacks]
    for cohort in ((0, 1, 2), (1, 3), (3,)):
        packed = pack_rounds([kept.plan(0, cohort)], sizes, kept.family.submodel_of)
        _, given = read_training_rows(kept.parts.examples, packed, range(1))
        # The largest clients have 9, 7 and 5 examples; a cohort has three.
        assert kept.recipe.round.clients == 3 and len(given["x"]) == len(given["y"]) == 21


def test_which_replicas_a_process_computes():
    def strategy(count, workers, index):
        resolver = SimpleNamespace(task_id=index, cluster_spec=lambda: SimpleNamespace(num_tasks=lambda job: workers))
        return SimpleNamespace(num_replicas_in_sync=count, cluster_resolver=resolver if workers else None)

    assert Replicas(1).here == range(1) and Replicas(1, strategy(4, None, None)).here == range(4)
    assert [list(Replicas(1, strategy(4, 2, index)).here) for index in range(2)] == [[0, 1], [2, 3]]


def test_a_file_that_is_cut_off_while_it_is_measured_is_one_sentence(tmp_path):
    dataset, partition = tiny.images()
    kept = tiny.process(tiny.DENSE, data=(folders.on_disk(tmp_path, dataset), partition))
    state = kept.initialize()
    with open(tmp_path / "test.npy", "r+b") as file:
        file.truncate(200)
    with pytest.raises(tf.errors.UnknownError) as met:
        kept.evaluate(state)
    refusal = error_from_graph(met.value)
    assert isinstance(refusal, Damaged) and refusal.code == 2
    assert str(refusal) == f"{tmp_path / 'test.npy'}: became shorter since it was opened; restore it and start again"
    assert error_from_graph(tf.errors.UnknownError(None, None, "nothing of ours")) is None
    assert error_from_graph(ValueError("InputError: x")) is None
    with pytest.raises(Damaged, match="became shorter"), lead.noticing():
        kept.evaluate(state)


def test_a_round_in_which_nobody_takes_a_step_changes_nothing(tmp_path):
    dataset, partition = tiny.images()
    kept = tiny.process(tiny.DENSE, data=(folders.on_disk(tmp_path, dataset), partition))
    plan = kept.plan(0)
    none = {name: getattr(plan, name)[:, :0] for name in ("rows", "starts", "stages")}
    idle = dataclasses.replace(plan, steps=0 * plan.steps, **none)
    before = kept.initialize()
    after, _ = kept.run(before, [idle])
    assert tiny.same(tiny.arrays(before), tiny.arrays(after))
