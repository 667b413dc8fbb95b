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
from hetero_tf.models.state import concat_values

# Names of the budget groups 0..3 as levels.
LEVELS = "abcd"
TOLERANCE = 1e-9
# Factors of the clients of budget groups 0..3 for an exit in the public code's merge; 1 for exits not listed.
EXIT_FACTORS = {1: (4, 0, 0, 0), 2: (2, 2, 0, 0), 3: (2, 0, 2, 0), 4: (2, 2, 0, 0), 5: (4, 0, 0, 0)}


def replay(path):
    """Replay all clients and rounds of one file, and its predictions: (stage, gap, tolerance) of every stage."""
    file, gaps = File(path), Gaps()
    peers, sequential = file.meta["variant"] == "mkd", Replay(file, gaps, "sequential")
    stacked, state = None if peers else Replay(file, gaps, "stacked"), sequential.start()
    for number in range(len(file.cohorts)):
        client_values = sequential.compare_clients(state, number)
        after = sequential.expected(f"round{number}/global_after")
        if peers:
            sequential.compare_stored_peers(state, number)
            sequential.compare_sum(state, client_values, after)
        else:
            stacked.compare_complete_round(state, number, client_values, after)
        state = common.state_of(sequential.process, after, number + 1)
    sequential.compare_predictions(state)
    return gaps.check_stages(file, _stages(sequential), ("frozen",), TOLERANCE)


def _stages(replay):
    """Stages that a file must show: with peers only the merge, with exits also those that the public code weights."""
    variant, cohorts, stages = replay.meta["variant"], replay.file.cohorts, {"loss", "client", "frozen", "logits"}
    if any(replay.recorded_stages(number, client) for number, cohort in enumerate(cohorts) for client in cohort):
        stages |= {"stage"}
    if variant == "mkd":
        return stages | {"merge"} | ({"peer"} if any(map(replay.has_peer, cohorts[0])) else set())
    return stages | {"round"} | ({"weighed exits"} if variant == "heads" else set())


class Replay(common.Replay):
    """One file as a learning process."""

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
        # Without the patch, later tests would see the registered plug-in.
        with mock.patch.dict(registry._registered["stages"]):
            registry.register_plugin("given_stages")
            process = common.build_process(text, dataset, sizes, rates=meta["lr_per_round"])
        super().__init__(file, gaps, process, stems)

    def entry(self, number, client, stages=None):
        """A client's `Entry`; `stages`: number of its first stages to train, None for all."""
        prefix = f"round{number}/client{client}"
        order = self.file.arrays[f"{prefix}/step_stage"].tolist()
        steps = len(order) if stages is None else sum(stage < stages for stage in order)
        batches = [self.batches[number][client][batch] for batch in self.file.arrays[f"{prefix}/step_batch"][:steps]]
        return common.Entry(client, self.levels.index(self.level(client)), batches, order[:steps])

    def level(self, client):
        """Level of a client: its budget group."""
        return LEVELS[self.meta["budget_group"][client]]

    def has_peer(self, client):
        """True if a client also trains a peer: clients of the largest budget in files about peers."""
        return self.meta["variant"] == "mkd" and self.level(client) == LEVELS[3]

    def recorded_stages(self, number, client):
        """Numbers of the stages, from 1, after which the file records the values of a client."""
        prefix = f"{self.file.prefix}round{number}/client{client}/after_stage"
        return {
            int(name.removeprefix(prefix).partition("/")[0]) for name in self.file.arrays if name.startswith(prefix)
        }

    def untrained(self, client):
        """Paths of the values that a client trains in none of its stages, without running statistics."""
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
        """`{client: its weight in the merge}`."""
        return {client: self.process.partition.train.sizes[client] for client in clients}

    def exit_factors(self):
        """`{path: factor of each budget group}` of the exits before the last that the public code weights by group."""
        numbers = {
            path: int(match[1])
            for name, path in self.paths.items()
            if (match := re.match(r"(?:pre_)?linear(\d+)\.", name))
        }
        weighed = EXIT_FACTORS.keys() - {max(numbers.values(), default=0)}
        return {path: EXIT_FACTORS[number] for path, number in numbers.items() if number in weighed}

    def compare_clients(self, state, number):
        """Compare losses and values of every client and its peer, also after each stage: `{client: values}`."""
        returned = {}
        for client in self.file.cohorts[number]:
            if self.has_peer(client):
                returned[client] = self.compare_peers(state, number, client)
                continue
            values = self.compare_client(
                state, self.single_client_plan(number, client), 0, f"round{number}/client{client}"
            ).values
            self.gaps.setdefault("frozen", 0.0)
            for path in self.untrained(client):
                self.gaps.note("frozen", values[path], state.weights[path])
            self.compare_stages(state, number, client)
            returned[client] = values
        return returned

    def compare_stages(self, state, number, client):
        """Compare the values after each recorded stage; values that a stage does not train keep their bits."""
        before = {path: value.numpy() for path, value in state.weights.items()}
        recorded = self.recorded_stages(number, client)
        for stage in range(1, max(recorded, default=0) + 1):
            values = self.trainer(state, common.plan([self.entry(number, client, stage)]), 0).values
            if stage in recorded:
                changed = self.expected(f"round{number}/client{client}/after_stage{stage}")
                self.gaps.note("stage", values, changed, some=True)
                for path in values.keys() - changed.keys():
                    self.gaps.note("frozen", values[path], before[path])
            before = values

    def compare_peers(self, state, number, client):
        """Compare a client and its peer, which starts as in the public code, where all clients share one peer."""
        prefix = f"round{number}/client{client}"
        trained = self.trainer(
            self.with_peer(state, f"{prefix}/aux_before"), self.single_client_plan(number, client), 0
        )
        total = sum(self.file.result(f"{prefix}/{part}") for part in ("loss", "kl", "aux_loss", "aux_kl"))
        self.gaps.note("loss", trained.losses, total)
        self.compare_values(trained, prefix)
        (peer,) = trained.peers
        self.gaps.note("peer", peer, self.expected(f"{prefix}/aux_after"))
        return trained.values

    def single_client_plan(self, number, client):
        """Plan of a round with one client."""
        return common.plan([self.entry(number, client)])

    def with_peer(self, state, prefix):
        """State in which every client has the peer under a prefix."""
        values, clients = self.expected(prefix), len(self.process.partition.train)
        peers = {path: np.stack([value[None]] * clients) for path, value in values.items()}
        return dataclasses.replace(state, clients={**state.clients, "peers": peers})

    def compare_stored_peers(self, state, number):
        """Compare the peers that a round stores with the public code's peer after each client, from one start."""
        for client in filter(self.has_peer, self.file.cohorts[number]):
            prefix = f"round{number}/client{client}"
            before = self.with_peer(state, f"{prefix}/aux_before")
            after = common.run_planned_round(self.process, before, self.single_client_plan(number, client)).clients[
                "peers"
            ]
            self.gaps.note(
                "peer", {path: table[client, 0] for path, table in after.items()}, self.expected(f"{prefix}/aux_after")
            )

    def compare_complete_round(self, state, number, returned, after):
        """Compare a complete round; exits, which the public code weights without dividing, by a plain sum."""
        planned = common.plan([self.entry(number, client) for client in returned])
        merged = dict(common.run_planned_round(self.process, state, planned).weights)
        counted, groups, plain = self.counted(returned), self.meta["budget_group"], dict(after)
        for path, factors in self.exit_factors().items():
            weighed = sum(
                factors[groups[client]] * counted[client] * values[path] for client, values in returned.items()
            )
            self.gaps.note("weighed exits", weighed / sum(counted.values()), plain.pop(path))
            del merged[path]
        self.gaps.note("round", merged, plain)

    def compare_sum(self, state, returned, after):
        """Compare only the merge: the public code's clients train one after another with the same peer."""
        counted = self.counted(returned)
        total = concat_values(
            [sum(counted[client] * values[path] for client, values in returned.items()) for path in self.process.paths]
        )
        axes, counts = self.process.setup.layout.cut.distinct, tf.constant(list(counted.values()), tf.float64)
        masks = {axis: tf.ones([len(returned), axis.size], tf.float64) for axis in axes}
        self.gaps.note("merge", common.merge(self.process, state, total, masks, counts), after)

    def compare_predictions(self, state):
        """Compare logits of the complete network for each batch; without running statistics use the batch's moments."""
        for batch, (images, _) in enumerate(self.file.batches("eval")):
            logits = common.predict(self.process, state, images, training=not self.meta["track_running_stats"])
            self.note("logits", logits, f"eval/batch{batch}/logits")


def _layers(file, norm):
    """Return the lines of model.layers, and `{PyTorch module: Keras layer}`."""
    arrays = {name[len("global_init/") :]: file.arrays[name] for name in file.arrays if name.startswith("global_init/")}
    exits = {int(match[1]) for name in arrays if (match := re.fullmatch(r"pre_linear(\d+)\.bias", name))}
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


def _head(exit, unit, norm):
    """`{PyTorch module: Keras layer}` of a head; in models with several exits no ReLU follows its norm."""
    before, position = (f"pre_linear{exit}", 2) if exit else ("bn9", 3)
    return {before: f"{unit}_0_norm/{norm}", f"linear{exit}": f"{unit}_{position}_dense"}


def _recipe(file, levels, layers, engine):
    """Return the recipe. A level is a budget group; only the complete model and levels with peers need a true budget."""
    meta, peers = file.meta, file.meta["variant"] == "mkd"
    stages_by_level = {level: meta["stages_by_group"][str(LEVELS.index(level))] for level in levels}
    whole = [list(range(1, 1 + max(stages[-1][-1] for stages in stages_by_level.values())))]
    budgets = {level: 0.5 if stages != whole else 2 if peers else 1 for level, stages in stages_by_level.items()}
    stages = {"name": "given_stages", "units": json.dumps(stages_by_level), "peers": peers}
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
