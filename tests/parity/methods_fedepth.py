"""Replays vectors of FeDepth's public code: blockwise training with a link or exits, partial training, peers."""

import dataclasses
import json
import re
from unittest import mock

import methods_common as common
import numpy as np
import tensorflow as tf
from methods_files import File, Gaps

from hetero_tf.base import registry

# Names of the budget groups 0..3 as levels.
LEVELS = "abcd"
TOLERANCE = 1e-9
# What a client of budget group 0..3 counts more for an exit in the public code's merge; 1 for those not listed.
EXIT_FACTORS = {1: (4, 0, 0, 0), 2: (2, 2, 0, 0), 3: (2, 0, 2, 0), 4: (2, 2, 0, 0), 5: (4, 0, 0, 0)}


def replay(path):
    """All clients and rounds of one file, and its predictions: (stage, gap, tolerance) one after the other."""
    file, gaps = File(path), Gaps()
    peers, sequential = file.meta["variant"] == "mkd", Replay(file, gaps, "sequential")
    stacked, state = None if peers else Replay(file, gaps, "stacked"), sequential.start()
    for number in range(len(file.cohorts)):
        found = sequential.compare_clients(state, number)
        after = sequential.expected(f"round{number}/global_after")
        if peers:
            sequential.compare_kept_peers(state, number)
            sequential.compare_sum(state, found, after)
        else:
            stacked.compare_whole(state, number, found, after)
        state = common.state_of(sequential.process, after, number + 1)
    sequential.compare_predictions(state)
    return gaps.told(file, _stages(sequential), ("frozen",), TOLERANCE)


def _stages(replay):
    """The stages that a file must show: with peers only the merge, with exits those that the public code weighs."""
    variant, cohorts, found = replay.meta["variant"], replay.file.cohorts, {"loss", "client", "frozen", "logits"}
    if any(replay.kept_stages(number, client) for number, own in enumerate(cohorts) for client in own):
        found |= {"stage"}
    if variant == "mkd":
        return found | {"merge"} | ({"peer"} if any(map(replay.has_peer, cohorts[0])) else set())
    return found | {"round"} | ({"weighed exits"} if variant == "heads" else set())


class Replay(common.Replay):
    """One file set up as a learning process."""

    def __init__(self, file, gaps, engine):
        meta, examples = file.meta, common.Examples()
        self.levels = [LEVELS[group] for group in sorted({*meta["budget_group"]}, reverse=True)]
        layers, stems = _layers(file, "bn" if meta["track_running_stats"] else "sbn")
        self.batches = examples.rounds(file)
        sizes = [
            size * (group + 1 if meta["resource_weight"] else 1)
            for size, group in zip(meta["client_train_sizes"], meta["budget_group"], strict=True)
        ]
        text, dataset = _recipe(file, self.levels, layers, engine), examples.dataset(meta["num_classes"], file.name)
        # What tests register would stand in the tables of all tests behind them.
        with mock.patch.dict(registry._plugged["stages"]):
            registry.register_plugin("given_stages")
            process = common.build_process(text, dataset, sizes, rates=meta["lr_per_round"])
        super().__init__(file, gaps, process, stems)

    def entry(self, number, client, stages=None):
        """A client's `Entry`; `stages`: of so many stages only."""
        place = f"round{number}/client{client}"
        order = self.file.arrays[f"{place}/step_stage"].tolist()
        steps = len(order) if stages is None else sum(stage < stages for stage in order)
        batches = [self.batches[number][client][batch] for batch in self.file.arrays[f"{place}/step_batch"][:steps]]
        return common.Entry(client, self.levels.index(self.level(client)), batches, order[:steps])

    def level(self, client):
        """The level of a client: its budget group."""
        return LEVELS[self.meta["budget_group"][client]]

    def has_peer(self, client):
        """Whether a client trains a peer too: those of the largest budget, where the file is about peers."""
        return self.meta["variant"] == "mkd" and self.level(client) == LEVELS[3]

    def kept_stages(self, number, client):
        """How many stages the file tells apart of a client: of the first with five or more all but the last."""
        meta, cohort = self.meta, self.file.cohorts[number]
        counts = {one: len(meta["stages_by_group"][str(meta["budget_group"][one])]) for one in cohort}
        least = meta.get("stages_told_from", 5)
        first = next((one for one, count in counts.items() if count >= least), None)
        return counts[client] - 1 if client == first else 0

    def untrained(self, client):
        """Paths of the values that a client trains in none of its stages; running statistics are none of them."""
        group, exits = str(self.meta["budget_group"][client]), self.meta["variant"] == "heads"
        stages = self.meta["stages_by_group"][group]
        moving = {f"layer{unit}" for units in stages for unit in units} | {"first", "first_norm", "bn9", "linear"}
        if exits:
            moving |= {f"{head}{units[-1]}" for units in stages for head in ("linear", "pre_linear")}
        return {
            path
            for name, path in self.paths.items()
            if name.partition(".")[0] not in moving and not path.rpartition("/")[2].startswith("moving_")
        }

    def counted(self, clients):
        """`{client: what it counts in the merge}`."""
        return {client: self.process.partition.train.sizes[client] for client in clients}

    def exit_factors(self):
        """`{path: factor of each budget group}` of the exits before the last that the public code weighs by groups."""
        numbers = {
            path: int(found[1])
            for name, path in self.paths.items()
            if (found := re.match(r"(?:pre_)?linear(\d+)\.", name))
        }
        weighed = EXIT_FACTORS.keys() - {max(numbers.values(), default=0)}
        return {path: EXIT_FACTORS[number] for path, number in numbers.items() if number in weighed}

    def compare_clients(self, state, number):
        """Losses and values of every client, also after each of its stages, and its peer's: `{client: values}`."""
        returned = {}
        for client in self.file.cohorts[number]:
            if self.has_peer(client):
                returned[client] = self.compare_peers(state, number, client)
                continue
            found = self.compare_client(
                state, self.plan_alone(number, client), 0, f"round{number}/client{client}"
            ).values
            self.gaps.setdefault("frozen", 0.0)
            for path in self.untrained(client):
                self.gaps.note("frozen", found[path], state.weights[path])
            self.compare_stages(state, number, client)
            returned[client] = found
        return returned

    def compare_stages(self, state, number, client):
        """What each stage but the last leaves, where the file has it; what it does not train keeps its bits."""
        before = {path: value.numpy() for path, value in state.weights.items()}
        for stage in range(1, self.kept_stages(number, client) + 1):
            found = self.trainer(state, common.plan([self.entry(number, client, stage)]), 0).values
            changed = self.expected(f"round{number}/client{client}/after_stage{stage}")
            self.gaps.note("stage", found, changed, some=True)
            for path in found.keys() - changed.keys():
                self.gaps.note("frozen", found[path], before[path])
            before = found

    def compare_peers(self, state, number, client):
        """A client and its peer, which starts as the public code's: one peer serves all clients there."""
        place = f"round{number}/client{client}"
        found = self.trainer(self.with_peer(state, f"{place}/aux_before"), self.plan_alone(number, client), 0)
        total = sum(self.file.result(f"{place}/{part}") for part in ("loss", "kl", "aux_loss", "aux_kl"))
        self.gaps.note("loss", found.losses, total)
        self.compare_values(found, place)
        (peer,) = found.peers
        self.gaps.note("peer", peer, self.expected(f"{place}/aux_after"))
        return found.values

    def plan_alone(self, number, client):
        """The plan of a round of one client."""
        return common.plan([self.entry(number, client)])

    def with_peer(self, state, place):
        """The state in which every client has the peer of a place."""
        values, clients = self.expected(place), len(self.process.partition.train)
        peers = {path: np.stack([value[None]] * clients) for path, value in values.items()}
        return dataclasses.replace(state, clients={**state.clients, "peers": peers})

    def compare_kept_peers(self, state, number):
        """What a round leaves of the clients' peers: what the public code's peer becomes beside each, from one start."""
        for client in filter(self.has_peer, self.file.cohorts[number]):
            place = f"round{number}/client{client}"
            before = self.with_peer(state, f"{place}/aux_before")
            after = common.merged(self.process, before, self.plan_alone(number, client)).clients["peers"]
            self.gaps.note(
                "peer", {path: table[client, 0] for path, table in after.items()}, self.expected(f"{place}/aux_after")
            )

    def compare_whole(self, state, number, returned, after):
        """The whole round; values of exits, which the public code weighs by groups without dividing, by a plain sum."""
        planned = common.plan([self.entry(number, client) for client in returned])
        found = dict(common.merged(self.process, state, planned).weights)
        counted, groups, plain = self.counted(returned), self.meta["budget_group"], dict(after)
        for path, own in self.exit_factors().items():
            weighed = sum(own[groups[client]] * counted[client] * values[path] for client, values in returned.items())
            self.gaps.note("weighed exits", weighed / sum(counted.values()), plain.pop(path))
            del found[path]
        self.gaps.note("round", found, plain)

    def compare_sum(self, state, returned, after):
        """The merge alone: the public code's clients train one after another with the same peer."""
        counted = self.counted(returned)
        total = [
            tf.constant(sum(counted[client] * values[path] for client, values in returned.items()))
            for path in self.process.paths
        ]
        axes, counts = self.process.parts.placement.cut.distinct, tf.constant(list(counted.values()), tf.float64)
        masks = {axis: tf.ones([len(returned), axis.size], tf.float64) for axis in axes}
        self.gaps.note("merge", common.merge(self.process, state, total, masks, counts), after)

    def compare_predictions(self, state):
        """Logits of the whole net, batch by batch: without running statistics those of the batch count."""
        for batch, (images, _) in enumerate(self.file.batches("eval")):
            found = common.predict(self.process, state, images, training=not self.meta["track_running_stats"])
            self.note("logits", found, f"eval/batch{batch}/logits")


def _layers(file, norm):
    """The lines of model.layers, and `{PyTorch module: Keras layer}`."""
    arrays = {name[len("global_init/") :]: file.arrays[name] for name in file.arrays if name.startswith("global_init/")}
    exits = {int(found[1]) for name in arrays if (found := re.fullmatch(r"pre_linear(\d+)\.bias", name))}
    units = sum(name.endswith(".0.conv1.weight") for name in arrays)
    lines = [f"[PaddedConv2D: {{filters: {len(arrays['first.weight'])}, use_bias: false}}, Norm: {{kind: {norm}}}]"]
    stems = {"first": "0_0_padded_conv2d", "first_norm": f"0_1_norm/{norm}"}
    for unit in range(1, units + 1):
        stem, layer = f"layer{unit}.0", f"{len(lines)}_0_pre_activation_block"
        stems |= {f"{stem}.{part}": f"{layer}/{part}" for part in ("conv1", "conv2", "shortcut")}
        stems |= {f"{stem}.bn{part}": f"{layer}/norm{part}/{norm}" for part in (1, 2)}
        filters, stride = len(arrays[f"{stem}.conv1.weight"]), 2 if f"{stem}.shortcut.weight" in arrays else 1
        options = f"filters: {filters}, stride: {stride}, norm: {norm}, scaler: false, residual: activated"
        lines.append(f"PreActivationBlock: {{{options}}}")
        if unit in exits or unit == units:
            stems |= _head(f"{unit}" if exits else "", len(lines), norm)
            pooled = f"Norm: {{kind: {norm}}}, {'' if exits else 'ReLU, '}GlobalAveragePooling2D"
            lines.append(f"{'' if unit == units else 'Exit: '}[{pooled}, Dense: {{units: !classes}}]")
    return lines, stems


def _head(exit, place, norm):
    """`{PyTorch module: Keras layer}` of a head, whose norm has no ReLU behind it where it is one of several exits."""
    before, position = (f"pre_linear{exit}", 2) if exit else ("bn9", 3)
    return {before: f"{place}_0_norm/{norm}", f"linear{exit}": f"{place}_{position}_dense"}


def _recipe(file, levels, layers, engine):
    """The recipe; a level is a budget group, and only the whole one and those with peers need their true budget."""
    meta, peers = file.meta, file.meta["variant"] == "mkd"
    given = {level: meta["stages_by_group"][str(LEVELS.index(level))] for level in levels}
    whole = [list(range(1, 1 + max(stages[-1][-1] for stages in given.values())))]
    budgets = {level: 0.5 if stages != whole else 2 if peers else 1 for level, stages in given.items()}
    stages = {"name": "given_stages", "given": json.dumps(given), "peers": peers}
    return common.recipe_text(
        file,
        len(meta["client_train_sizes"]),
        layers,
        dict.fromkeys(levels, 1.0),
        levels={"budgets": budgets},
        round={"weighting": "samples", "untrained": "counted", "label_rows": "all"},
        client={
            "stages": stages | {"exit": "branch" if meta["variant"] == "heads" else "link"},
            "coupling": {"name": "mutual", "ramp": None} if peers else "sum",
        },
        engine=engine,
    )
