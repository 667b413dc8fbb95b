"""Splits of plain loops, written as the public code draws them, replayed; the replay must notice mistakes."""

import json

import numpy as np
import pytest
import replay_partitions

from hetero_tf.partitions import dirichlet_turns

LABELS = np.random.default_rng(0).integers(0, 5, 150)
TESTS = np.random.default_rng(1).integers(0, 5, 62)


def case(name, source, clients, lists, draws, **more):
    lists = {part: [list(map(int, own)) for own in found] for part, found in lists.items()}
    return {
        "name": name,
        "source": source,
        "labels": LABELS.tolist(),
        "classes": 5,
        "clients": clients,
        **lists,
        "draws": [[kind, np.asarray(drawn).tolist()] for kind, drawn in draws],
        **more,
    }


class Recorder:
    """Draws as the public code does, and keeps what it drew."""

    def __init__(self, seed):
        self.rng, self.drawn = np.random.RandomState(seed), []

    def keep(self, kind, result):
        self.drawn.append((kind, result))
        return result

    def shuffled(self, values):
        return self.keep("shuffle", self.rng.permutation(values))


def plain_capped(alpha=0.4, clients=4, least=8):
    record, smallest = Recorder(3), 0
    while smallest < least:
        found = [[] for _ in range(clients)]
        for label in range(5):
            ids = record.shuffled(np.flatnonzero(label == LABELS))
            part = record.keep("dirichlet", record.rng.dirichlet([alpha] * clients))
            part = np.array([p if len(own) < 150 / clients else 0 for p, own in zip(part, found)])
            ends = (np.cumsum(part / part.sum()) * len(ids)).astype(int)[:-1]
            found = [own + list(more) for own, more in zip(found, np.split(ids, ends))]
        smallest = min(map(len, found))
    found = [record.shuffled(own) for own in found]
    return case("capped", "depthfl", clients, {"train": found}, record.drawn, kind="dir", alpha=alpha, min_size=least)


def plain_balanced(alpha=0.3, clients=4):
    record = Recorder(4)
    data = record.keep("torch.randperm", record.rng.permutation(150))
    free, picked, each = np.ones(150), [], 150 // clients
    for _ in range(clients):
        weight = record.keep("dirichlet", record.rng.dirichlet([alpha] * 5))[LABELS[data]] * free
        own = record.rng.choice(150, each, replace=False, p=weight / weight.sum())
        picked.append(record.keep("torch.multinomial", own))
        free[own] = 0
    found = [data[record.shuffled(own)] for own in picked]
    held = int(0.2 * each)
    record.keep("rng.choice", [3, 0])
    tests = np.split(np.arange(62), [16, 31, 46])
    return case(
        "balanced",
        "fedepth",
        clients,
        {"train": [own[: each - held] for own in found], "val": [own[each - held :] for own in found], "test": tests},
        record.drawn,
        method_arg="balanced-dir",
        alpha=alpha,
        val_ratio=0.2,
        test_labels=TESTS.tolist(),
    )


def plain_deck(clients=7, each=2, consistent=False):
    record = Recorder(5)

    def hands():
        deck, dealt = [], []
        for _ in range(clients * each):
            deck = deck or list(record.shuffled(np.arange(5)))
            dealt.append(deck.pop(0))
        return np.reshape(dealt, (clients, each))

    def deal(labels, held):
        found = [[] for _ in range(clients)]
        for label in dict.fromkeys(labels.tolist()):
            ids, holders = np.flatnonzero(labels == label).tolist(), np.nonzero(held == label)[0]
            sizes = np.full(len(holders), len(ids) // len(holders))
            for more in record.keep("rng.choice", record.rng.choice(len(holders), len(ids) - sizes.sum())):
                sizes[more] += 1
            for holder, size in zip(holders, sizes):
                found[holder] += [ids.pop(0) for _ in range(size)]
        return found

    first = hands()
    train, val = [], []
    for own in deal(LABELS, first):
        held = int(0.2 * len(own))
        train.append(record.shuffled(own)[held:])
        val.append(record.shuffled(own)[:held])
    test = [record.shuffled(own) for own in deal(TESTS, first if consistent else hands())]
    return case(
        f"deck {consistent}",
        "fedepth",
        clients,
        {"train": train, "val": val, "test": test},
        record.drawn,
        method_arg="pat",
        classes_per_client=each,
        val_ratio=0.2,
        min_per_share=1,
        consistent_test_class=consistent,
        test_labels=TESTS.tolist(),
    )


def plain_turns(sigma, clients=3, alpha=2.0, seed=6):
    rng = np.random.RandomState(seed)
    data = rng.permutation(150)
    sizes = rng.lognormal(np.log(150 // clients), sigma, clients)
    sizes = (sizes / sizes.sum() * 150).astype(int)
    sizes[0] += 150 - sizes.sum()
    prior = rng.dirichlet([alpha] * 5, size=clients)
    found, left = [[] for _ in sizes], [data[LABELS[data] == label].tolist() for label in range(5)]
    while sizes.sum():
        client = rng.randint(clients)
        if sizes[client] == 0:
            continue
        sizes[client] -= 1
        label = np.argmax(rng.uniform() <= np.cumsum(prior[client]))
        while not left[label]:
            label = np.argmax(rng.uniform() <= np.cumsum(prior[client]))
        found[client].insert(0, left[label].pop())
    return case(
        f"turns {sigma}",
        "feddc",
        clients,
        {"train": found},
        [("permutation", data), ("dirichlet", prior)],
        alpha=alpha,
        sigma=sigma,
        seed=seed,
    )


def plain_shards(clients=10, each=2):
    record = Recorder(7)
    shards = clients * each // 5
    table = record.keep("random.shuffle", record.rng.permutation(list(range(5)) * shards)).reshape(clients, each)
    lists = {}
    for part, labels in (("train", LABELS), ("test", TESTS)):
        pieces = []
        for label in range(5):
            ids = np.flatnonzero(labels == label).tolist()
            size = len(ids) // shards
            rest = ids[size * shards :]
            pieces.append([ids[i * size : (i + 1) * size] + rest[i : i + 1] for i in range(shards)])
        lists[part] = [
            sum((pieces[label].pop(record.keep("choice", record.rng.randint(len(pieces[label])))) for label in row), [])
            for row in table
        ]
    return case("shards", "lg", clients, {**lists, "class_table": table}, record.drawn, test_labels=TESTS.tolist())


def replayed(folder, *cases):
    path = folder / "cases.json"
    path.write_text(json.dumps({"cases": cases}))
    return replay_partitions.replay_partitions(path)


@pytest.mark.parametrize("block", [2**12, 16])
def test_plain_loops_are_replayed_list_by_list(tmp_path, monkeypatch, block):
    monkeypatch.setattr(dirichlet_turns, "BLOCK", block)
    found = replayed(
        tmp_path,
        plain_capped(),
        plain_balanced(),
        plain_deck(),
        plain_deck(consistent=True),
        plain_turns(0.0),
        plain_turns(0.6),
        plain_shards(),
    )
    assert [(name, good, told) for name, good, told in found if not good] == []
    told = [told for *_, told in found]
    assert told[0] == "dirichlet: train equal" and told[1] == "dirichlet_equal: train, test, val equal"
    assert told[2] == (
        "class_deck: train, test equal; val skipped: drawn a second time there, so that it overlaps train"
    )
    assert told[-1] == "labels: train, test, class_table equal"


def swapped(lists):
    """The same lists with two ids of the first one exchanged."""
    first = lists[0]
    return [[first[1], first[0], *first[2:]], *lists[1:]]


@pytest.mark.parametrize("make", [plain_capped, plain_balanced, plain_deck, plain_shards, lambda: plain_turns(0.6)])
def test_one_exchange_of_two_ids_is_noticed(tmp_path, make):
    whole = make()
    for part in {"train", "test", "val"} & set(whole) - ({"val"} if whole.get("method_arg") == "pat" else set()):
        ((_, good, told),) = replayed(tmp_path, whole | {part: swapped(whole[part])})
        assert not good
        assert f"differs in {part}" in told


def test_other_draws_and_sources_are_failures(tmp_path):
    whole = plain_deck()
    more = whole["draws"] + [["rng.choice", [0]]]
    assert replayed(tmp_path, whole | {"draws": more})[0][1:] == (False, "class_deck: differs in integers")
    less = [draw for draw in whole["draws"] if draw[0] != "rng.choice"]
    assert "a draw of integers that the public code did not make" in replayed(tmp_path, whole | {"draws": less})[0][2]
    found = replayed(tmp_path, whole | {"source": "else"}, plain_turns(0.6) | {"seed": 7})
    assert [(good, told.split(": ")[0]) for _, good, told in found] == [
        (False, "source 'else'"),
        (False, "source 'feddc'"),
    ]
    assert all("not the draws or keys of a known case" in told for *_, told in found)


def test_refusals_must_be_shared(tmp_path):
    refused = {name: value for name, value in plain_deck().items() if name not in ("train", "test", "val", "draws")}
    found = replayed(tmp_path, refused | {"error": "slots", "clients": 2}, refused | {"error": "none"})
    assert found[0][1] and found[0][2].startswith("class_deck refuses: `per_client` must be in 1..5")
    assert found[1][1:] == (False, "class_deck takes what the public code refuses: none")


def test_the_program_prints_a_line_for_each_case(tmp_path, capsys):
    assert replayed(tmp_path, plain_shards())[0][1]
    assert replay_partitions.main([str(tmp_path / "cases.json")]) == 0
    assert capsys.readouterr().out == f"ok   {'shards':36} labels: train, test, class_table equal\n"
    changed = plain_shards()
    replayed(tmp_path, changed | {"class_table": [[0, 0]] * 10})
    assert replay_partitions.main([str(tmp_path / "cases.json")]) == 1
    assert "differs in labels" in capsys.readouterr().out
