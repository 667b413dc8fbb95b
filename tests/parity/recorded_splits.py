"""Replays recorded cases of splits and of packing from JSON files.

A file of splits is {"cases": [...]}. A case has labels, parameters, the random results in call order (`draws`) and each
client's list of example ids, or the `error` with which the public code rejects it. `SOURCES` converts the draws of the
public code, such as positions in a shrinking list, to those of the production partitions. A file of packing is
{"unit_numbering": "1-based", "cases": [{"name", "costs", "cap", "skip", "stages"}, ...]}, where `skip` and `stages`
number the units; a case with the key `error`, or without any stage, must be rejected.
"""

import json
import math
from collections import defaultdict
from pathlib import Path

import numpy as np

from hetero_tf.base import registry
from hetero_tf.base.errors import InputError
from hetero_tf.data.partitions import dirichlet_turns
from hetero_tf.methods.stages import budgets

# FeDepth's code repeats its capped draw until every client has this number of examples.
FEDEPTH_LEAST = 50


def _by_kind(case):
    """Return `{kind: results in call order}`; rejected cases have no results."""
    results = defaultdict(list)
    for kind, result in case.get("draws", ()):
        results[kind].append(result)
    return results


def _fedepth(case):
    """FeDepth and SplitMix."""
    return {"dir": _capped, "balanced-dir": _balanced, "iid": _sizes, "pat": _deck}[case["method_arg"]](case)


def _capped(case):
    drawn, clients = _by_kind(case), case["clients"]
    shuffles = drawn["shuffle"]
    draws = {
        "permutation": [*shuffles[:-clients], np.concatenate(shuffles[-clients:])],
        "dirichlet": drawn["dirichlet"],
        "integers": drawn["rng.choice"],
    }
    min_size = case.get("min_size", FEDEPTH_LEAST)
    return "dirichlet", {"alpha": case["alpha"], "least": min_size, **_test_options(case)}, draws


def _test_options(case):
    return {"held_out": case["val_ratio"], "test": "contiguous"} if "val_ratio" in case else {"test": "own"}


def _balanced(case):
    drawn, labels = _by_kind(case), np.asarray(case["labels"])
    data = np.asarray(drawn["torch.randperm"][0])
    picks = [data[picked] for picked in drawn["torch.multinomial"]]
    # Production draws labels and picks the next example of each, so the data are in the order of the picks.
    order = np.concatenate([*picks, np.setdiff1d(np.arange(len(labels)), np.concatenate(picks))])
    draws = {
        "permutation": [order, np.concatenate([data[mixed] for mixed in drawn["shuffle"]])],
        "dirichlet": [np.stack(drawn["dirichlet"])],
        "integers": drawn["rng.choice"],
        "standard_exponential": list(_clocks(labels, picks, drawn["dirichlet"], case["classes"])),
    }
    return "dirichlet_equal", {"alpha": case["alpha"], **_test_options(case)}, draws


def _clocks(labels, picks, weights, classes):
    """Exponential draws that produce the labels in the recorded order, one array for each client."""
    left = np.bincount(labels, minlength=classes)
    for picked, weight in zip(picks, weights):
        rings = np.full((classes, len(picked)), 2.0 * len(picked))
        for label in range(classes):
            at = 1.0 + np.flatnonzero(labels[picked] == label)
            rings[label, : len(at)] = np.diff(at, prepend=0)
        waiting = left[:, None] - np.arange(len(picked))
        yield rings * np.asarray(weight)[:, None] * np.maximum(waiting, 1)
        left = left - np.bincount(labels[picked], minlength=classes)


def _sizes(case):
    drawn = _by_kind(case)
    sizes = "dirichlet" if case.get("partition_mode") == "dir" else "equal"
    options = {"sizes": sizes, "least": case["min_per_share"], "shuffled": False}
    options |= {"held_out": case["val_ratio"], "test": "new"}
    return "quantity", options, {"dirichlet": drawn["rng.dirichlet"], "integers": drawn["rng.choice"]}


def _deck(case):
    drawn, clients, consistent = _by_kind(case), case["clients"], case.get("consistent_test_class", False)
    decks = -(-clients * case["classes_per_client"] // case["classes"])
    permuted, rest = [], drawn["shuffle"]
    permuted.append(rest[:decks])
    # Each client's list is shuffled twice: for its training examples, and again for the validation examples.
    train, rest = rest[decks : decks + 2 * clients : 2], rest[decks + 2 * clients :]
    if not consistent:
        permuted.append(rest[:decks])
        rest = rest[decks:]
    draws = {
        "permuted": permuted,
        "dirichlet": drawn["rng.dirichlet"],
        "integers": drawn["rng.choice"],
        "permutation": [np.concatenate(train), np.concatenate(rest)] if train else [],
    }
    options = {
        "per_client": case["classes_per_client"],
        "held_out": case["val_ratio"],
        "sizes": "dirichlet" if case.get("partition_mode") == "dir" else "equal",
        "least": case["min_per_share"],
        "test_least": case["min_per_share"],
        "test": "own" if consistent else "new",
    }
    return "class_deck", options, draws


def _depthfl(case):
    if case["kind"] == "dir":
        name, options, draws = _capped(case)
        # The case has no test split; production draws for its single placeholder example.
        orders = [*draws["permutation"], [0]]
        return name, options, draws | {"random": [0.5] * case["classes"], "permutation": orders}
    return "iid", {}, {"permutation": [_filled(np.concatenate(_by_kind(case)["choice"]), len(case["labels"])), [0]]}


def _filled(first, total):
    """Return a permutation that begins with `first`."""
    return np.concatenate([first, np.setdiff1d(np.arange(total), first)])


def _heterofl(case):
    orders = [np.asarray(order) for order in _by_kind(case)["torch.randperm"]]
    if case["mode"] == "iid":
        clients, parts = case["clients"], []
        for total, client_orders in (
            (len(case["labels"]), orders[:clients]),
            (len(case["test_labels"]), orders[clients:]),
        ):
            parts.append(_picked(total, total // clients, client_orders))
        return "iid", {}, {"permutation": parts}
    per_client = int(case["mode"].rpartition("-")[2])
    shards = case["clients"] * per_client // case["classes"]
    table = np.tile(np.arange(case["classes"]), shards)[orders[0]]
    rows = [np.unique(row) for row in table.reshape(case["clients"], per_client)]
    picks = [order[0] for order in orders[1:]]
    orders = [table, *_shards(rows, picks, case["classes"], shards)]
    return "labels", {"per_client": per_client}, {"permutation": orders}


def _lg(case):
    table = np.asarray(_by_kind(case)["random.shuffle"][0])
    shards = len(table) // case["classes"]
    rows = table.reshape(case["clients"], -1)
    orders = [table, *_shards(rows, _by_kind(case)["choice"], case["classes"], shards)]
    return "labels", {"per_client": rows.shape[1], "keep_duplicates": True}, {"permutation": orders}


def _picked(total, each, orders):
    """Convert positions in the list of remaining ids to one permutation of all ids."""
    left, taken = list(range(total)), []
    for order in orders:
        taken += [left[position] for position in order[:each]]
        # A difference of sets as in the authors' code: with few large numbers its order is not always ascending.
        left = list(set(left) - set(taken[-each:]))
    return _filled(taken, total)


def _shards(rows, picks, classes, shards):
    """Return the order of the shards of each split and label, from positions in the shrinking list of each label."""
    picks = list(picks)
    for _ in ("train", "test"):
        left, taken = [list(range(shards)) for _ in range(classes)], [[] for _ in range(classes)]
        for label in np.concatenate(rows):
            taken[label].append(left[label].pop(picks.pop(0)))
        yield from (first + rest for first, rest in zip(taken, left))


def _feddc(case):
    """FedDC: the record has only the first draws; the turns continue the same generator as in the public code."""
    rng, labels, clients = np.random.RandomState(case["seed"]), np.asarray(case["labels"]), case["clients"]
    order = rng.permutation(len(labels))
    drawn = rng.lognormal(np.log(len(labels) // clients), case["sigma"], clients)
    priors = rng.dirichlet([case["alpha"]] * case["classes"], size=clients)
    recorded = _by_kind(case)
    assert (order == recorded["permutation"][0]).all() and np.allclose(priors, recorded["dirichlet"][0])
    sizes = (drawn / drawn.sum() * len(labels)).astype(int)
    sizes[0] += len(labels) - sizes.sum()
    turns, chances = _turns(rng, sizes, priors, np.bincount(labels, minlength=case["classes"]))
    draws = {"permutation": [order, turns], "lognormal": [drawn], "dirichlet": [priors], "random": chances}
    # As with DepthFL, one placeholder example is the test split.
    draws["permutation"].append([0])
    draws["random"] += [0.5] * case["classes"]
    return "dirichlet_turns", {"alpha": case["alpha"], "sigma": case["sigma"]}, draws


def _turns(rng, sizes, priors, left):
    """Return the client of each turn, and a number in [0, 1) that selects its label."""
    ends, turns, chances = np.cumsum(priors, axis=1), [], []
    while sizes.any():
        client = rng.randint(len(sizes))
        if sizes[client] <= 0:
            continue
        sizes[client] -= 1
        label = np.argmax(rng.uniform() <= ends[client])
        while left[label] <= 0:
            label = np.argmax(rng.uniform() <= ends[client])
        # Production excludes exhausted labels at the beginning of a block instead of drawing again.
        if len(turns) % dirichlet_turns.BLOCK == 0:
            there = left > 0
        parts = np.cumsum(priors[client] * there)
        chances.append((parts[label] - priors[client][label] / 2) / parts[-1])
        turns.append(client)
        left[label] -= 1
    return turns, chances


SOURCES = {"fedepth": _fedepth, "depthfl": _depthfl, "heterofl": _heterofl, "lg": _lg, "feddc": _feddc}


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
