"""What the public code of each source drew for a split, as what the production ways to split draw.

`SOURCES[source](case) -> (name of the partition, its options, answers)`; the answers are results by the name of the
generator's method, for `replay_cases.Draws`. Where both draw the same thing in another form (positions in a list
that shrinks, examples instead of labels), it is translated here.
"""

from collections import defaultdict

import numpy as np

from hetero_tf.partitions import dirichlet_turns

# FeDepth's code repeats its capped draw until every client has so many.
FEDEPTH_LEAST = 50


def _by_kind(case):
    """`{kind: results in call order}`; a refused case has none."""
    found = defaultdict(list)
    for kind, result in case.get("draws", ()):
        found[kind].append(result)
    return found


def _fedepth(case):
    """FeDepth and SplitMix."""
    return {"dir": _capped, "balanced-dir": _balanced, "iid": _sizes, "pat": _deck}[case["method_arg"]](case)


def _capped(case):
    drawn, clients = _by_kind(case), case["clients"]
    shuffles = drawn["shuffle"]
    answers = {
        "permutation": [*shuffles[:-clients], np.concatenate(shuffles[-clients:])],
        "dirichlet": drawn["dirichlet"],
        "integers": drawn["rng.choice"],
    }
    least = case.get("min_size", FEDEPTH_LEAST)
    return "dirichlet", {"alpha": case["alpha"], "least": least, **_held_out(case)}, answers


def _held_out(case):
    return {"held_out": case["val_ratio"], "test": "contiguous"} if "val_ratio" in case else {"test": "own"}


def _balanced(case):
    drawn, labels = _by_kind(case), np.asarray(case["labels"])
    data = np.asarray(drawn["torch.randperm"][0])
    picks = [data[picked] for picked in drawn["torch.multinomial"]]
    # Production draws labels and takes the next example of each: so the data come in the order they were picked.
    order = np.concatenate([*picks, np.setdiff1d(np.arange(len(labels)), np.concatenate(picks))])
    answers = {
        "permutation": [order, np.concatenate([data[mixed] for mixed in drawn["shuffle"]])],
        "dirichlet": [np.stack(drawn["dirichlet"])],
        "integers": drawn["rng.choice"],
        "standard_exponential": list(_clocks(labels, picks, drawn["dirichlet"], case["classes"])),
    }
    return "dirichlet_equal", {"alpha": case["alpha"], **_held_out(case)}, answers


def _clocks(labels, picks, weights, classes):
    """Exponential draws under which the labels ring in the recorded order, one array for each client."""
    left = np.bincount(labels, minlength=classes)
    for own, weight in zip(picks, weights):
        rings = np.full((classes, len(own)), 2.0 * len(own))
        for label in range(classes):
            at = 1.0 + np.flatnonzero(labels[own] == label)
            rings[label, : len(at)] = np.diff(at, prepend=0)
        waiting = left[:, None] - np.arange(len(own))
        yield rings * np.asarray(weight)[:, None] * np.maximum(waiting, 1)
        left = left - np.bincount(labels[own], minlength=classes)


def _sizes(case):
    drawn = _by_kind(case)
    sizes = "dirichlet" if case.get("partition_mode") == "dir" else "equal"
    options = {"sizes": sizes, "least": case["min_per_share"], "shuffled": False}
    options |= {"held_out": case["val_ratio"], "test": "new"}
    return "quantity", options, {"dirichlet": drawn["rng.dirichlet"], "integers": drawn["rng.choice"]}


def _deck(case):
    drawn, clients, consistent = _by_kind(case), case["clients"], case.get("consistent_test_class", False)
    decks = -(-clients * case["classes_per_client"] // case["classes"])
    deals, rest = [], drawn["shuffle"]
    deals.append(rest[:decks])
    # Each client's list is shuffled twice: for its training examples, and again for the validation examples.
    train, rest = rest[decks : decks + 2 * clients : 2], rest[decks + 2 * clients :]
    if not consistent:
        deals.append(rest[:decks])
        rest = rest[decks:]
    answers = {
        "permuted": deals,
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
    return "class_deck", options, answers


def _depthfl(case):
    if case["kind"] == "dir":
        name, options, answers = _capped(case)
        # The case has no test split; the production one draws for its single stand-in example.
        orders = [*answers["permutation"], [0]]
        return name, options, answers | {"random": [0.5] * case["classes"], "permutation": orders}
    return "iid", {}, {"permutation": [_filled(np.concatenate(_by_kind(case)["choice"]), len(case["labels"])), [0]]}


def _filled(first, total):
    """A permutation that begins with `first`."""
    return np.concatenate([first, np.setdiff1d(np.arange(total), first)])


def _heterofl(case):
    orders = [np.asarray(order) for order in _by_kind(case)["torch.randperm"]]
    if case["mode"] == "iid":
        clients, parts = case["clients"], []
        for total, own in ((len(case["labels"]), orders[:clients]), (len(case["test_labels"]), orders[clients:])):
            parts.append(_picked(total, total // clients, own))
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
    """The ids that positions in the list of what is left stand for, as one permutation of all."""
    left, taken = list(range(total)), []
    for order in orders:
        taken += [left[place] for place in order[:each]]
        # A difference of sets as in the authors' code: of few large numbers its order is not always ascending.
        left = list(set(left) - set(taken[-each:]))
    return _filled(taken, total)


def _shards(rows, picks, classes, shards):
    """For each split and label the order of its shards, from positions in the shrinking list of each label."""
    picks = list(picks)
    for _ in ("train", "test"):
        left, taken = [list(range(shards)) for _ in range(classes)], [[] for _ in range(classes)]
        for label in np.concatenate(rows):
            taken[label].append(left[label].pop(picks.pop(0)))
        yield from (own + rest for own, rest in zip(taken, left))


def _feddc(case):
    """FedDC: the record has the first draws only; the turns come from the same generator, drawn as there."""
    rng, labels, clients = np.random.RandomState(case["seed"]), np.asarray(case["labels"]), case["clients"]
    order = rng.permutation(len(labels))
    drawn = rng.lognormal(np.log(len(labels) // clients), case["sigma"], clients)
    priors = rng.dirichlet([case["alpha"]] * case["classes"], size=clients)
    recorded = _by_kind(case)
    assert (order == recorded["permutation"][0]).all() and np.allclose(priors, recorded["dirichlet"][0])
    sizes = (drawn / drawn.sum() * len(labels)).astype(int)
    sizes[0] += len(labels) - sizes.sum()
    turns, chances = _turns(rng, sizes, priors, np.bincount(labels, minlength=case["classes"]))
    answers = {"permutation": [order, turns], "lognormal": [drawn], "dirichlet": [priors], "random": chances}
    # As with DepthFL, one stand-in example is the test split.
    answers["permutation"].append([0])
    answers["random"] += [0.5] * case["classes"]
    return "dirichlet_turns", {"alpha": case["alpha"], "sigma": case["sigma"]}, answers


def _turns(rng, sizes, priors, left):
    """The client of each turn, and for each a number in [0, 1) that stands for its label."""
    ends, turns, chances = np.cumsum(priors, axis=1), [], []
    while sizes.any():
        client = rng.randint(len(sizes))
        if sizes[client] <= 0:
            continue
        sizes[client] -= 1
        label = np.argmax(rng.uniform() <= ends[client])
        while left[label] <= 0:
            label = np.argmax(rng.uniform() <= ends[client])
        # Production leaves out the labels that are used up where a block begins, instead of drawing again.
        if len(turns) % dirichlet_turns.BLOCK == 0:
            there = left > 0
        parts = np.cumsum(priors[client] * there)
        chances.append((parts[label] - priors[client][label] / 2) / parts[-1])
        turns.append(client)
        left[label] -= 1
    return turns, chances


SOURCES = {"fedepth": _fedepth, "depthfl": _depthfl, "heterofl": _heterofl, "lg": _lg, "feddc": _feddc}
