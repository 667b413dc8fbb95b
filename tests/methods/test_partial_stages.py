"""Clients that did not reach all of their stages: units that they did not train are not merged."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
import tiny
from refusals import refusal

from hetero_tf.planning.plan import Plan
from hetero_tf.rounds.block_training import completed_stages

BLOCKS = tiny.IMAGES.replace(
    "    - GlobalAveragePooling2D\n    - Dense: {units: !classes, kernel_init",
    "    - PreActivationBlock: {filters: !w 12}\n    - PreActivationBlock: {filters: !w 12}\n"
    "    - [GlobalAveragePooling2D, Dense: {units: !classes, kernel_init",
).replace("fan_in_uniform}\n", "fan_in_uniform}]\n", 1)
STAGED = (
    "client.epochs=1",
    "levels.widths={a: 1, b: 1}",
    "levels.mix=a-b",
    "levels.budgets={a: 1, b: 1/2}",
    "client.stages=blockwise",
)


def cut(plan, stages, staged):
    """The plan limited to a number of stages of each client whose level has several."""
    rows, steps = plan.rows.copy(), plan.steps.copy()
    for slot, level in enumerate(plan.levels):
        if level == 1:
            steps[slot] = steps[slot] * stages // staged
            rows[slot, steps[slot] :] = -1
    return dataclasses.replace(plan, rows=rows, steps=steps)


def of_levels(process, cohort, chosen):
    """The first plan in which these clients have these levels."""
    for round in range(200):
        plan = process.plan(round, cohort)
        if dict(zip(plan.clients.tolist(), plan.levels.tolist())) == dict(zip(cohort, chosen)):
            return plan
    raise AssertionError("no such round")


def trained(process, plan):
    state = process.initialize()
    after, (row,) = process.run(state, [plan])
    return tiny.arrays(state), tiny.arrays(after), row


pytestmark = pytest.mark.usefixtures("eager")


@pytest.fixture(scope="module", params=[pytest.param("sequential", marks=pytest.mark.long), "stacked"])
def process(request):
    return tiny.process(BLOCKS, *STAGED, f"engine={request.param}")


@pytest.mark.long
def test_units_that_no_client_reaches_stay_unchanged(process):
    staged = len(process.family.stages["b"])
    assert staged == 3
    old, new, row = trained(process, cut(of_levels(process, [0, 2], [1, 1]), 1, staged))
    moved = {path.split("/")[0] for path in old if not (old[path] == new[path]).all()}
    # Stem, first block and head.
    assert moved == {"0_0_padded_conv2d", "0_2_norm", "1_0_pre_activation_block", "4_1_dense"}
    assert row["loss"] > 0 and row["bytes_up"] > 0


def of_first_level(plan):
    (index,) = np.flatnonzero(plan.levels == 0)
    return Plan(**{name: array[index : index + 1] for name, array in plan.arrays().items()})


@pytest.mark.long
def test_a_unit_is_the_mean_of_the_clients_that_trained_it(process):
    plan = of_levels(process, [0, 2], [0, 1])
    short = cut(plan, 1, 3)
    single_plan = of_first_level(plan)
    _, both, _ = trained(process, short)
    _, full, _ = trained(process, plan)
    _, one, _ = trained(process, single_plan)
    late = [path for path in both if path.startswith(("2_", "3_"))]
    assert late and all(both[path].tobytes() == one[path].tobytes() for path in late)
    assert not any(both[path].tobytes() == full[path].tobytes() for path in late)
    assert not any(both[path].tobytes() == one[path].tobytes() for path in both if path.startswith("1_"))


def test_counted_values_are_merged_after_any_completed_stage():
    process = tiny.process(BLOCKS, *STAGED, "round.untrained=counted")
    plan = of_levels(process, [0, 2], [0, 1])
    old, both, _ = trained(process, cut(plan, 1, 3))
    _, one, _ = trained(process, of_first_level(plan))
    path = "3_0_pre_activation_block/conv1/kernel"
    np.testing.assert_allclose(both[path], (old[path] + one[path]) / 2, atol=1e-6)


def test_stages_are_reached_by_the_remaining_steps():
    rows = np.full((2, 2, 3, 4), -1, np.int32)
    stages = np.asarray([[0, 1, 2], [0, 0, 1]], np.int32)
    rows[0, 0, :, 0] = rows[1, 0, 0, 0] = rows[1, 1, 2, 0] = 5
    assert completed_stages(tf.constant(rows), tf.constant(stages)).numpy().tolist() == [[3, 0], [1, 2]]


def test_pooling_outside_the_unit_of_the_head_is_rejected():
    pooled_apart = BLOCKS.replace("    - [GlobalAveragePooling2D, Dense", "    - GlobalAveragePooling2D\n    - [Dense")
    expected = "model.layers[5][0].Dense: the model must end in logits of the shape (None, 3), None for the batch and positions; put the pooling into the last unit: [GlobalAveragePooling2D, Dense: ...]. Received: (None, 3, 3, 3)"
    assert expected in refusal(tiny.process, pooled_apart, *STAGED)


@pytest.mark.long
@pytest.mark.parametrize("update", ["sign", "{name: top_k, share: 0.2}"])
def test_unfinished_stages_keep_the_errors_of_earlier_messages(update):
    """Sent change and new error are update and old error of what is merged; other entries keep their error."""
    settings = (*STAGED, "precision=float64", "levels.mix=b", "levels.assignment=fixed")
    plain, process = (tiny.process(BLOCKS, *settings, *more) for more in ((), (f"client.update={update}",)))
    cohort = [process.plan(round, [1]) for round in range(2)]
    before, _ = process.run(process.initialize(), cohort[:1])
    short = dataclasses.replace(cohort[1], rows=cohort[1].rows.copy(), steps=cohort[1].steps // 3)
    short.rows[:, short.steps[0] :] = -1
    after, _ = process.run(before, [short])
    trained, _ = plain.run(dataclasses.replace(before, clients=plain.initialize().clients), [short])
    late = 0
    for path, old in before.clients["errors"].items():
        sent, update, error = (
            np.asarray(each)
            for each in (
                after.weights[path] - before.weights[path],
                trained.weights[path] - before.weights[path],
                after.clients["errors"][path][1],
            )
        )
        if path.startswith(("2_", "3_")):
            assert not sent.any() and error.tobytes() == np.asarray(old[1]).tobytes(), path
            late += np.count_nonzero(error)
        np.testing.assert_allclose(sent + error, update + old[1], atol=1e-14, err_msg=path)
    assert late > 100
