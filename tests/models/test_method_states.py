"""State of servers and clients between rounds, bit-equal after a checkpoint."""

import dataclasses

import methods
import numpy as np
import pytest
import tiny

from hetero_tf.base.errors import InputError
from hetero_tf.run.resume import arrays_of, open_newest
from hetero_tf.runs import checkpoints


def build_with_tables():
    """Slots, personal units and memory at once."""
    return tiny.shared(
        methods.DENSE,
        "levels.mix=b1",
        'round.personal=["0"]',
        *methods.PLAIN,
        "client.correction={name: dynamic, alpha: 0.3}",
        methods.server("dynamic", alpha=0.3),
    )


def build_ensemble():
    """The moments of two networks."""
    return tiny.shared(methods.DENSE, "levels.mix=b1", "levels.members={b: 2}", methods.server("adam"))


def flat_state(state):
    return {name: np.asarray(value) for name, value in arrays_of(state, {}, "a").items()}


def run_rounds(process, state, rounds):
    for _ in range(rounds):
        state, _ = process.next(state)
    return state


@pytest.mark.parametrize(
    ("build", "expected_tables"),
    [
        (build_with_tables, {"server/drift", "clients/personal", "clients/memory"}),
        pytest.param(build_ensemble, {"server/first_moment", "server/second_moment"}, marks=pytest.mark.long),
    ],
)
def test_restored_state_is_bit_equal_and_continues_equally(build, expected_tables, tmp_path):
    process = build()
    state = run_rounds(process, process.initialize(), 2)
    checkpoints.save(tmp_path / "checkpoints", state.round, arrays_of(state, {}, "a"), {}, 1)
    opened = open_newest(tmp_path / "checkpoints", process)
    loaded = opened.state
    assert (loaded.round, opened.statistics, opened.checkpoint.skipped) == (2, {}, ())
    assert tiny.same(flat_state(loaded), flat_state(state))
    moved = {name.rsplit("/", 2)[0] for name, value in flat_state(loaded).items() if value.any()}
    assert moved == expected_tables | {"weights"}
    assert tiny.same(flat_state(run_rounds(process, loaded, 2)), flat_state(run_rounds(process, state, 2)))
    # Without the tables the run would continue differently.
    bare = dataclasses.replace(process.initialize(), round=2, weights=state.weights)
    assert not tiny.same(tiny.arrays(run_rounds(process, bare, 1)), tiny.arrays(run_rounds(process, state, 1)))


def test_every_table_has_a_separate_name_in_the_checkpoint():
    paths = [f"{unit}_{position}_dense/{name}" for unit, position in ((0, 1), (1, 0)) for name in ("kernel", "bias")]
    tables = {"weights": paths, "server/drift": paths, "clients/personal": paths[:2], "clients/memory": paths}
    assert set(arrays_of(build_with_tables().initialize(), {}, "a")) == {
        f"{table}/{path}" for table, table_paths in tables.items() for path in table_paths
    }
    shapes = {name: value.shape for name, value in flat_state(build_with_tables().initialize()).items()}
    assert all(shape[0] == 4 for name, shape in shapes.items() if name.startswith("clients/"))
    assert shapes["clients/personal/0_1_dense/kernel"] == (4, *shapes["weights/0_1_dense/kernel"])


def test_state_of_another_method_is_refused(tmp_path):
    state = tiny.process(methods.DENSE, "levels.mix=b1").initialize()
    checkpoints.save(tmp_path / "checkpoints", 0, arrays_of(state, {}, "a"), {}, 1)
    with pytest.raises(InputError, match="array 'server/drift/0_1_dense/kernel' is missing, expected float32"):
        open_newest(tmp_path / "checkpoints", build_with_tables())
