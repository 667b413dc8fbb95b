"""Masks of FIARSE: a client moves, and a level predicts with, its share of the entries."""

import dataclasses

import methods
import numpy as np


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
