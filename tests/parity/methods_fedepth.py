"""Replays vectors of FeDepth's public code: blockwise training with a link or exits, partial training, peers."""

import dataclasses
import json
import re
from unittest import mock

import numpy as np
import tensorflow as tf
from methods_common import Entry, Examples, Trainer, build_process, merged, plan, predict, recipe_head, state_of
from methods_files import File, Gaps, variable_paths

from hetero_tf.base import registry
from hetero_tf.rounds.coverage import coverage
from hetero_tf.rounds.merge import merge_updates
from hetero_tf.rounds.stack import Stack
from hetero_tf.rounds.state import in_order

# Names of the budget groups 0..3 as levels.
LEVELS = "abcd"
TOLERANCE = 1e-9
# What a client of budget group 0..3 counts more for an exit in the public code's merge; 1 for those not listed.
EXIT_FACTORS = {1: (4, 0, 0, 0), 2: (2, 2, 0, 0), 3: (2, 0, 2, 0), 4: (2, 2, 0, 0), 5: (4, 0, 0, 0)}


def replay(path):
    """All clients and rounds of one file, and its predictions: (stage, gap, tolerance) one after the other."""
    file, gaps = File(path), Gaps()
    peers, sequential = file.meta["variant"] == "mkd", Replay(file, "sequential")
    stacked, state = (
        None if peers else Replay(file, "stacked"),
        state_of(sequential.process, sequential.weights("global_init")),
    )
    for number in range(len(file.meta["users_per_round"])):
        found = _compare_clients(sequential, state, number, gaps)
        after = sequential.weights(f"f64/round{number}/global_after")
        if peers:
            _compare_sum(sequential, state, found, after, gaps)
        else:
            _compare_round(stacked, state, number, found, after, gaps)
        state = state_of(sequential.process, after, number + 1)
    _compare_predictions(sequential, state, gaps)
    return gaps.told(file, _stages(sequential), ("frozen",), TOLERANCE)


def _stages(replay):
    """The stages that a file must show: with peers only the merge, with exits those that the public code weighs."""
    meta, found = replay.file.meta, {"loss", "client", "frozen", "logits"}
    if any(replay.kept_stages(number, client) for number, own in enumerate(meta["users_per_round"]) for client in own):
        found |= {"stage"}
    if meta["variant"] == "mkd":
        return found | {"merge"} | ({"peer"} if any(map(replay.has_peer, meta["users_per_round"][0])) else set())
    return found | {"round"} | ({"weighed exits"} if meta["variant"] == "heads" else set())


class Replay:
    """One file set up as a learning process."""

    def __init__(self, file, engine):
        self.file, meta = file, file.meta
        self.levels = [LEVELS[group] for group in sorted({*meta["budget_group"]}, reverse=True)]
        layers, stems = _layers(file, "bn" if meta["track_running_stats"] else "sbn")
        examples = Examples()
        self.batches = {
            f"round{number}/client{client}": examples.batches(file, f"round{number}/client{client}")
            for number, cohort in enumerate(meta["users_per_round"])
            for client in cohort
        }
        sizes = [
            size * (group + 1 if meta["resource_weight"] else 1)
            for size, group in zip(meta["client_train_sizes"], meta["budget_group"], strict=True)
        ]
        text, dataset = _recipe(meta, self.levels, layers, engine), examples.dataset(meta["num_classes"], file.name)
        # What tests register would stand in the tables of all tests behind them.
        with mock.patch.dict(registry._plugged["stages"]):
            registry.register_plugin("given_stages")
            self.process = build_process(text, dataset, sizes, rates=meta["lr_per_round"].__getitem__)
        self.shapes = {path: tuple(value.shape) for path, value in self.process.initialize().weights.items()}
        self.paths = variable_paths(self.process.paths, stems)
        self.trainer = Trainer(self.process)

    def weights(self, place):
        """`{path: value}` under a place of the file."""
        return self.file.weights(place, self.paths, self.shapes)

    def entry(self, number, client, stages=None):
        """A client's `Entry`; `stages`: of so many stages only."""
        place = f"round{number}/client{client}"
        order = self.file.arrays[f"{place}/step_stage"].tolist()
        steps = len(order) if stages is None else sum(stage < stages for stage in order)
        batches = [self.batches[place][batch] for batch in self.file.arrays[f"{place}/step_batch"][:steps]]
        return Entry(client, self.levels.index(self.level(client)), batches, order[:steps])

    def level(self, client):
        """The level of a client: its budget group."""
        return LEVELS[self.file.meta["budget_group"][client]]

    def has_peer(self, client):
        """Whether a client trains a peer too: those of the largest budget, where the file is about peers."""
        return self.file.meta["variant"] == "mkd" and self.level(client) == LEVELS[3]

    def kept_stages(self, number, client):
        """How many stages the file tells apart of a client: of the first with five or more all but the last."""
        meta = self.file.meta
        counts = {
            one: len(meta["stages_by_group"][str(meta["budget_group"][one])]) for one in meta["users_per_round"][number]
        }
        least = meta.get("stages_told_from", 5)
        first = next((one for one, count in counts.items() if count >= least), None)
        return counts[client] - 1 if client == first else 0

    def untrained(self, client):
        """Paths of the values that a client trains in none of its stages; running statistics are none of them."""
        group, exits = str(self.file.meta["budget_group"][client]), self.file.meta["variant"] == "heads"
        stages = self.file.meta["stages_by_group"][group]
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

    def trained_with(self, peer):
        """A `Trainer` whose clients with peers give them these values `{path: value}` to start from."""
        parts = self.process.parts
        stacks = tuple(
            _PeerStack(
                **{field.name: getattr(stack, field.name) for field in dataclasses.fields(stack)},
                peer=tuple(tf.constant(peer[path]) for path in self.process.paths),
            )
            if stack.copies > 1
            else stack
            for stack in parts.engine.stacks
        )
        parts = dataclasses.replace(parts, engine=dataclasses.replace(parts.engine, stacks=stacks))
        process = dataclasses.replace(self.process, parts=parts)
        object.__setattr__(process, "learning_rate", self.process.learning_rate)
        return Trainer(process)


@dataclasses.dataclass(frozen=True)
class _PeerStack(Stack):
    """A stack whose clients have one peer that starts elsewhere."""

    peer: tuple

    def to_rows(self, clients):
        both = self.learned // 2
        rows = [[*own[:both], *self.peer[:both], *own[both:], *self.peer[both:]] for own in clients]
        return tf.stack([tf.concat([tf.reshape(value, [-1]) for value in row], 0) for row in rows])

    def peer_of(self, row):
        """The peer's values in a client's row, each flat."""
        parts, both = np.split(row, np.cumsum(self.sizes)[:-1]), self.learned // 2
        running = (len(parts) - self.learned) // 2
        return [*parts[both : self.learned], *parts[self.learned + running :]]


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


def _recipe(meta, levels, layers, engine):
    """The recipe; a level is a budget group, and only the whole one and those with peers need their true budget."""
    peers = meta["variant"] == "mkd"
    given = {level: meta["stages_by_group"][str(LEVELS.index(level))] for level in levels}
    whole = [list(range(1, 1 + max(stages[-1][-1] for stages in given.values())))]
    budgets = {level: 0.5 if stages != whole else 2 if peers else 1 for level, stages in given.items()}
    return f"""
{recipe_head(len(meta["client_train_sizes"]), layers)}
levels:
  widths: {json.dumps(dict.fromkeys(levels, 1.0))}
  mix: {json.dumps(dict.fromkeys(levels, 1))}
  budgets: {json.dumps(budgets)}
round:
  {{clients: {max(map(len, meta["users_per_round"]))}, weighting: samples, untrained: counted, label_rows: all}}
client:
  batch_size: 10
  loss: cross_entropy
  stages: {{name: given_stages, given: '{json.dumps(given)}', peers: {str(peers).lower()},
           exit: {"branch" if meta["variant"] == "heads" else "link"}}}
  coupling: {"{name: mutual, ramp: null}" if peers else "sum"}
optimizer: {{learning_rate: 0.1, momentum: {meta["momentum"]}, weight_decay: {meta["weight_decay"]}, clip_norm: null}}
rounds: 1
engine: {engine}
precision: float64
"""


def _compare_clients(replay, state, number, gaps):
    """Losses and values of every client, also after each of its stages, and its peer's: `{client: {path: value}}`."""
    returned = {}
    for client in replay.file.meta["users_per_round"][number]:
        place = f"round{number}/client{client}"
        if replay.has_peer(client):
            returned[client] = _compare_peers(replay, state, number, client, gaps)
            continue
        found = replay.trainer(state, plan([replay.entry(number, client)]), 0)
        gaps.note("loss", found.losses, replay.file.result(f"{place}/loss"))
        gaps.note("client", found.values, replay.weights(f"f64/{place}/after"))
        frozen = {path: state.weights[path] for path in replay.untrained(client)}
        for path, value in frozen.items():
            gaps.note("frozen", found.values[path], value)
        gaps.setdefault("frozen", 0.0)
        _compare_stages(replay, state, number, client, gaps)
        returned[client] = found.values
    return returned


def _compare_stages(replay, state, number, client, gaps):
    """What each stage but the last leaves, where the file has it; what it does not train keeps its bits."""
    before = {path: value.numpy() for path, value in state.weights.items()}
    for stage in range(1, replay.kept_stages(number, client) + 1):
        found = replay.trainer(state, plan([replay.entry(number, client, stage)]), 0).values
        changed = replay.weights(f"f64/round{number}/client{client}/after_stage{stage}")
        gaps.note("stage", found, changed, some=True)
        for path in found.keys() - changed.keys():
            gaps.note("frozen", found[path], before[path])
        before = found


def _compare_peers(replay, state, number, client, gaps):
    """A client with a peer that starts where the public code's does: it outlives the client there."""
    file, place = replay.file, f"round{number}/client{client}"
    trainer = replay.trained_with(replay.weights(f"f64/{place}/aux_before"))
    found = trainer(state, plan([replay.entry(number, client)]), 0)
    total = sum(file.result(f"{place}/{part}") for part in ("loss", "kl", "aux_loss", "aux_kl"))
    gaps.note("loss", found.losses, total)
    gaps.note("client", found.values, replay.weights(f"f64/{place}/after"))
    submodel = replay.process.family.submodel_of[replay.levels.index(replay.level(client))]
    stack = trainer.process.parts.engine.stacks[submodel]
    peer = {
        path: value.reshape(replay.shapes[path])
        for path, value in zip(replay.process.paths, stack.peer_of(found.row), strict=True)
    }
    gaps.note("peer", peer, replay.weights(f"f64/{place}/aux_after"))
    return found.values


def _compare_round(replay, state, number, returned, after, gaps):
    """The whole round; values of exits, which the public code weighs by groups without dividing, by a plain sum."""
    found = merged(replay.process, state, plan([replay.entry(number, client) for client in returned])).weights
    factors = replay.exit_factors()
    plain = {path: value for path, value in after.items() if path not in factors}
    gaps.note("round", {path: value for path, value in found.items() if path not in factors}, plain)
    counted = replay.counted(returned)
    for path, own in factors.items():
        groups = replay.file.meta["budget_group"]
        weighed = sum(own[groups[client]] * counted[client] * values[path] for client, values in returned.items())
        gaps.note("weighed exits", weighed / sum(counted.values()), after[path])


def _compare_sum(replay, state, returned, after, gaps):
    """The merge alone: in a round each client's peers start from the global values."""
    parts, counted = replay.process.parts, replay.counted(returned)
    total = [
        tf.constant(sum(counted[client] * values[path] for client, values in returned.items()))
        for path in replay.process.paths
    ]
    counts = tf.constant([counted[client] for client in returned], tf.float64)
    masks = {axis: tf.ones([len(returned), axis.size], tf.float64) for axis in parts.placement.cut.distinct}
    covered = coverage(parts.placement.cut, masks, [counts] * len(total))
    found, _ = merge_updates(parts, in_order(state), total, covered)
    gaps.note("merge", dict(zip(replay.process.paths, found)), after)


def _compare_predictions(replay, state, gaps):
    """Logits of the whole net, batch by batch: without running statistics those of the batch count."""
    for batch in range(replay.file.steps("eval")):
        images = replay.file.input(f"eval/batch{batch}/img")
        found = predict(replay.process, state, images, training=not replay.file.meta["track_running_stats"])
        gaps.note("logits", found, replay.file.result(f"eval/batch{batch}/logits"))
