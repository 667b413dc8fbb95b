"""Random numbers as pure functions of (seed, purpose, numbers), independent of resuming and execution order."""

import zlib

import numpy as np

GOLDEN = 0x9E3779B97F4A7C15
FACTORS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)


def entropy(seed: int, purpose: str, *numbers: int) -> list[int]:
    """Return the integers that identify one use of randomness, e.g. `entropy(0, "cohort", 12)`.

    Each purpose needs a fixed count of numbers, because NumPy ignores trailing zeros of a seed.
    """
    return [int(seed), zlib.crc32(purpose.encode()), *(int(number) for number in numbers)]


def rng(seed: int, purpose: str, *numbers: int) -> np.random.Generator:
    """Return a NumPy generator for one purpose, e.g. `rng(seed, "cohort", round)`."""
    return np.random.default_rng(entropy(seed, purpose, *numbers))


def seed32(seed: int, purpose: str, *numbers: int) -> int:
    """Return a non-negative int32 that seeds random numbers inside a graph."""
    return int(rng(seed, purpose, *numbers).integers(0, 2**31 - 1))


def uniform(seed: int, purpose: str, *numbers: int, ids: np.ndarray) -> np.ndarray:
    """Return one number in [0, 1) for each id, independent of the other ids.

    Args:
        seed, purpose, numbers: See `rng`.
        ids: int [n], such as client ids.

    Returns:
        float64 [n] with 53 random bits.

    Reference: SplitMix64 (Steele, Lea, Flood, OOPSLA 2014) at position `id`, with two keys: with one
    key, the sequences of two rounds could be shifted copies.
    """
    words = np.asarray(ids).astype(np.uint64)
    for key in np.random.SeedSequence(entropy(seed, purpose, *numbers)).generate_state(2, np.uint64):
        words = _mix(words * np.uint64(GOLDEN) + key)
    return (words >> np.uint64(11)) * 2.0**-53


def _mix(words):
    """The finaliser of SplitMix64 (Stafford's variant 13 of MurmurHash3's) on uint64."""
    for shift, factor in ((30, FACTORS[0]), (27, FACTORS[1])):
        words = (words ^ (words >> np.uint64(shift))) * np.uint64(factor)
    return words ^ (words >> np.uint64(31))
