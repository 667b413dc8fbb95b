"""Fleets with hostile devices: their responses change nothing beyond their part, and every checkpoint is finite."""

import contextlib
import dataclasses
import functools
import io
import math

import numpy as np
import pytest
from fleets import HonestDevice, LocalFleet
from hypothesis import Phase, settings
from hypothesis import given as for_all
from hypothesis import strategies as st
from run_cases import IMAGES
from world import assert_sentences

import hetero_tf
from hetero_tf import recipe
from hetero_tf.base.console import Console, escape_unprintable
from hetero_tf.base.errors import UserError
from hetero_tf.devices.device_rounds import deployed
from hetero_tf.devices.messages import Message, Refused
from hetero_tf.run import experiment

pytestmark = pytest.mark.long

COSTLY = settings(max_examples=max(1, settings.default.max_examples // 40), phases=[Phase.explicit, Phase.generate])
SLOW = settings(max_examples=max(1, settings.default.max_examples // 10))
CLIENTS = 6
FIXED = ("levels.assignment=fixed", "evaluate.statistics=clients", "engine=sequential", f"partition.clients={CLIENTS}")
# Settings of runs that use responses and members in different ways.
SETTINGS = (
    (), ("round.weighting=samples",), ("round.clients=5", "round.weighting=samples"), ("client.loss=cross_entropy",),
    ("round.server={name: momentum, momentum: 0.8}",), ("round.server={name: adam, adaptivity: 0.01}",),
    ("round.submodel=rolling",), ("evaluate.every=2", "checkpoint.every=2"),
)  # fmt: skip


def all_equal(number, data):
    """The bytes of an array whose values are all equal to a number."""
    return np.full(len(data) // 4, number, np.float32).tobytes()


# What a device may send instead of the bytes of its first array: `bytes -> bytes`. The server rejects it.
WRONG = {
    "NaN": functools.partial(all_equal, np.nan),
    "infinity": functools.partial(all_equal, np.inf),
    "no numbers": lambda data: b"",
    "float64": lambda data: 2 * data,
    "half a number": lambda data: data[:-2],
}
# The server may merge these.
EXTREME = {str(number): functools.partial(all_equal, number) for number in (3e38, -3e38, 1e20, 1e-45)}
REPORTS = ({"loss": None}, {"loss": "1.5"}, {"loss": True})
CLAIMS = {
    "examples": (0, -1, 1, 10**4, 10**9, 2**63 - 1, True, 1.5, math.nan, "5", None, [5]),
    "labels": ([], [0, 0], [99], [-1], [1, 0], "01", None, [0.0], [True], list(range(10**5)), 0),
    "level": ("z", "", None, 0, "a" * 10**5, "\x1b[31m"),
    "client": (-1, 99, None, "0", 0.0),
    "measures": (None, 1, "yes"),
    "recipe": ("", None, "x" * 10**5),
}


def altered(message, change):
    """A response with another first array."""
    path, data = next(iter(message.arrays.items()))
    return dataclasses.replace(message, arrays={**message.arrays, path: change(data)})


@functools.cache
def process_of(settings):
    return hetero_tf.learning_process(recipe.loads(IMAGES, "fleet.yaml", (*FIXED, *settings)))


@SLOW
@for_all(
    st.sampled_from(SETTINGS),
    st.sets(st.integers(0, CLIENTS - 1), min_size=1, max_size=3),
    st.one_of(st.sampled_from(list(WRONG)), st.sampled_from(REPORTS)),
)
def test_rejected_responses_change_no_bit_of_the_merge_of_the_others(chosen, liars, reason):
    process = process_of((*chosen, f"round.clients={CLIENTS}"))
    devices = {client: HonestDevice(process, client) for client in range(CLIENTS)}

    def lie(message):
        if isinstance(reason, str):
            return altered(message, WRONG[reason])
        reported = {name: value for name, value in {**message.metadata, **reason}.items() if value is not None}
        return dataclasses.replace(message, metadata=reported)

    results, state = [], process.initialize()
    for response in (lie, lambda message: None):
        real = deployed(process, LocalFleet(process, devices, dict.fromkeys(liars, response)))
        results.append((*real.run(state, [real.plan(0)]), real.runner.fleet.messages))
    (merged, (row,), messages), (expected, (without,), _) = results
    assert row["refused"] + row["non_finite"] == without["dropped"] == len(liars)
    for line in messages:
        assert_sentences(escape_unprintable(line))
    for path, value in expected.weights.items():
        np.testing.assert_array_equal(merged.weights[path], value, err_msg=path)


class HostileFleet(LocalFleet):
    """A fleet whose hostile devices draw their claims and each response; any of them may leave."""

    def __init__(self, process, devices, hostile, draw):
        super().__init__(process, devices)
        self.hostile, self.draw, self.connected = hostile, draw, {}
        # Several devices with the same wrong value can do more than one, such as let a sum overflow.
        self.agreed = draw(st.sampled_from((None, None, "3e+38")))

    def members(self, least):
        if len(self.connected) < least or not self.connected:
            for client in self.devices.keys() - self.connected.keys():
                self.connect(client)
        return dict(self.connected)

    def connect(self, client):
        metadata = self.devices[client].respond("introduction", Message()).metadata
        if client in self.hostile and self.draw(st.booleans()):
            name = self.draw(st.sampled_from(list(CLAIMS)))
            metadata = {**metadata, name: self.draw(st.sampled_from(CLAIMS[name]))}
        try:
            self.connected[client] = self.member(metadata, client)
        except Refused as problem:
            assert_sentences(escape_unprintable(str(problem)))

    def request(self, action, requests):
        present = {client: each for client, each in requests.items() if client in self.connected}
        responses = super().request(action, present)
        for client in sorted(self.hostile & responses.keys()):
            kinds = ("honest", "silent", "leaves", "flipped bytes", *WRONG, *EXTREME)
            kind = self.draw(st.sampled_from(kinds)) if self.agreed is None else self.agreed
            if kind == "leaves":
                del self.connected[client]
            if kind in ("silent", "leaves"):
                del responses[client]
            elif kind == "flipped bytes":
                share, value = self.draw(st.floats(0, 0.999)), self.draw(st.integers(0, 255))
                path, data = next(iter(responses[client].arrays.items()))
                data = data[: int(share * len(data))] + bytes([value]) + data[int(share * len(data)) + 1 :]
                arrays = {**responses[client].arrays, path: data}
                responses[client] = dataclasses.replace(responses[client], arrays=arrays)
            elif kind != "honest" and action == "training":
                responses[client] = altered(responses[client], {**WRONG, **EXTREME}[kind])
        return responses

    def say(self, sentence):
        assert_sentences(escape_unprintable(sentence))
        super().say(sentence)


def train(folder, chosen, rounds, hostile, draw):
    """Train a run with a fleet; return the error message, or None."""

    @contextlib.contextmanager
    def on_fleet(build, console, live):
        process = build(None, 1)
        devices = {client: HonestDevice(process, client) for client in range(CLIENTS)}
        yield deployed(process, HostileFleet(process, devices, hostile, draw))

    resolved = recipe.loads(IMAGES, "fleet.yaml", (*FIXED, *chosen, f"rounds={rounds}"))
    try:
        experiment.train(resolved, experiment.Settings(folder, None, 2, False, ""), Console(io.StringIO()), on_fleet)
    except UserError as problem:
        assert_sentences(escape_unprintable(str(problem)))
        return str(problem)
    return None


@COSTLY
@for_all(st.sampled_from(SETTINGS), st.sets(st.integers(0, CLIENTS - 1), min_size=1, max_size=4), st.data())
def test_a_run_with_hostile_devices_resumes_with_honest_ones(tmp_path_factory, chosen, hostile, data):
    folder = tmp_path_factory.mktemp("fleet")
    for rounds, liars in ((4, hostile), (6, frozenset())):
        problem = train(folder, chosen, rounds, liars, data.draw)
        for path in folder.glob("checkpoints/round-*.npz"):
            with np.load(path) as arrays:
                assert all(np.isfinite(arrays[name]).all() for name in arrays.files if arrays[name].dtype.kind == "f")
    # Wrong values near the largest float are finite; an earlier round may have merged them, and their sums overflow.
    assert problem is None or "the merge of the clients' finite weights overflowed" in problem
    assert problem or max(path.name[6:12] for path in folder.glob("checkpoints/round-*")) == "000006"
