"""Trials with a fleet of devices in this process; some send wrong or huge values, do not respond or disconnect."""

import contextlib
import dataclasses
import functools
import io
import math
import pickle
import time
from pathlib import Path

import numpy as np
from fleets import HonestDevice, LocalFleet

import hetero_tf
from campaign.cases import IMAGES
from campaign.inputs import SECONDS, sentence
from campaign.world import Failed
from hetero_tf import recipe
from hetero_tf.base.console import Console
from hetero_tf.base.errors import UserError
from hetero_tf.devices.device_rounds import deployed
from hetero_tf.devices.messages import Message, Refused, to_npy
from hetero_tf.run import experiment

CLIENTS = 6
OVERFLOWED = "the merge of the clients' finite weights overflowed"
DEPLOYABLE = ("levels.assignment=fixed", "evaluate.statistics=clients", "engine=sequential")
# Settings of runs that use responses and members in different ways.
SETTINGS = (
    (),
    ("round.weighting=samples",),
    ("round.clients=5",),
    ("round.clients=5", "round.weighting=samples"),
    ("round.server={name: momentum, momentum: 0.8}",),
    ("round.server={name: adam, adaptivity: 0.01}",),
    ("client.loss=cross_entropy",),
    ("round.submodel=rolling",),
    ("evaluate.every=2", "checkpoint.every=2"),
)


class Canary:
    """An object whose pickle creates a file when it is loaded."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def with_first(change):
    """A response with another first value: `change(bytes, array) -> bytes or array`."""

    def respond(message, rng, canary):
        path, data = next(iter(message.arrays.items()))
        array = np.load(io.BytesIO(data))
        changed = change(data, array)
        return dataclasses.replace(
            message, arrays={**message.arrays, path: to_npy(changed) if isinstance(changed, np.ndarray) else changed}
        )

    return respond


def with_reported(**numbers):
    """A response with other reported numbers; names with None are omitted."""

    def respond(message, rng, canary):
        reported = {name: value for name, value in {**message.metadata, **numbers}.items() if value is not None}
        return dataclasses.replace(message, metadata=reported)

    return respond


def with_random_bytes(message, rng, canary):
    """A response with a few changed bytes anywhere, also in headers."""
    arrays = dict(message.arrays)
    path = rng.choice(sorted(arrays))
    data = bytearray(arrays[path])
    for _ in range(rng.randint(1, 8)):
        data[rng.randrange(len(data))] = rng.randrange(256)
    return dataclasses.replace(message, arrays={**arrays, path: bytes(data)})


def with_pickle(message, rng, canary):
    """A response that runs code if it is loaded as pickled objects."""
    file = io.BytesIO()
    np.save(file, np.array([Canary(canary)], object), allow_pickle=True)
    bodies = (file.getvalue(), pickle.dumps(Canary(canary)))
    return dataclasses.replace(message, arrays={path: rng.choice(bodies) for path in message.arrays})


def npy_header(text):
    """Return a .npy file of version 1 with any header."""
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


# Responses that must be rejected, beside those of tests/devices.
WRONG = {
    "no numbers": with_first(lambda data, array: array.ravel()[:0]),
    "float64": with_first(lambda data, array: array.astype(np.float64)),
    "the other byte order": with_first(lambda data, array: array.astype(array.dtype.newbyteorder())),
    "complex": with_first(lambda data, array: array.astype(np.complex64)),
    "texts": with_first(lambda data, array: array.astype("U8")),
    "a number": with_first(lambda data, array: 7),
    "a header of 2**60 numbers": with_first(
        lambda data, array: npy_header("{'descr': '<f4', 'fortran_order': False, 'shape': (1152921504606846976,), }\n")
    ),
    "a negative size": with_first(
        lambda data, array: npy_header("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }\n")
    ),
    "a deep header": with_first(lambda data, array: npy_header("(" * 9000 + ")" * 9000 + "\n")),
    "pickled objects": with_pickle,
    "a value too many": lambda message, rng, canary: dataclasses.replace(
        message, arrays={**message.arrays, "\x1b[31m../x": next(iter(message.arrays.values()))}
    ),
    "no values": lambda message, rng, canary: dataclasses.replace(message, arrays={}),
    "no loss": with_reported(loss=None),
    "a text as loss": with_reported(loss="1.5"),
    "true as loss": with_reported(loss=True),
}
# Responses that may be merged; the run must survive them.
EXTREME = {
    "3e38": with_first(lambda data, array: np.full_like(array, 3e38)),
    "-3e38": with_first(lambda data, array: np.full_like(array, -3e38)),
    "1e20": with_first(lambda data, array: np.full_like(array, 1e20)),
    "denormal": with_first(lambda data, array: np.full_like(array, 1e-45)),
    "a loss of 1e308": with_reported(loss=1e308, gradient_norm=1e308),
    "a whole loss": with_reported(loss=2**62),
    "other bytes": with_random_bytes,
    "Fortran order": with_first(lambda data, array: np.asfortranarray(array)),
}
CLAIMS = {
    "examples": (0, -1, 1, 10**4, 10**6, 10**9, 10**12, 2**63 - 1, True, 1.5, math.nan, "5", None, [5]),
    "labels": ([], [0, 0], [99], [-1], [1, 0], "01", None, [0.0], [True], list(range(10**5)), 0),
    "level": ("z", "", None, 0, "a" * 10**5, "\x1b[31m"),
    "client": (-1, 99, None, "0", 0.0),
    "measures": (None, 1, "yes"),
    "recipe": ("", None, "x" * 10**5),
}


class HostileFleet(LocalFleet):
    """A fleet whose hostile devices choose a random behaviour at each request.

    Args:
        process: Learning process of the server.
        devices: Devices by client.
        hostile: Clients of the hostile devices.
        rng: Random generator of their behaviour.
        canary: File that no response may create.
    """

    def __init__(self, process, devices, hostile, rng, canary):
        super().__init__(process, devices)
        self.hostile, self.rng, self.canary = hostile, rng, canary
        # Several devices with the same wrong value can do more than one, such as let a sum overflow.
        self.agreed = rng.choice((None, None, "3e38"))
        self.connected, self.claims = {}, {}

    def members(self, least):
        """Return the connected devices; with fewer than `least`, disconnected ones connect again."""
        if len(self.connected) < least or not self.connected:
            for client in self.devices.keys() - self.connected.keys():
                self.connect(client)
        return dict(self.connected)

    def connect(self, client):
        """Connect a device; a hostile one may send impossible claims."""
        device = self.devices[client]
        response = device.respond("introduction", Message())
        if client in self.hostile and self.rng.random() < 0.4:
            name = self.rng.choice(list(CLAIMS))
            response = dataclasses.replace(
                response, metadata={**response.metadata, name: self.rng.choice(CLAIMS[name])}
            )
        try:
            self.connected[client] = self.member(response.metadata, client)
        except Refused as problem:
            sentence(problem)
            self.say(f"note: client {client} does not take part: {problem}")

    def request(self, action, requests):
        """The answers; any device may leave before or after its own."""
        responses = super().request(
            action, {client: each for client, each in requests.items() if client in self.connected}
        )
        for client in self.hostile & responses.keys():
            behaviours = ("honest", "silent", "leaves", "answers and leaves", "wrong", "extreme")
            behaviour = self.rng.choice(behaviours if self.agreed is None else ("honest", "extreme"))
            if behaviour in ("leaves", "answers and leaves"):
                del self.connected[client]
            if behaviour in ("silent", "leaves"):
                del responses[client]
            elif behaviour in ("wrong", "extreme"):
                kinds = WRONG if behaviour == "wrong" else EXTREME
                kind = self.agreed if behaviour == "extreme" and self.agreed else self.rng.choice(list(kinds))
                responses[client] = kinds[kind](responses[client], self.rng, self.canary)
        return responses

    def say(self, text):
        """Check that the text is one message, and print it."""
        sentence(text)
        super().say(text)


@functools.cache
def process_of(settings):
    """Learning process of a small recipe with some settings."""
    overrides = (*DEPLOYABLE, f"partition.clients={CLIENTS}", *settings)
    return hetero_tf.learning_process(recipe.loads(IMAGES, "fleet.yaml", overrides))


def train(world, folder, settings, rounds, hostile, rng):
    """Train a run with a fleet; return the error message, or None."""
    console = Console(io.StringIO())

    @contextlib.contextmanager
    def on_fleet(build, console, live):
        process = build(None, 1)
        devices = {client: HonestDevice(process, client) for client in range(CLIENTS)}
        yield deployed(process, HostileFleet(process, devices, hostile, rng, world.canary))

    resolved = recipe.loads(IMAGES, "fleet.yaml", (*DEPLOYABLE, *settings, f"rounds={rounds}"))
    began = time.process_time()
    try:
        experiment.train(resolved, experiment.Settings(folder, None, 2, False, "train"), console, on_fleet)
    except UserError as problem:
        sentence(problem)
        return str(problem)
    finally:
        if time.process_time() - began > 20 * SECONDS:
            raise Failed(f"took {time.process_time() - began:.1f} s of the processor")
    return None


def check_finite(folder):
    """Check that every array of every checkpoint is finite."""
    for path in sorted(folder.glob("*/round-*/arrays.npz")):
        with np.load(path) as arrays:
            for name in arrays.files:
                if arrays[name].dtype.kind == "f" and not np.isfinite(arrays[name]).all():
                    raise Failed(f"{path.parent.parent.name}/{path.parent.name}: {name} is not finite")


def hostile_fleet(world, rng):
    """A run with one to four hostile devices of six; the next start, with honest ones, resumes it or reports why not."""
    folder, settings = world.fresh(), rng.choice(SETTINGS)
    hostile = set(rng.sample(range(CLIENTS), rng.randint(1, 4)))
    problem = train(world, folder, settings, 4, hostile, rng)
    check_finite(folder)
    refusal = train(world, folder, settings, 6, set(), rng)
    if refusal is not None and OVERFLOWED in refusal:
        # A wrong value near the largest float is finite if it is merged without others; in a sum it overflows.
        world.drop(folder)
        return "stopped with a finite state: an earlier round merged values near the largest number"
    if refusal is not None:
        raise Failed(f"{settings}: does not resume: {refusal} (before: {problem})")
    check_finite(folder)
    rounds = [int(path.name.split("-")[1].split(".")[0]) for path in folder.glob("checkpoints/round-*")]
    if max(rounds) != 6:
        raise Failed(f"ended at round {max(rounds)}")
    world.drop(folder)
    return "ended" if problem is None else "refused and resumed"


def refused_devices(world, rng):
    """A round with rejected responses is bit-equal to a round without a response of those devices."""
    process = process_of((*rng.choice(SETTINGS), f"round.clients={CLIENTS}"))
    devices = {client: HonestDevice(process, client) for client in range(CLIENTS)}
    liars, reason = rng.sample(range(CLIENTS), rng.randint(1, 3)), rng.choice(list(WRONG))
    wrong = {client: lambda message: WRONG[reason](message, rng, world.canary) for client in liars}
    silent = dict.fromkeys(liars, lambda message: None)
    fleets = [LocalFleet(process, devices, responses) for responses in (wrong, silent)]
    state = process.initialize()
    results = []
    for fleet in fleets:
        real = deployed(process, fleet)
        results.append(real.run(state, [real.plan(0)]))
    (merged, (row,)), (expected, (without,)) = results
    if row["refused"] + row["non_finite"] != len(liars) or without["dropped"] != len(liars):
        raise Failed(f"{reason}: {row['refused']} refused, {row['non_finite']} not finite, of {len(liars)}")
    for line in fleets[0].messages:
        sentence(line)
    for path, value in expected.weights.items():
        if not np.array_equal(merged.weights[path], value):
            raise Failed(f"{reason}: changed the merge of the others at {path}")
    return "refused"


TRIALS = (hostile_fleet, refused_devices)
