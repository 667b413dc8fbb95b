"""Every method's compiled rounds compared with the plain loop of `oracle_methods`; its single trace; fixed values."""

import dataclasses

import methods
import numpy as np
import oracle_methods
import pytest
import tiny
from test_engine import stateful_operations

from hetero_tf.planning import plan as plans

TOLERANCE = {"float64": 1e-10, "float32": 1e-5}
# Values that training one by one computes in another order, or small numbers under a root.
TWICE = ("splitmix", "fedepth_teachers", "adam")
CASES = [(name, "stacked", "float64") for name in methods.METHODS] + [(name, "sequential", "float32") for name in TWICE]
# One of each kind of method; the others are long.
QUICK = ("fedprox", "splitmix", "adam")
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


def at(plan, level):
    """The plan with all its clients at one level; the levels must have equal numbers of steps."""
    return dataclasses.replace(plan, levels=np.full_like(plan.levels, level))


def tables(state):
    """All values of a state, by name."""
    values = {("weights", path): value for path, value in state.weights.items()}
    for kind in (state.server, state.clients):
        values |= {(name, path): value for name, table in kind.items() for path, value in table.items()}
    return {name: np.asarray(value) for name, value in values.items()}


def max_change(old, new):
    """bool arrays by name: entries with different bits."""
    return {name: value != new[name] for name, value in old.items()}


def check_state(state, rows, expected, metrics, tolerance):
    """Compare a compiled state and its metrics with those of the plain loop."""
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
    actual = tables(state)
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


def test_rounds_of_drawn_widths_equal_the_plain_loop(eager):
    check_against_plain_loop(("fjord", "stacked", "float64"))


def check_against_plain_loop(case):
    """Compare two rounds with the plain loop; return the process and its state."""
    process, ways = methods.built(*case), methods.METHODS[case[0]].ways
    rounds = build_plans(process)
    state, rows = run(process, process.initialize(), *rounds)
    expected, metrics = oracle_methods.play(process, ways, oracle_methods.start(process), rounds)
    check_state(state, rows, expected, metrics, TOLERANCE[case[2]])
    return process, state


@pytest.mark.long
def test_clients_are_batched_unless_stages_are_drawn_or_buffered():
    for name, engine, precision in CASES:
        process = methods.built(name, engine, precision)
        one = engine == "sequential" or name.startswith("fjord")
        apart = "bc" if name == "fedepth_buffered" else process.recipe.levels.names if one else ""
        assert {
            level for level, clients in zip(process.family.submodels, process.setup.block_sizes) if clients == 1
        } == {level for level in process.family.submodels if level in apart}, name
        assert process.setup.engine.reasons == ()


@pytest.mark.long
def test_levels_share_a_submodel_exactly_if_their_training_is_equal():
    for name in methods.METHODS:
        process = methods.built(name)
        levels, submodels = process.recipe.levels.names, process.family.submodels
        assert submodels == (levels[:1] if name == "splitmix" else levels), name
        assert len(process.setup.submodels) == len(submodels)


def test_labels_are_cut_only_if_results_do_not_change():
    """Weight decay moves rows of absent labels: personal rows keep that, and a proximal term pulls them back."""
    for name in ("lg", "standalone", "fedprox", "depthfl", "adam", "splitmix"):
        process = methods.built(name)
        assert process.recipe.client.label_cut
        assert (process.setup.examples.labels is not None) == (name in ("adam", "splitmix")), name


@pytest.mark.long
def test_comparison_covers_every_level_stage_and_member():
    for name in methods.METHODS:
        process = methods.built(name)
        for level, level_name in enumerate(process.recipe.levels.names):
            active = [
                (plan, slot) for plan in build_plans(process, 12) for slot in np.flatnonzero(plan.levels == level)
            ]
            seen = {stage for plan, slot in active for stage in plan.stages[slot, : plan.steps[slot]]}
            assert seen == set(range(len(process.family.stages[level_name]))), name
    seen = {member for plan in build_plans(methods.built("splitmix")) for member in plan.members}
    assert seen == {0, 1, 2, 3}


def test_uncovered_values_keep_every_bit_in_weights_and_server(eager):
    process = methods.built("adam")
    state, _ = run(process, process.initialize(), at(process.plan(0, EVERYONE), 0))
    narrow = at(process.plan(1, [2]), 1)  # level c keeps 2 of 8; the client has the labels 0, 3, 6 and 8
    after, _ = run(process, state, narrow)
    width, head = np.arange(8) < 2, process.partition.label_mask[2]
    covered = [np.tile(width, (2, 1)), width, np.outer(width, head), head]
    old, new = tables(state), tables(after)
    assert any(old[key].any() for key in old if key[0] != "weights")
    for table in ("weights", *state.server):
        for path, mask in zip(state.weights, covered, strict=True):
            assert old[table, path][~mask].tobytes() == new[table, path][~mask].tobytes()
            assert (old[table, path][mask] != new[table, path][mask]).any()


def test_untrained_units_keep_every_bit(eager):
    process = methods.built("fedepth_link")
    state, _ = run(process, process.initialize(), process.plan(0, EVERYONE))
    partial = dataclasses.replace(process.recipe.levels, mix={"c": 1})
    plan = with_levels(process, partial).plan(1, [1, 3])
    after, _ = run(process, state, dataclasses.replace(plan, levels=np.full_like(plan.levels, 2)))
    changed = max_change(tables(state), tables(after))
    units = {name: changed["weights", name].any() for name in state.weights}
    for path, has in units.items():
        assert has == (path.split("_")[0] in ("0", "3", "5", "6")), path


def with_levels(process, levels):
    """The process with other levels, only for planning: stages stay those of the names."""
    return dataclasses.replace(process, recipe=dataclasses.replace(process.recipe, levels=levels))


def test_untrained_ensemble_networks_keep_every_bit(eager):
    process = methods.built("splitmix")
    plan = process.plan(0, [0, 1])
    few = plans.Plan(*(array[:2] for array in plan.arrays().values()))
    few = dataclasses.replace(few, members=np.asarray([3, 1], np.int32), levels=np.ones(2, np.int32))
    state = process.initialize()
    after, _ = run(process, state, few)
    changed = np.stack(
        [(np.asarray(state.weights[path]) != value).reshape(4, -1).any(1) for path, value in tiny.arrays(after).items()]
    )
    assert changed.any(0).tolist() == [False, True, False, True]


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
    expected, metrics = oracle_methods.play(process, methods.blocks, oracle_methods.start(process), [again])
    check_state(state, rows, expected, metrics, 1e-10)


def test_stem_trained_in_every_stage_moves_in_the_second_one_too(eager):
    process = methods.built("fedepth_stem")
    shorter, longer = (
        run(process, process.initialize(), stage_plan(process, stages, level=1))[0] for stages in ([0], [0, 1])
    )
    changed = max_change(tables(shorter), tables(longer))
    for path in shorter.weights:
        assert changed["weights", path].any() == (path.split("_")[0] in ("0", "5", "6")), path


@pytest.mark.parametrize("name", ["lg", "standalone", "depthfl"])
def test_tables_of_absent_clients_keep_every_bit(name, eager):
    process = methods.built(name)
    state, _ = run(process, process.initialize(), process.plan(0, EVERYONE))
    after, _ = run(process, state, process.plan(1, [2, 0]))
    for kind, table in state.clients.items():
        for path, old in table.items():
            changed = (np.asarray(old) != np.asarray(after.clients[kind][path])).reshape(4, -1).any(1)
            assert not changed[[1, 3]].any() and (changed[[0, 2]].all() or kind == "memory")
    assert any(tables_of_kind for tables_of_kind in state.clients.values())
