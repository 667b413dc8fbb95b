"""What servers and clients keep between rounds survives the disk, bit by bit."""

import dataclasses

import methods
import numpy as np
import pytest
import tiny

from hetero_tf.base.errors import InputError
from hetero_tf.run.checkpoint import arrays_of, open_newest
from hetero_tf.store import checkpoints


def keeping():
    """Slots, personal units and memory at once."""
    return tiny.shared(
        methods.DENSE,
        "levels.mix=b1",
        'round.personal=["0"]',
        *methods.PLAIN,
        "client.correction={name: dynamic, alpha: 0.3}",
        methods.server("dynamic", alpha=0.3),
    )


def ensemble():
    """The moments of two networks."""
    return tiny.shared(methods.DENSE, "levels.mix=b1", "levels.members={b: 2}", methods.server("adam"))


def everything(state):
    """All arrays of a state, by name."""
    return {name: np.asarray(value) for name, value in arrays_of(state, {}, "a").items()}


def play(process, state, rounds):
    for _ in range(rounds):
        state, _ = process.next(state)
    return state


@pytest.mark.parametrize(
    ("build", "kept"),
    [
        (keeping, {"server/drift", "clients/personal", "clients/memory"}),
        (ensemble, {"server/first_moment", "server/second_moment"}),
    ],
)
def test_a_state_comes_back_bit_by_bit_and_goes_on_as_before(build, kept, tmp_path):
    process = build()
    state = play(process, process.initialize(), 2)
    checkpoints.save(tmp_path / "checkpoints", state.round, arrays_of(state, {}, "a"), {}, 1)
    opened = open_newest(tmp_path / "checkpoints", process)
    found, statistics, skipped = opened.state, opened.statistics, opened.skipped
    assert (found.round, statistics, skipped) == (2, {}, ())
    assert tiny.same(everything(found), everything(state))
    moved = {name.rsplit("/", 2)[0] for name, value in everything(found).items() if value.any()}
    assert moved == kept | {"weights"}
    assert tiny.same(everything(play(process, found, 2)), everything(play(process, state, 2)))
    # Weights alone would go on in another way.
    bare = dataclasses.replace(process.initialize(), round=2, weights=state.weights)
    assert not tiny.same(tiny.arrays(play(process, bare, 1)), tiny.arrays(play(process, state, 1)))


def test_every_table_is_sealed_under_its_own_name():
    paths = [f"{unit}_{place}_dense/{name}" for unit, place in ((0, 1), (1, 0)) for name in ("kernel", "bias")]
    tables = {"weights": paths, "server/drift": paths, "clients/personal": paths[:2], "clients/memory": paths}
    assert set(arrays_of(keeping().initialize(), {}, "a")) == {
        f"{table}/{path}" for table, own in tables.items() for path in own
    }
    shapes = {name: value.shape for name, value in everything(keeping().initialize()).items()}
    assert all(shape[0] == 4 for name, shape in shapes.items() if name.startswith("clients/"))
    assert shapes["clients/personal/0_1_dense/kernel"] == (4, *shapes["weights/0_1_dense/kernel"])


def test_a_state_of_another_method_is_refused(tmp_path):
    plain = tiny.process(methods.DENSE, "levels.mix=b1")
    state = plain.initialize()
    checkpoints.save(tmp_path / "checkpoints", 0, arrays_of(state, {}, "a"), {}, 1)
    with pytest.raises(InputError, match="array 'server/drift/0_1_dense/kernel' is missing, expected float32"):
        open_newest(tmp_path / "checkpoints", keeping())
