"""The learning process: pure steps, metrics, schedule, and models of every level."""

import dataclasses
import functools

import numpy as np
import pytest
import tiny
from stub_rounds import stubbed

from hetero_tf import recipe
from hetero_tf.base.errors import InputError
from hetero_tf.models.global_layout import label_table
from hetero_tf.reports.describe import describe
from hetero_tf.run.data import split
from hetero_tf.run.learning_process import learning_process


@functools.cache
def dense(*overrides):
    return tiny.process(tiny.DENSE, *overrides)


def test_the_first_state_holds_the_initial_values_of_the_global_model():
    state = dense().initialize()
    assert state.round == 0
    assert list(state.weights) == [v.path for v in dense().evaluator.global_model.trainable_variables]
    assert tiny.same(
        tiny.arrays(state), {v.path: v.numpy() for v in dense().evaluator.global_model.trainable_variables}
    )
    again, other = tiny.process(tiny.DENSE), tiny.process(tiny.DENSE, "seed=1")
    assert tiny.same(tiny.arrays(again.initialize()), tiny.arrays(state))
    assert not tiny.same(tiny.arrays(other.initialize()), tiny.arrays(state))


def test_a_round_is_a_pure_step():
    state = dense().initialize()
    before = tiny.arrays(state)
    first, metrics = dense().next(state)
    second, again = dense().next(state)
    assert tiny.same(tiny.arrays(first), tiny.arrays(second))
    assert metrics == again
    assert (state.round, first.round) == (0, 1)
    assert tiny.same(tiny.arrays(state), before)
    assert tiny.same(tiny.arrays(dense().initialize()), before)
    with pytest.raises(dataclasses.FrozenInstanceError):
        state.round = 4


def test_metrics_of_a_round_count_its_clients_bytes_and_operations():
    process = dense()
    _, metrics = process.next(process.initialize(), [0, 1, 3])
    names = "bytes_down bytes_up gradient_norm learning_rate levels loss non_finite train_flops"
    assert " ".join(sorted(metrics)) == names
    assert metrics["loss"] > 0 and metrics["gradient_norm"] > 0 and metrics["non_finite"] == 0
    assert set(metrics["levels"]) == set("abc") and sum(metrics["levels"].values()) == 3
    plan, per_level = process.plan(0, [0, 1, 3]), process.client_costs
    assert metrics["bytes_down"] == metrics["bytes_up"] == sum(per_level[level].bytes_up for level in plan.levels)
    assert metrics["train_flops"] == sum(
        per_level[level].train_flops[0] * count
        for level, count in zip(plan.levels, process.runner.count_examples(plan))
    )


def test_the_schedule_multiplies_the_rate_of_each_round():
    process = stubbed(dense("schedule={name: steps, at: [1, 3], factor: 0.1}"))
    _, rows = process.run(process.initialize(), tiny.plans(process, 4))
    assert [row["learning_rate"] for row in rows] == pytest.approx([0.1, 0.01, 0.01, 0.001])
    # A rate of zero must leave weights alone: the rate reaches the clients.
    still = dense("schedule={name: cosine, rounds: 1}", "levels.mix=c")
    state, _ = still.next(still.initialize())
    frozen, row = still.next(state)
    assert row["learning_rate"] == 0
    assert tiny.gap(tiny.arrays(frozen), tiny.arrays(state)) < 1e-7


def test_examples_counts_pixels_by_image_and_text_by_word():
    process = dense()
    plan = process.plan(0, [0, 1, 2, 3])
    assert dict(zip(plan.clients.tolist(), process.runner.count_examples(plan).tolist())) == {0: 7, 1: 5, 2: 9, 3: 4}
    text = tiny.process(tiny.TEXT)
    plan = text.plan(0, [0, 1, 2, 3])
    assert dict(zip(plan.clients.tolist(), text.runner.count_examples(plan).tolist())) == {0: 10, 1: 30, 2: 20, 3: 10}


def test_a_level_has_the_first_channels_of_the_global_weights_and_statistics_of_its_shapes():
    process = tiny.process(tiny.IMAGES)
    state = process.initialize()
    for level, width in (("a", 8), ("b", 4), ("c", 2)):
        model = process.network(state, level, statistics={})
        assert model.layers[1].kernel.shape == (3, 3, 2, width)
        for variable in model.trainable_variables:
            part = np.asarray(state.weights[variable.path])[tuple(slice(size) for size in variable.shape)]
            assert variable.numpy().tobytes() == part.tobytes()
    assert process.network(state, statistics={}).count_params() == process.evaluator.global_model.count_params()
    assert process.network(state, "b")(process.dataset.test.x / 255).shape == (11, tiny.CLASSES)
    wide, narrow = process.statistics(state), process.statistics(state, "c")
    assert wide.keys() == narrow.keys()
    for path, value in narrow.items():
        assert value.shape[0] < wide[path].shape[0]
        assert np.isfinite(value).all()
    for variable in process.network(state, "c").non_trainable_variables:
        np.testing.assert_array_equal(variable, narrow[variable.path])


def test_data_and_partition_default_to_those_of_the_recipe():
    loaded = recipe.loads(tiny.DENSE, overrides=["partition.clients=8", "data={name: synthetic, examples: 83}"])
    process = learning_process(loaded)
    assert len(process.dataset.train.x) == 83
    assert [len(ids) for ids in process.partition.train] == [10] * 8
    assert process.partition.sha256 == split(loaded, process.dataset).sha256
    assert process.partition.sha256 != split(dataclasses.replace(loaded, seed=1), process.dataset).sha256


def test_the_label_table_lists_each_clients_labels():
    partition = tiny.images(labels=((0, 1), (1, 2, 3), (8,), (4, 7)))[1]
    table = label_table(partition.label_mask)
    assert table.dtype == np.int32
    for row, mask in zip(table, partition.label_mask):
        assert row[row >= 0].tolist() == np.flatnonzero(mask).tolist()
        assert sorted(row[row < 0]) == [-1] * (table.shape[1] - mask.sum())


def test_dropped_clients_cost_only_the_download():
    process = stubbed(dense("fleet={devices: {any: {seconds_per_step: 1, dropout: 0.5}}}"))
    for round in range(20):
        plan = process.plan(round, [0, 1, 2, 3])
        if 0 < plan.timing.metrics()["dropped"] < 4:
            break
    _, (row,) = process.run(process.initialize(), [plan])
    each = process.client_costs
    assert row["bytes_down"] == sum(each[level].bytes_down for level in plan.levels)
    assert row["bytes_up"] == sum(each[level].bytes_up for level, steps in zip(plan.levels, plan.steps) if steps)
    assert row == row | plan.timing.metrics() and sum(row["levels"].values()) == 4


def test_a_round_from_which_everybody_dropped_out_changes_nothing():
    # A fleet changes the plans alone.
    fleet, state = dense("fleet={devices: {any: {seconds_per_step: 1, dropout: 0.99}}}"), dense().initialize()
    plan = next(plan for plan in tiny.plans(fleet, 9) if plan.timing.metrics()["dropped"] == 3)
    after, (row,) = dense().run(state, [plan])
    assert tiny.same(tiny.arrays(after), tiny.arrays(state))
    assert row["loss"] is None and row["non_finite"] == row["bytes_up"] == row["train_flops"] == 0 < row["bytes_down"]


def test_fixed_levels_have_separate_metrics():
    fixed = tiny.process(tiny.DENSE, "levels.assignment=fixed", "levels.mix=a1-b1-c2")
    level_metrics = {name for name in fixed.evaluate(fixed.initialize())[0] if name.startswith("clients_accuracy_")}
    assert level_metrics == {f"clients_accuracy_{name}" for name in "abc"}
    assert not any(name.startswith("clients_accuracy_") for name in dense().evaluate(dense().initialize())[0])


def test_training_starts_from_weights_of_a_file(tmp_path):
    weights = {path: value + 1 for path, value in tiny.arrays(dense().initialize()).items()}
    np.savez(tmp_path / "weights.npz", **weights)
    process = tiny.process(tiny.DENSE, f"model.initial_weights={tmp_path / 'weights.npz'}")
    assert tiny.same(tiny.arrays(process.initialize()), weights)
    head = tiny.process(
        tiny.DENSE, f"model.initial_weights={tmp_path / 'weights.npz'}", "model.reinitialize=[1_0_dense]"
    )
    actual, initial = tiny.arrays(head.initialize()), tiny.arrays(dense().initialize())
    for path in actual:
        assert (actual[path] == (initial if path.startswith("1_0_dense") else weights)[path]).all()
    (tmp_path / "weights.npz").unlink()
    assert tiny.same(tiny.arrays(process.blank()), initial)
    message = "--set model.initial_weights=.*: model.initial_weights: .*weights.npz: could not read"
    with pytest.raises(InputError, match=message):
        process.initialize()
    with pytest.raises(InputError, match=message):
        describe(process)
