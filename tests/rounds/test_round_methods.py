"""Every method's compiled rounds compared with the plain loop of `oracle_methods`; its single trace; fixed values."""

import dataclasses

import methods
import numpy as np
import oracle_methods
import pytest
import tiny
from test_engine import stateful_operations

from hetero_tf.base import registry

TOLERANCE = {"float64": 1e-10, "float32": 1e-5}
# Values that training one by one computes in another order, or small numbers under a root.
TWICE = ("splitmix", "fedepth_teachers", "adam")
CASES = [(name, "stacked", "float64") for name in methods.METHODS] + [(name, "sequential", "float32") for name in TWICE]
# One of each kind of method; the others are long.
QUICK = ("splitmix", "adam")
EVERYONE = (0, 1, 2, 3)


def case_param(case):
    quick = case[0] in QUICK and case[1] == "stacked"
    return pytest.param(case, id="-".join(case), marks=[] if quick else [pytest.mark.long])


def build_plans(process, rounds=2):
    """Drawn cohorts, and a last round with all clients."""
    return [*tiny.plans(process, rounds - 1), process.plan(rounds - 1, EVERYONE)]


def run(process, state, *plans):
    state, rows = process.run(state, list(plans))
    return state, rows


def tables(state):
    """All values of a state, by name."""
    values = {("weights", path): value for path, value in state.weights.items()}
    for kind in (state.server, state.clients):
        values |= {(name, path): value for name, table in kind.items() for path, value in table.items()}
    return {name: np.asarray(value) for name, value in values.items()}


def max_change(old, new):
    """bool arrays by name: entries with different bits."""
    return {name: value != new[name] for name, value in old.items()}


def check_state(state, rows, expected, metrics, tolerance, before):
    """Compare a compiled state and its metrics with those of the plain loop.

    What the loop leaves as it was before must keep its bits: values that no client covers, units that no stage trains,
    networks of an ensemble, and tables of absent clients.
    """
    server_tables = {
        name: {path: slots[index] for path, slots in expected["server"].items()}
        for index, name in enumerate(state.server)
    }
    expected_values = {
        (name, path): value
        for name, table in {**expected, **server_tables}.items()
        for path, value in table.items()
        if name != "server"
    }
    actual, old = tables(state), tables(before)
    for name, value in actual.items():
        # The error of an entry that a message has is its rounding.
        same = (expected_values[name] == old[name]) & (name[0] != "errors")
        np.testing.assert_array_equal(value[same], old[name][same], err_msg=str(name))
    assert tiny.gap(actual, {name: expected_values[name] for name in actual}) < tolerance
    actual_metrics = [(row["loss"], row["gradient_norm"]) for row in rows]
    np.testing.assert_allclose(actual_metrics, metrics, rtol=10 * tolerance)


@pytest.mark.parametrize("case", list(map(case_param, CASES)))
def test_compiled_rounds_equal_the_plain_loop_in_one_trace(case):
    process, state = check_against_plain_loop(case)
    state, _ = run(process, state, *(process.plan(number) for number in range(2, 10)))
    state, row = process.next(state, cohort=[2])
    assert state.round == 11 and row["non_finite"] == 0
    assert all(np.isfinite(value).all() for value in tables(state).values())
    assert process.runner.compiled_round.experimental_get_tracing_count() == 1
    assert stateful_operations(process.runner.compiled_round) == set()


@pytest.mark.parametrize(
    "name",
    ["fjord", "lg", *(pytest.param(name, marks=pytest.mark.long) for name in ("fedprox", "depthfl", "fedepth_link"))],
)
def test_rounds_of_some_clients_equal_the_plain_loop(name, eager):
    check_against_plain_loop(
        (name, "stacked", "float64"), lambda process: [process.plan(0, [2, 0]), process.plan(1, [2])]
    )


# The copies of levels, which momentum_distillation reads, are in models/test_by_level.py.
MERGES = sorted({*registry.names("merges")} - {"mean", "momentum_distillation"})


@pytest.mark.parametrize("name", ["fednova_proximal", *MERGES])
def test_merges_of_clients_at_all_levels_equal_the_plain_loop(name, eager):
    check_against_plain_loop(
        (name, "stacked", "float64"), lambda process: [process.plan(0, EVERYONE), process.plan(1, [2])]
    )


def check_against_plain_loop(case, plans_of=build_plans):
    """Compare some rounds with the plain loop; return the process and its state."""
    process, ways = methods.built(*case), methods.METHODS[case[0]].ways
    rounds, start = plans_of(process), process.initialize()
    state, rows = run(process, start, *rounds)
    expected, metrics = oracle_methods.play(process, ways, rounds)
    check_state(state, rows, expected, metrics, TOLERANCE[case[2]], start)
    return process, state


@pytest.mark.long
def test_clients_are_batched_unless_stages_are_drawn():
    for name, engine, precision in CASES:
        process = methods.built(name, engine, precision)
        one = engine == "sequential" or name.startswith("fjord")
        apart = process.recipe.levels.names if one else ""
        assert {
            level for level, clients in zip(process.family.submodels, process.setup.block_sizes) if clients == 1
        } == {level for level in process.family.submodels if level in apart}, name
        assert process.setup.engine.reasons == ()


@pytest.mark.long
def test_levels_share_a_submodel_exactly_if_their_training_is_equal():
    for name in methods.METHODS:
        process = methods.built(name)
        levels, submodels = process.recipe.levels.names, process.family.submodels
        assert submodels == (levels[:1] if name in ("splitmix", "geometric_median") else levels), name
        assert len(process.setup.submodels) == len(submodels)


def test_labels_are_cut_only_if_results_do_not_change():
    """Weight decay moves rows of absent labels: personal rows keep that, and a proximal term pulls them back."""
    for name in ("lg", "standalone", "fedprox", "depthfl", "adam", "splitmix"):
        process = methods.built(name)
        assert process.recipe.client.label_cut
        assert (process.setup.examples.labels is not None) == (name in ("adam", "splitmix")), name


def stage_plan(process, stages, level=2):
    """A client of a level, by its position in the mix, whose steps go through these stages."""
    plan, many = process.plan(0, [0]), len(stages)
    assert plan.rows.shape[1] >= many
    return dataclasses.replace(
        plan,
        levels=np.full(1, level, np.int32),
        steps=np.full(1, many, np.int32),
        rows=plan.rows[:, :many],
        starts=plan.starts[:, :many],
        stages=np.asarray([stages], np.int32),
    )


def test_frozen_units_do_not_move_under_momentum_and_weight_decay(eager):
    process = methods.built("fedepth_link")
    options = process.recipe.optimizer.method.options
    assert options["momentum"] > 0 < options["weight_decay"]
    first, _ = run(process, process.initialize(), stage_plan(process, [0, 0]))
    longer, _ = run(process, process.initialize(), stage_plan(process, [0, 0, 1, 1]))
    changed = max_change(tables(first), tables(longer))
    learned = {path for path in first.weights if "moving_" not in path}
    for path in learned:
        assert changed["weights", path].any() == (path.split("_")[0] in ("5", "6")), path
    # Running averages move in every unit that runs.
    assert all(changed["weights", path].any() for path in set(first.weights) - learned if path[0] in "03")
    # The momentum of a unit remains until its next step.
    again = stage_plan(process, [0, 1, 0])
    state, rows = run(process, process.initialize(), again)
    expected, metrics = oracle_methods.play(process, methods.blocks, [again])
    check_state(state, rows, expected, metrics, 1e-10, process.initialize())


def test_stem_trained_in_every_stage_moves_in_the_second_one_too(eager):
    process = methods.built("fedepth_stem")
    shorter, longer = (
        run(process, process.initialize(), stage_plan(process, stages, level=1))[0] for stages in ([0], [0, 1])
    )
    changed = max_change(tables(shorter), tables(longer))
    for path in shorter.weights:
        assert changed["weights", path].any() == (path.split("_")[0] in ("0", "5", "6")), path


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
