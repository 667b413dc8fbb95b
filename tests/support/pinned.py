#!/usr/bin/env python3
"""The initial values of a recipe in a few numbers; `python tests/support/pinned.py NAME SHAPE CLASSES` records a new recipe.

PYTHONPATH=. python tests/support/pinned.py methods/mine 32,32,3 10
"""

import functools
import json
import sys
from pathlib import Path

import numpy as np

from hetero_tf import recipe
from hetero_tf.models import global_layout
from hetero_tf.models.family import build_family

FOLDER = Path(__file__).parents[1] / "golden"
SEEDS = ("0", "1")


def recorded():
    """`{recipe: {"shape": ..., "classes": ..., "0": {path: numbers}, "1": ...}}`; equal values are stored once."""
    entries = json.loads((FOLDER / "initial_values.json").read_text())
    return {name: entries[entry] if isinstance(entry, str) else entry for name, entry in entries.items()}


def initial_values(name, seed, shape, classes):
    """`{path: numbers}` of a shipped recipe, from its model alone; recipes with the same model share it."""
    loaded = recipe.load(name, [f"seed={seed}"])
    levels = loaded.levels
    of_levels = (levels.global_level, levels.widths, levels.depths, levels.ensemble, levels.members_fan_in)
    of_levels += (loaded.round.by_level, levels.names) if loaded.round.by_level else ()
    key = repr((loaded.model, *of_levels, seed, shape, classes))
    return _numbers_of_model(_Keyed(key, loaded), tuple(shape), classes)


class _Keyed:
    """A recipe that counts as equal to those with the same key."""

    def __init__(self, key, loaded):
        self.key, self.loaded = key, loaded

    def __eq__(self, other):
        return self.key == other.key

    def __hash__(self):
        return hash(self.key)


@functools.cache
def _numbers_of_model(keyed, shape, classes):
    family = build_family(keyed.loaded, shape, tuple(size or 8 for size in shape), classes)
    return {path: numbers(value) for path, value in global_layout.initial_values(family).items()}


def numbers(value):
    """The sum of an array and its product with cos(0), cos(1), ...; its value alone where all entries are equal."""
    flat = np.asarray(value, np.float64).ravel()
    if (flat == flat[0]).all():
        return [float(flat[0])]
    return [float(f"{flat.sum():.10g}"), float(f"{_cosines(flat.size.bit_length())[: flat.size] @ flat:.10g}")]


@functools.cache
def _cosines(bits):
    """cos(0), cos(1), ... for arrays whose size has this number of bits."""
    return np.cos(np.arange(2**bits))


def write(entries):
    """Writes the record; an entry that equals an earlier one becomes its name."""
    written = {}
    for name, entry in sorted(entries.items()):
        written[name] = next((other for other, known in written.items() if known == entry), entry)
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(entry)}" for name, entry in written.items())
    (FOLDER / "initial_values.json").write_text(f"{{\n{lines}\n}}\n")


if __name__ == "__main__":
    name, shape, classes = sys.argv[1], [int(size) for size in sys.argv[2].split(",")], int(sys.argv[3])
    values = {seed: initial_values(name, seed, shape, classes) for seed in SEEDS}
    write(recorded() | {name: {"shape": shape, "classes": classes, **values}})
