"""Replays recorded cases of splits and of packing from JSON files.

A file of splits is {"cases": [...]}. A case has labels, parameters, the random results in call order (`draws`) and each
client's list of example ids, or the `error` with which the public code rejects it. A file of packing is
{"unit_numbering": "1-based", "cases": [{"name", "costs", "cap", "skip", "stages"}, ...]}, where `skip` and `stages`
number the units; a case with the key `error`, or without any stage, must be rejected.
"""

import json
import math
from pathlib import Path

import numpy as np
from recorded_splits import SOURCES

from hetero_tf.base import registry
from hetero_tf.base.errors import InputError
from hetero_tf.methods.stages import budgets


class Draws:
    """Replacement of a NumPy generator: each method returns its next recorded result, which has the requested shape.

    `results` is `{method: results in call order}`.
    """

    def __init__(self, results):
        self.left = {method: list(values) for method, values in results.items()}

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
        # One record for each turn, for any size of a call.
        return np.asarray([self._next("random", ()) for _ in range(size)])

    def standard_exponential(self, shape):
        return self._next("standard_exponential", shape)

    def unused(self):
        """Names of methods with unused recorded results."""
        return sorted(method for method, results in self.left.items() if results)


def replay(path):
    """Replay every case of a file.

    Returns:
        List of (name, difference, 0, detail): the difference is 0 if all lists of the case are equal in content and
        order (or the case is rejected as recorded), else infinite; a sentence about the compared or differing parts.
    """
    document = json.loads(Path(path).read_text("utf-8"))
    results = []
    for case in document["cases"]:
        first = 1 if document.get("unit_numbering") == "1-based" else 0
        is_equal, detail = _replay_packed(case, first) if "costs" in case else _replay_split(case)
        results.append((case["name"], 0.0 if is_equal else math.inf, 0.0, detail))
    return results


def _replay_split(case):
    """(True if equal, detail) of a case of splits."""
    try:
        name, options, results = SOURCES[case["source"]](case)
    except (KeyError, IndexError, AssertionError) as problem:
        return False, f"source {case['source']!r}: not the draws or keys of a known case: {problem!r}"
    draws = Draws(results)
    try:
        partition = _split(case, name, options, np.random.default_rng(0) if "error" in case else draws)
    except InputError as error:
        return "error" in case, f"{name} rejects: {error}"
    except AssertionError as error:
        return False, f"{name}: {error}"
    if "error" in case:
        return False, f"{name} accepts a case that the public code rejects: {case['error']}"
    wrong = [part for part, good in _compare(case, partition).items() if not good] + draws.unused()
    return not wrong, f"{name}: " + (f"differs in {', '.join(wrong)}" if wrong else _describe(case))


def _describe(case):
    parts = [part for part in ("train", "test", "val", "label_split", "class_table") if part in case]
    if case.get("method_arg") != "pat":
        return f"{', '.join(parts)} equal"
    parts.remove("val")
    return f"{', '.join(parts)} equal; val skipped: drawn a second time there, so that it overlaps train"


def _compare(case, partition):
    """`{part: True if equal}` of the recorded parts of a case."""
    equal = {"train": _lists(partition.train) == case["train"]}
    if "test" in case:
        equal["test"] = _lists(partition.test) == case["test"]
    table = case.get("label_split", case.get("class_table"))
    if table is not None:
        masks = [np.flatnonzero(mask).tolist() for mask in partition.label_mask]
        equal["labels"] = [sorted(set(row)) for row in table] == masks
    if "val" in case and case["method_arg"] != "pat":
        equal["val"] = _lists(partition.held_out) == case["val"]
    return equal


def _split(case, name, options, rng):
    """Split the labels of a case with a production partition; some cases have no test split."""
    labels = [np.asarray(values, np.int32) for values in (case["labels"], case.get("test_labels", [0]))]
    split = registry.find("partitions", name).split
    return split(*labels, case["classes"], rng, clients=case["clients"], **options)


def _lists(shares):
    return [ids.tolist() for ids in shares]


def _replay_packed(case, first):
    """(True if equal, detail) of a case of packing, whose units are numbered from `first`."""
    numbers = range(first, first + len(case["costs"]))
    refused = "error" in case or not case["stages"]
    try:
        packing = budgets.pack(case["costs"], case["cap"], list(map(str, numbers)))
    except InputError as problem:
        return refused, f"rejected: {problem}"
    actual = _packed(
        [numbers[index] for index in packing.skipped], [[numbers[index] for index in stage] for stage in packing.stages]
    )
    if refused:
        return False, f"{actual}, expected an error"
    expected = _packed(case["skip"], case["stages"])
    return actual == expected, actual if actual == expected else f"{actual}, expected {expected}"


def _packed(skipped, stages):
    """Skipped units and stages in one line: "skip 1,2; 3 | 4,5"."""
    packed = " | ".join(",".join(map(str, stage)) for stage in stages)
    return f"skip {','.join(map(str, skipped))}; {packed}" if skipped else packed
