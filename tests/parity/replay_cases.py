"""Replays recorded cases of splits and of packing, which `replay_methods.py` reads from JSON files.

A file of splits is {"cases": [...]} with labels, parameters, the random results in call order (`draws`) and the lists
of example ids of every client, or the `error` of a request that the public code refuses. A file of packing is
{"unit_numbering": "1-based", "cases": [{"name", "costs", "cap", "skip", "stages"}, ...]}, where `skip` and `stages`
number the units; a case with the key `error`, or without any stage, must be refused.
"""

import json
from pathlib import Path

import numpy as np
from recorded_splits import SOURCES

from hetero_tf.base import registry
from hetero_tf.base.errors import InputError
from hetero_tf.methods.stages import budgets


class Draws:
    """Stands in for a NumPy generator: each method gives its next recorded result, of the shape asked for.

    `answers` is `{method: results in call order}`.
    """

    def __init__(self, answers):
        self.left = {method: list(results) for method, results in answers.items()}

    def _next(self, method, shape):
        if not self.left.get(method):
            raise AssertionError(f"a draw of {method} that the public code did not make")
        result = np.asarray(self.left[method].pop(0))
        assert result.shape == tuple(np.atleast_1d(shape)), f"{method} of {shape}, recorded {result.shape}"
        return result

    def permutation(self, values):
        values = np.arange(values) if np.ndim(values) == 0 else values
        result = self._next("permutation", values.shape)
        assert (np.sort(result) == np.sort(values)).all(), "a permutation of other values"
        return result

    def permuted(self, values, axis):
        result = self._next("permuted", values.shape)
        assert (np.sort(result, axis) == np.sort(values, axis)).all(), "permutations of other values"
        return result

    def dirichlet(self, alpha, size=None):
        return self._next("dirichlet", np.shape(alpha) if size is None else (size, len(alpha)))

    def integers(self, high, size):
        result = self._next("integers", size)
        assert (result < high).all()
        return result.astype(np.int64)

    def lognormal(self, mean, sigma, size):
        return self._next("lognormal", size)

    def random(self, size):
        # One record for each turn, whatever number is asked for at once.
        return np.asarray([self._next("random", ()) for _ in range(size)])

    def standard_exponential(self, shape):
        return self._next("standard_exponential", shape)

    def unused(self):
        """Names of methods of which recorded results are left over."""
        return sorted(method for method, results in self.left.items() if results)


def replay_partitions(path):
    """Replays every case of a file.

    Returns:
        List of (name, ok, detail): whether all lists of the case are equal in content and order (or the refused case
        is refused), and a sentence about what was compared or what differs.
    """
    cases = json.loads(Path(path).read_text("utf-8"))["cases"]
    return [(case["name"], *_replay_case(case)) for case in cases]


def _replay_case(case):
    try:
        name, options, answers = SOURCES[case["source"]](case)
    except (KeyError, IndexError, AssertionError) as problem:
        return False, f"source {case['source']!r}: not the draws or keys of a known case: {problem!r}"
    draws = Draws(answers)
    try:
        found = _split(case, name, options, np.random.default_rng(0) if "error" in case else draws)
    except InputError as error:
        return "error" in case, f"{name} refuses: {error}"
    except AssertionError as error:
        return False, f"{name}: {error}"
    if "error" in case:
        return False, f"{name} takes what the public code refuses: {case['error']}"
    wrong = [part for part, good in _compare(case, found).items() if not good] + draws.unused()
    return not wrong, f"{name}: " + (f"differs in {', '.join(wrong)}" if wrong else _told(case))


def _told(case):
    parts = [part for part in ("train", "test", "val", "label_split", "class_table") if part in case]
    if case.get("method_arg") != "pat":
        return f"{', '.join(parts)} equal"
    parts.remove("val")
    return f"{', '.join(parts)} equal; val skipped: drawn a second time there, so that it overlaps train"


def _compare(case, found):
    """`{part: whether it is equal}` for what the case records."""
    equal = {"train": _lists(found.train) == case["train"]}
    if "test" in case:
        equal["test"] = _lists(found.test) == case["test"]
    table = case.get("label_split", case.get("class_table"))
    if table is not None:
        masks = [np.flatnonzero(mask).tolist() for mask in found.label_mask]
        equal["labels"] = [sorted(set(row)) for row in table] == masks
    if "val" in case and case["method_arg"] != "pat":
        equal["val"] = _lists(found.held_out) == case["val"]
    return equal


def _split(case, name, options, rng):
    """What the production way of a name makes of the labels of a case, of which some lack a test split."""
    labels = [np.asarray(own, np.int32) for own in (case["labels"], case.get("test_labels", [0]))]
    split = registry.find("partitions", name).split
    return split(*labels, case["classes"], rng, clients=case["clients"], **options)


def _lists(shares):
    return [own.tolist() for own in shares]


def replay_packing(path):
    """[(name of the case, whether it came out as recorded, what came out)] of all cases of a file."""
    held = json.loads(Path(path).read_text(encoding="utf-8"))
    first = 1 if held["unit_numbering"] == "1-based" else 0
    return [(case["name"], *_replay_packed(case, first)) for case in held["cases"]]


def _replay_packed(case, first):
    numbers = range(first, first + len(case["costs"]))
    refused = "error" in case or not case["stages"]
    try:
        found = budgets.pack(case["costs"], case["cap"], list(map(str, numbers)))
    except InputError as problem:
        return refused, f"refused: {problem}"
    told = _packed(
        [numbers[place] for place in found.skipped], [[numbers[place] for place in stage] for stage in found.stages]
    )
    if refused:
        return False, f"{told}, expected a refusal"
    expected = _packed(case["skip"], case["stages"])
    return told == expected, told if told == expected else f"{told}, expected {expected}"


def _packed(skipped, stages):
    """Skipped units and stages in one line: "skip 1,2; 3 | 4,5"."""
    packed = " | ".join(",".join(map(str, stage)) for stage in stages)
    return f"skip {','.join(map(str, skipped))}; {packed}" if skipped else packed
