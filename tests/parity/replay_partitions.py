"""Replays splits of the methods' public code through the production ways to split, with the recorded draws.

    python tests/parity/replay_partitions.py FILE

FILE is JSON: {"cases": [...]} with labels, parameters, the random results in call order (`draws`) and the lists of
example ids of every client, or the `error` of a request that the public code refuses.
"""

import json
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[2]), str(Path(__file__).resolve().parent)]

import numpy as np  # noqa: E402
from recorded_splits import SOURCES  # noqa: E402

from hetero_tf.base import registry  # noqa: E402
from hetero_tf.base.errors import BadInput  # noqa: E402


class Draws:
    """Stands in for a NumPy generator: each method gives its next recorded result, of the shape asked for.

    Args:
        answers: `{method: results in call order}`.
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
    draws, classes = Draws(answers), case["classes"]
    train = np.asarray(case["labels"], np.int32)
    test = np.asarray(case.get("test_labels", [0]), np.int32)
    split = registry.find("partitions", name).split
    try:
        rng = np.random.default_rng(0) if "error" in case else draws
        found = split(train, test, classes, rng, clients=case["clients"], **options)
    except BadInput as error:
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
        # What is held out is nobody's: it is known by what is missing where nothing is held out.
        pairs = zip(_whole(case), _lists(found.train))
        equal["val"] = [own[: len(kept)] == kept and own[len(kept) :] for own, kept in pairs] == case["val"]
    return equal


def _whole(case):
    name, options, answers = SOURCES[case["source"]](case)
    labels = [np.asarray(case[part], np.int32) for part in ("labels", "test_labels")]
    split = registry.find("partitions", name).split
    found = split(*labels, case["classes"], Draws(answers), clients=case["clients"], **options | {"held_out": 0.0})
    return _lists(found.train)


def _lists(shares):
    return [own.tolist() for own in shares]


def main(argv):
    """Replays one file, prints a line for each case, and returns the exit code."""
    found = replay_partitions(argv[0])
    for name, good, told in found:
        print(f"{'ok  ' if good else 'FAIL'} {name:36} {told}")
    return int(not all(good for _, good, _ in found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
