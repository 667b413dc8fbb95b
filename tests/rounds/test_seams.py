"""Plug-in points of a round: absent plug-ins have no effect, present ones have the documented effect."""

import dataclasses

import methods
import numpy as np
import pytest
import tiny

from hetero_tf import learning_process, recipe

SMALL = ("round.clients=2", "client.epochs=1")


def test_unused_parts_of_a_recipe_are_none():
    setup = tiny.shared(tiny.DENSE).setup
    algorithm = setup.algorithm
    assert (algorithm.correct, algorithm.remember, algorithm.update) == (None,) * 3
    assert all(submodel.mask is None for submodel in setup.submodels)
    assert algorithm.read_slots == () and not algorithm.sums_memory


@pytest.mark.long
@pytest.mark.parametrize("name", ["tiny/wikitext2", "tiny/cifar10_vit"])
@pytest.mark.parametrize("optimizer", ["adam", "adamw"])
def test_adaptive_optimizers_train_text_and_images(name, optimizer):
    step = f"optimizer={{name: {optimizer}, learning_rate: 0.003}}"
    process = learning_process(recipe.load(name, [step, "schedule=constant", "levels.mix=a1", *SMALL]))
    state, plan = process.initialize(), process.plan(0)
    losses = []
    for _ in range(4):
        # Equal clients and batches in each round, so the loss falls for no other reason.
        state, (row,) = process.run(state, [plan])
        losses.append(row["loss"])
    assert row["non_finite"] == 0 and losses[-1] < losses[0]


def test_a_client_of_fiarse_moves_no_more_than_its_share_of_entries(eager):
    process = methods.built("fiarse")
    before = process.initialize()
    plan = process.plan(0, [1])
    level = process.recipe.levels.names.index("c")
    plan = dataclasses.replace(plan, levels=np.full_like(plan.levels, level))
    after, _ = process.run(before, [plan])
    moved = sum(np.count_nonzero(np.asarray(before.weights[path]) != after.weights[path]) for path in before.weights)
    share = process.recipe.levels.entries["c"] * sum(np.size(value) for value in before.weights.values())
    assert share / 2 < moved <= share


def test_a_level_of_fiarse_predicts_with_its_share_of_entries():
    process = methods.built("fiarse")
    state = process.initialize()
    values = np.concatenate([np.ravel(v.numpy()) for v in process.network(state, "c").trainable_variables])
    whole = np.concatenate([np.ravel(value) for value in state.weights.values()])
    inside = np.argsort(-np.abs(whole))[: int(0.25 * len(whole))]
    np.testing.assert_array_equal(np.flatnonzero(values), np.sort(inside))
    np.testing.assert_array_equal(values[inside], whole[inside])
