"""Replays vectors of SplitMix's public code: ensembles of narrow networks, some of which each client trains."""

import dataclasses
import json

import numpy as np
import tensorflow as tf
from methods_common import Entry, Examples, Trainer, build_process, merged, plan, predict, recipe_head, state_of
from methods_files import File, Gaps, variable_paths

LETTERS = "abcdefghijklmnopqrstuvwxyz"
TOLERANCE = 1e-9


def replay(path):
    """All clients and rounds of one file, and its predictions: (stage, gap, tolerance) one after the other."""
    file, gaps = File(path), Gaps()
    sequential, stacked = (Replay(file, engine) for engine in ("sequential", "stacked"))
    state = sequential.start()
    for number in range(len(file.meta["users_per_round"])):
        _compare_clients(sequential, state, number, gaps)
        found = _compare_round(stacked, state, number, gaps)
        after = state_of(sequential.process, sequential.weights(f"f64/round{number}/global_after"), number + 1)
        state = dataclasses.replace(after, clients=found.clients)
    _compare_predictions(sequential, state, gaps)
    return gaps.told(file, _stages(sequential), ("kept",), TOLERANCE)


def _stages(replay):
    """The stages that a file must show; networks that nobody trains in a round are kept."""
    meta = replay.file.meta
    found = {"loss", "client", "round", "logits"} | ({"personal"} if meta["local_bn"] else {"accuracy", "sorted"})
    trained = [
        {entry.member for client in cohort for entry in replay.entries(number, client)}
        for number, cohort in enumerate(meta["users_per_round"])
    ]
    return found | ({"kept"} if min(map(len, trained)) < replay.members else set())


class Replay:
    """One file set up as a learning process; a level is a number of networks that a client trains."""

    def __init__(self, file, engine):
        self.file, meta = file, file.meta
        self.training = not meta["track"]
        members = {int(1 / float(part) / meta["atom"]) for part in meta["slim_ratios"].split("-")}
        self.levels = dict(zip(LETTERS, sorted(members, reverse=True)))
        layers, stems = {"resnet": _resnet, "digit": _digit}[meta["net"]](file)
        examples, clients = Examples(), {client for cohort in meta["users_per_round"] for client in cohort}
        self.batches = {client: examples.batches(file, f"client{client}") for client in sorted(clients)}
        personal = [layer.split("_")[0] for stem, layer in stems.items() if "bn" in stem] if meta["local_bn"] else []
        self.process = build_process(
            _recipe(meta, self.levels, layers, personal, engine),
            examples.dataset(meta["classes"], file.name),
            meta["client_sizes"],
            rates=meta["lr_per_round"].__getitem__,
        )
        self.shapes = {path: tuple(value.shape[1:]) for path, value in self.process.initialize().weights.items()}
        self.paths = variable_paths(self.process.paths, stems)
        self.trainer = Trainer(self.process)

    @property
    def members(self):
        """How many networks there are."""
        return max(self.levels.values())

    def member(self, place, number):
        """`{path: value}` of one network under a place of the file."""
        side = self.file.meta["image"][1] // 4
        paths = {f"{number}.{name}": path for name, path in self.paths.items()}
        return self.file.weights(place, paths, self.shapes, {f"{number}.fc1.weight": (side, side)})

    def weights(self, place):
        """`{path: [networks, ...]}` under a place of the file."""
        found = [self.member(place, number) for number in range(self.members)]
        return {path: np.stack([one[path] for one in found]) for path in found[0]}

    def start(self):
        """The `State` before the first round."""
        return state_of(self.process, self.weights("global_init"))

    def entries(self, number, client):
        """An `Entry` for each network that a client trains."""
        place = f"round{number}/client{client}"
        bases = self.file.arrays[f"{place}/bases"].tolist()
        batches = [self.batches[client][batch] for batch in self.file.arrays[f"{place}/step_batch"]]
        level = list(self.levels.values()).index(len(bases))
        return [Entry(client, level, batches, member=member) for member in bases]


def _resnet(file):
    """The lines of model.layers, and `{PyTorch module: Keras layer}`."""
    meta, norm, scaler = file.meta, *_settings(file.meta)
    widths = meta["base_hidden"]
    lines = [f"[PaddedConv2D: {{filters: {widths[0]}, use_bias: false}}, Scaler: {{enabled: {scaler}}}]"]
    stems = {"conv1": "0_0_padded_conv2d"}
    for stage, (width, blocks) in enumerate(zip(widths, meta["num_blocks"], strict=True), 1):
        for block in range(blocks):
            layer, stem = f"{len(lines)}_0_pre_activation_block", f"layer{stage}.{block}"
            stems |= {f"{stem}.{part}": f"{layer}/{part}" for part in ("conv1", "conv2", "shortcut")}
            stems |= {f"{stem}.n{part}": f"{layer}/norm{part}/{norm}" for part in (1, 2)}
            stride = 2 if stage > 1 and block == 0 else 1
            options = f"filters: {width}, stride: {stride}, norm: {norm}, scaler: {scaler}, scaler_at: products"
            lines.append(f"PreActivationBlock: {{{options}}}")
    stems |= {"n4": f"{len(lines)}_0_norm/{norm}", "linear": f"{len(lines)}_3_dense"}
    return [*lines, f"[Norm: {{kind: {norm}}}, ReLU, GlobalAveragePooling2D, Dense: {{units: !classes}}]"], stems


def _digit(file):
    """The same for the digit net; each norm is a unit, for those that stay with the clients."""
    meta, norm, scaler = file.meta, *_settings(file.meta)
    lines, stems = [], {}

    def add(line, stem=None, inside=""):
        if stem is not None:
            stems[stem] = f"{len(lines)}_0_{inside}"
        lines.append(line)

    for part, width in enumerate(meta["base_conv"], 1):
        side = file.arrays[f"global_init/0.conv{part}.weight"].shape[-1]
        add(f"PaddedConv2D: {{filters: {width}, kernel_size: {side}}}", f"conv{part}", "padded_conv2d")
        add(f"Scaler: {{enabled: {scaler}}}")
        add(f"Norm: {{kind: {norm}}}", f"bn{part}", f"norm/{norm}")
        add("ReLU")
        if part < 3:
            add("MaxPooling2D")
    add("Flatten")
    for part, width in enumerate(meta["base_fc"], 1):
        add(f"Dense: {{units: {width}}}", f"fc{part}", "dense")
        add(f"Scaler: {{enabled: {scaler}}}")
        add(f"Norm: {{kind: {norm}}}", f"bn{part + 3}", f"norm/{norm}")
        add("ReLU")
    add("Dense: {units: !classes}", "fc3", "dense")
    return lines, stems


def _settings(meta):
    return "bn" if meta["track"] else "sbn", str(bool(meta["rescale_layer"])).lower()


def _recipe(meta, levels, layers, personal, engine):
    return f"""
{recipe_head(len(meta["client_sizes"]), layers)}
levels:
  widths: {json.dumps(dict.fromkeys(levels, meta["atom"]))}
  mix: {json.dumps(dict.fromkeys(levels, 1))}
  members: {json.dumps(levels)}
round:
  clients: {max(map(len, meta["users_per_round"]))}
  weighting: samples
  label_rows: all
  personal: {json.dumps(personal)}
client: {{batch_size: 10, loss: {"batch_masked_cross_entropy" if meta["mask_loss"] else "cross_entropy"}}}
optimizer: {{learning_rate: 0.1, momentum: {meta["momentum"]}, weight_decay: {meta["weight_decay"]}, clip_norm: null}}
rounds: 1
engine: {engine}
precision: float64
"""


def _note(gaps, stage, found, expected):
    """Notes differences, those of values above 1 as shares of them: running variances can be large."""
    for path, value in expected.items():
        scale = np.maximum(1, np.abs(value))
        gaps.note(stage, found[path] / scale, value / scale)


def _compare_clients(replay, state, number, gaps):
    """Losses and values of every network of every client."""
    for client in replay.file.meta["users_per_round"][number]:
        losses = replay.file.result(f"round{number}/client{client}/loss")
        for place, entry in enumerate(replay.entries(number, client)):
            found = replay.trainer(state, plan([entry]), 0)
            gaps.note("loss", found.losses, losses[:, place])
            values = {path: value[0] for path, value in found.values.items()}
            _note(gaps, "client", values, replay.member(f"f64/round{number}/client{client}/after", entry.member))


def _compare_round(replay, state, number, gaps):
    """The whole round; networks that nobody trains keep their bits. Gives the `State` after it."""
    entries = [
        entry for client in replay.file.meta["users_per_round"][number] for entry in replay.entries(number, client)
    ]
    found = merged(replay.process, state, plan(entries))
    _note(gaps, "round", found.weights, replay.weights(f"f64/round{number}/global_after"))
    for path, value in found.weights.items():
        for member in set(range(replay.members)) - {entry.member for entry in entries}:
            gaps.note("kept", value[member], state.weights[path][member])
    return found


def _compare_predictions(replay, state, gaps):
    """Mean logits of the first networks, also in the order of their accuracy; of each client that keeps its norms."""
    if replay.file.meta["local_bn"]:
        for client in range(len(replay.file.meta["client_sizes"])):
            own = {path: tf.stack([table[client]] * len(table)) for path, table in state.clients["personal"].items()}
            _compare_own(replay, own, client, gaps)
            given = dataclasses.replace(state, clients={**state.clients, "personal": own})
            _compare_logits(replay, given, f"eval/client{client}", "logits", gaps)
        return
    _compare_logits(replay, state, "eval", "logits", gaps)
    found = [_accuracy(replay, _chosen(state, [member] * replay.members)) for member in range(replay.members)]
    gaps.note("accuracy", found, replay.file.result("sort/base_acc"))
    _compare_logits(replay, _chosen(state, np.argsort(found)[::-1]), "sort", "sorted", gaps)


def _compare_logits(replay, state, place, stage, gaps):
    levels, batches = replay.levels.items(), replay.file.steps("eval")
    if place == "sort":
        # All networks together predict the same in any order.
        levels, batches = [(level, members) for level, members in levels if members < replay.members], 1
    for level, members in levels:
        for batch in range(batches):
            found = predict(replay.process, state, replay.file.input(f"eval/batch{batch}/img"), level, replay.training)
            expected = replay.file.result(f"{place}/members{members}/batch{batch}/logits")
            _note(gaps, stage, {"": found}, {"": expected})


def _compare_own(replay, own, client, gaps):
    """The norms that a client keeps."""
    found = [replay.member(f"f64/local_bn/client{client}", number) for number in range(replay.members)]
    for number, expected in enumerate(found):
        _note(gaps, "personal", {path: table[client][number] for path, table in own.items()}, expected)


def _chosen(state, order):
    """The `State` with the networks in another order."""
    return dataclasses.replace(state, weights={path: tf.gather(value, order) for path, value in state.weights.items()})


def _accuracy(replay, state):
    """Share of the evaluation's examples that all networks together get right."""
    hits = []
    for batch in range(replay.file.steps("eval")):
        images, labels = (replay.file.input(f"eval/batch{batch}/{name}") for name in ("img", "label"))
        logits = predict(replay.process, state, images, training=replay.training)
        hits.extend(np.argmax(logits, -1) == labels)
    return float(np.mean(hits))
