"""LG-FedAvg: vectors of its authors' code, replayed; `replay(path)` as the other methods have it.

The driver's own bookkeeping (nets that were best on their client's test examples) has no counterpart in production: it
is done here, with nets that production trained and with accuracies that production measured.
"""

import dataclasses

import numpy as np
import tensorflow as tf
from methods_common import Entry, Examples, Trainer, build_process, merged, plan, state_of
from methods_files import File, Gaps, variable_paths

from hetero_tf.data.dataset import Split
from hetero_tf.evaluation.fairness import accuracies
from hetero_tf.methods.losses import softmax_twice
from hetero_tf.methods.losses.cross_entropy import softmax_cross_entropy
from hetero_tf.models.variables import values
from hetero_tf.partitions.shares import Shares

LAYERS = {
    "mlp": """
    - [Flatten, Dense: {{units: {0}}}, ReLU]
    - [Dense: {{units: {1}}}, ReLU]
    - [Dense: {{units: {1}}}, ReLU]
    - [Dense: {{units: {2}}}, ReLU]
    - Dense: {{units: !classes}}""",
    "cnn": """
    - [Conv2D: {{filters: {0}, kernel_size: 5}}, ReLU, MaxPooling2D]
    - [Conv2D: {{filters: {1}, kernel_size: 5}}, ReLU, MaxPooling2D]
    - [Flatten, Dense: {{units: {2}}}, ReLU]
    - [Dense: {{units: {3}}}, ReLU]
    - Dense: {{units: !classes}}""",
}
# The dense kernel behind Flatten: height and width of the map.
FLATTENED = {"mlp": {}, "cnn": {"fc1.weight": (5, 5)}}
STEMS = {
    "mlp": {
        **{"layer_input": "0_1_dense", "layer_out": "4_0_dense"},
        **{f"layer_hidden{number}": f"{number}_0_dense" for number in (1, 2, 3)},
    },
    "cnn": {"conv1": "0_0_conv2d", "conv2": "1_0_conv2d", "fc1": "2_1_dense", "fc2": "3_0_dense", "fc3": "4_0_dense"},
}
LOSS = {"mlp": "softmax_twice", "cnn": "cross_entropy"}
CLASSES = 10


def recipe_text(meta, clients):
    """The recipe of a file: what is not in its list of global names stays with the clients."""
    shared = {name.rpartition(".")[0] for name in meta["global_names"]}
    personal = [layer.partition("_")[0] for stem, layer in STEMS[meta["net"]].items() if stem not in shared]
    quoted = ", ".join(f'"{unit}"' for unit in personal)
    return f"""
name: parity
data: {{name: synthetic}}
input: {{name: images}}
partition: {{name: iid, clients: {clients}}}
model:
  layers:{LAYERS[meta["net"]].format(*meta["widths"])}
levels: {{widths: {{a: 1}}, mix: a1}}
round: {{clients: {len(meta["users"][0])}, label_rows: all, personal: [{quoted}]}}
client: {{epochs: {meta["local_epochs"]}, batch_size: {meta["batch"]}, loss: {LOSS[meta["net"]]}}}
optimizer: {{learning_rate: {meta["lr"]}, momentum: {meta["momentum"]}, weight_decay: 0.0, clip_norm: null}}
rounds: 1
evaluate: {{batch_size: {meta["test_batch"]}}}
engine: sequential
precision: float64
"""


class Replay:
    """One file as a learning process, its plans and the state before its first round."""

    def __init__(self, path):
        self.file = File(path)
        self.meta, self.clients = self.file.meta, len(self.file.meta["labels"])
        examples = Examples()
        batches = [self._batches(examples, client) for client in range(self.clients)]
        self.plans = [
            plan([Entry(client, 0, batches[client] * self.meta["local_epochs"]) for client in cohort])
            for cohort in self.meta["users"]
        ]
        self.images, self.labels = self.file.input("test/img"), self.file.input("test/label")
        dataset = dataclasses.replace(examples.dataset(CLASSES, self.file.name), test=Split(self.images, self.labels))
        process = build_process(recipe_text(self.meta, self.clients), dataset, [1] * self.clients)
        rows = Shares.from_lists(self.file.input(f"client{client}/test_rows") for client in range(self.clients))
        partition = dataclasses.replace(process.partition, test=rows)
        # What measures the clients holds the partition too.
        evaluator = dataclasses.replace(process.evaluator, partition=partition)
        self.process = dataclasses.replace(process, partition=partition, evaluator=evaluator)
        self.paths = variable_paths(self.process.paths, STEMS[self.meta["net"]])
        self.start = state_of(self.process, self.weights("global_init"))
        self.model = self.process.family.predictor("a")

    def _batches(self, examples, client):
        images, labels = self.file.input(f"client{client}/img"), self.file.input(f"client{client}/label")
        size = self.meta["batch"]
        return [
            examples.add(images[first : first + size], labels[first : first + size])
            for first in range(0, len(labels), size)
        ]

    def weights(self, place):
        """`{variable path: value}` of what the file has under a place."""
        shapes = dict(zip(self.process.paths, self.process.parts.placement.cut.shapes))
        return self.file.weights(place, self.paths, shapes, FLATTENED[self.meta["net"]])

    def net(self, state, client):
        """`{variable path: value}` of a client's own model."""
        own = {path: table[client] for path, table in state.clients["personal"].items()}
        return {path: np.asarray(value) for path, value in (state.weights | own).items()}

    def outputs(self, net, rows=slice(None)):
        """What the authors' net gives for test images: probabilities (mlp) or their logarithms (cnn)."""
        for variable in values(self.model):
            variable.assign(net[variable.path])
        logits = self.model(tf.constant(self.images[rows]), training=False).numpy()
        logs = logits - logits.max(-1, keepdims=True)
        logs -= np.log(np.exp(logs).sum(-1, keepdims=True))
        return np.exp(logs) if self.meta["net"] == "mlp" else logs

    def measured(self, outputs, rows=slice(None)):
        """Accuracy in percent, and the cross-entropy of outputs that are taken for logits."""
        labels = self.labels[rows]
        loss = softmax_cross_entropy(tf.constant(outputs), tf.constant(labels))
        return 100 * np.mean(outputs.argmax(-1) == labels), float(tf.reduce_mean(loss))

    def local(self, state):
        """What production measures of the clients' own models: accuracy [clients], and their losses as reported."""
        evaluator = self.process.evaluator
        weights, personal, _ = evaluator.client_values(state)
        logits = tf.function(evaluator.client_logits)(weights, personal, tf.constant(0))
        hits = tf.cast(tf.argmax(logits, -1) == self.labels[evaluator.tests.examples], logits.dtype)
        ends = np.cumsum(self.process.partition.test.sizes)[:-1]
        targets = tf.constant(self.labels[self.process.partition.test.ids])
        loss = softmax_twice.loss if self.meta["net"] == "mlp" else (lambda z, y, *_: softmax_cross_entropy(z, y))
        losses = np.split(loss(logits, targets, None, 0).numpy(), ends)
        return accuracies(hits, evaluator.tests).numpy(), [own.mean() for own in losses]


def compare_rounds(replay, gaps):
    """Every client's steps and result, every merge, and what stays with the clients; the `State` after each round."""
    states, trainer, file = [replay.start], Trainer(replay.process), replay.file
    for number, round_plan in enumerate(replay.plans):
        state = states[-1]
        for slot, client in enumerate(round_plan.clients):
            place = f"f64/round{number}/client{client}"
            trained = trainer(state, round_plan, slot)
            gaps.note("loss", trained.losses, file.arrays[f"{place}/loss"])
            gaps.note("loss", trained.losses.mean(), file.arrays[f"{place}/reported_loss"])
            gaps.note("client", trained.values, replay.weights(f"{place}/after"))
        states.append(merged(replay.process, state, round_plan))
        _compare_merge(replay, number, *states[-2:], gaps)
    return states


def _compare_merge(replay, number, before, after, gaps):
    """Shared values as merged; those that stay as trained, or bit-equal where a client was absent."""
    merged = {path: value for path, value in after.weights.items() if path not in after.clients["personal"]}
    gaps.note("merge", merged, replay.weights(f"f64/round{number}/global_after"))
    for path, table in after.clients["personal"].items():
        for client in range(replay.clients):
            if client in replay.meta["users"][number]:
                own = replay.weights(f"f64/round{number}/client{client}/after")[path]
                gaps.note("personal", table[client], own)
            else:
                gaps.note("kept", table[client], before.clients["personal"][path][client])


def compare_predictions(replay, state, gaps):
    """Outputs of every client's own model, of their mean, and the mean of their outputs."""
    outputs = [replay.outputs(replay.net(state, client)) for client in range(replay.clients)]
    for client, own in enumerate(outputs):
        gaps.note("own outputs", own, replay.file.result(f"eval/local{client}/outputs"))
    gaps.note("mean outputs", np.mean(outputs, 0), replay.file.result("eval/ensemble/outputs"))
    model = replay.process.model(state)
    mean = {variable.path: variable.numpy() for variable in values(model)}
    gaps.note("mean net", mean, replay.weights("f64/mean_after"))
    gaps.note("mean net", replay.outputs(mean), replay.file.result("eval/mean/outputs"))


def compare_metrics(replay, states, gaps):
    """Accuracy and loss of the clients' own models each round, and what the driver makes of those that did best."""
    file, clients = replay.file, range(replay.clients)
    started, _ = replay.local(states[0])
    best, best_local = [(started[client], replay.net(states[0], client)) for client in clients], (-np.inf, None)
    for number, state in enumerate(states[1:]):
        accuracy, losses = replay.local(state)
        gaps.note("local", accuracy, file.result(f"round{number}/local/accuracy"))
        gaps.note("local", losses, file.result(f"round{number}/local/test_loss"))
        nets = [(accuracy[client], replay.net(state, client)) for client in clients]
        best = [max(pairs, key=lambda pair: pair[0]) for pairs in zip(nets, best)]
        mean = _mean([net for _, net in best])
        found = replay.measured(replay.outputs(mean))
        expected = [file.result(f"round{number}/avg_of_best/{name}") for name in ("accuracy", "test_loss")]
        gaps.note("mean of best", found, expected)
        if accuracy.mean() > best_local[0]:
            shared = {path: value for path, value in mean.items() if path not in state.clients["personal"]}
            best_local = accuracy.mean(), [net | shared for _, net in best]
    _compare_final(replay, best_local[1], gaps)


def _mean(nets):
    return {path: np.mean([net[path] for net in nets], 0) for path in nets[0]}


def _compare_final(replay, nets, gaps):
    """The nets that the driver ends with: alone, their mean, and both ensembles."""
    file, rows = replay.file, replay.process.partition.test
    alone = [replay.measured(replay.outputs(net, own), own)[0] for net, own in zip(nets, rows)]
    gaps.note("final", np.mean(alone), file.result("final/local/accuracy"))
    gaps.note("final", replay.measured(replay.outputs(_mean(nets)))[0], file.result("final/mean/accuracy"))
    outputs = np.stack([replay.outputs(net) for net in nets])
    accuracy, loss = replay.measured(outputs.mean(0))
    gaps.note("final", accuracy, file.result("final/ensemble/accuracy_mean_of_outputs"))
    gaps.note("final", loss, file.result("final/ensemble/loss"))
    votes = np.eye(CLASSES)[outputs.argmax(-1)].sum(0).argmax(-1)
    gaps.note("final", 100 * np.mean(votes == replay.labels), file.result("final/ensemble/accuracy_majority"))


def replay(path):
    """All stages of a file: (stage, largest difference, tolerance)."""
    given, gaps = Replay(path), Gaps()
    states = compare_rounds(given, gaps)
    compare_predictions(given, states[-1], gaps)
    compare_metrics(given, states, gaps)
    return gaps.told(given.file, stages(given))


def stages(replay):
    """The stages that a file must show; absent clients keep what is theirs."""
    found = {"loss", "client", "merge", "personal", "own outputs", "mean outputs", "mean net"}
    absent = any(len(cohort) < replay.clients for cohort in replay.meta["users"])
    return found | {"local", "mean of best", "final"} | ({"kept"} if absent else set())
