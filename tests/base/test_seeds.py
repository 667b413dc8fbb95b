"""Randomness as pure functions: generators, and one number for each id."""

import ast
import collections
from pathlib import Path

import numpy as np

from hetero_tf.base import seeds

MASK = 2**64 - 1


def test_every_word_changes_the_generator_and_seeds_fit_a_graph():
    uses = [(0, "cohort"), (1, "cohort"), (0, "levels"), (0, "cohort", 1), (0, "cohort", 0, 1), (0, "cohort", 1, 1)]
    assert len({seeds.rng(*use).integers(2**62) for use in uses}) == len(uses)
    assert seeds.rng(0, "cohort", 5).integers(2**62) == seeds.rng(0, "cohort", np.int32(5)).integers(2**62)
    values = [seeds.seed32(0, "round", number) for number in range(200)]
    assert len(set(values)) == 200
    assert 0 <= min(values) < 2**29 < max(values) < 2**31


def splitmix64(state):
    """The first output after `state`, as Steele, Lea and Flood print it."""
    word = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & MASK
    word = (word ^ word >> 27) * 0x94D049BB133111EB & MASK
    return word ^ word >> 31


def test_splitmix64_matches_reference_outputs():
    # Seed 1234567: the values that the Rosetta Code page on SplitMix64 lists.
    states = [(1234567 + step * 0x9E3779B97F4A7C15) & MASK for step in (1, 2, 3)]
    assert [splitmix64(state) for state in states] == [6457827717110365317, 3203168211198807973, 9817491932198370423]


def test_uniform_is_splitmix64_at_a_position():
    first, second = (
        int(key) for key in np.random.SeedSequence(seeds.entropy(3, "levels", 8)).generate_state(2, np.uint64)
    )
    for client in (0, 1, 77, 10**6, 2**31 - 1):
        word = client
        for key in (first, second):
            word = splitmix64((word * 0x9E3779B97F4A7C15 + key) & MASK)
        numbers = seeds.uniform(3, "levels", 8, ids=[client])
        assert numbers.dtype == np.float64
        assert numbers.tolist() == [(word >> 11) / 2**53]


def test_numbers_do_not_depend_on_other_ids():
    everyone = seeds.uniform(0, "levels", 3, ids=np.arange(1000))
    assert len(set(everyone.tolist())) == 1000
    some = np.array([999, 5, 5, 0], np.int32)
    assert seeds.uniform(0, "levels", 3, ids=some).tolist() == everyone[some].tolist()
    assert seeds.uniform(0, "levels", 3, ids=some[:0]).shape == (0,)


PACKAGE = Path(seeds.__file__).parents[1]
# Modules with several uses of a purpose, which draw equal numbers unless a line says otherwise.
SHARED = {
    # A device has the order of batches of the simulated client.
    "batches": ["devices/machine.py", "planning/plan.py"],
    # Different numbers: the class of a client's device, and the steps on it, which have the round and client as key.
    "device": ["devices/machine.py", "planning/fleets/devices.py"],
    # A recipe has one network, or the numbered ones of an ensemble.
    "model": 2 * ["models/family.py"],
    # Clients, devices and predictions draw the same masks.
    "round": ["devices/tensorflow_client.py", "evaluation/predictor.py", "run/federation.py"],
    # The expected work of a client is that of the stages that its steps draw.
    "stages": 2 * ["planning/plan.py"],
    "statistics": ["devices/machine.py", "evaluation/statistics_query.py"],
    # An exported model is measured with the masks of the global model's test.
    "test masks": ["evaluation/global_metrics.py", "export/positions.py"],
}


def purposes(tree):
    """Yield the purpose of each use of random numbers in a module; None if it is not a text."""
    nodes = list(ast.walk(tree))
    functions = {f"seeds.{name}": 1 for name in ("entropy", "rng", "seed32", "uniform")}
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module == "hetero_tf.base.seeds":
            functions |= {alias.name: 1 for alias in node.names}
        # Calls of a function with such a parameter are the uses.
        names = [argument.arg for argument in node.args.args] if isinstance(node, ast.FunctionDef) else []
        functions |= {node.name: names.index("purpose")} if "purpose" in names else {}
    for node in nodes:
        if isinstance(node, ast.Call) and ast.unparse(node.func) in functions:
            purpose = node.args[functions[ast.unparse(node.func)]]
            if ast.unparse(purpose) != "purpose":
                yield purpose.value if isinstance(purpose, ast.Constant) else None


def test_each_purpose_has_one_use():
    modules = collections.defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        for purpose in purposes(ast.parse(path.read_text("utf-8"))):
            modules[purpose].append(path.relative_to(PACKAGE).as_posix())
    assert {purpose: names for purpose, names in modules.items() if purpose is None or len(names) > 1} == SHARED
    assert {"cohort", "device speed", "shapes test"} <= modules.keys()
