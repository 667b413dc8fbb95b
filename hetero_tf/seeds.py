"""Random numbers as pure functions of (seed, purpose, numbers): resuming and re-ordering change no draw."""

import zlib

import numpy as np


def entropy(seed, purpose, *numbers):
    """The integers that identify one use of randomness, e.g. `entropy(0, "cohort", 12)`."""
    return [int(seed), zlib.crc32(purpose.encode()), *(int(number) for number in numbers)]


def rng(seed, purpose, *numbers):
    """A NumPy generator for one purpose, e.g. `rng(seed, "cohort", round)`."""
    return np.random.default_rng(entropy(seed, purpose, *numbers))


def seed32(seed, purpose, *numbers):
    """One non-negative int32 for one purpose, to seed random numbers inside a graph."""
    return int(rng(seed, purpose, *numbers).integers(0, 2**31 - 1))
