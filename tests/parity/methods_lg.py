"""Replays vectors of the LG-FedAvg authors' code.

Production has no counterpart of the driver's bookkeeping, which stores each client's best network by its test examples.
This module does it with production's networks and accuracies.
"""

import methods_common as common
import numpy as np
import tensorflow as tf
from methods_files import File, Gaps

from hetero_tf.evaluation.fairness import accuracies
from hetero_tf.methods.losses import softmax_twice
from hetero_tf.methods.losses.cross_entropy import softmax_cross_entropy
from hetero_tf.models.variables import values

LAYERS = {
    "mlp": [
        "[Flatten, Dense: {{units: {0}}}, ReLU]",
        "[Dense: {{units: {1}}}, ReLU]",
        "[Dense: {{units: {1}}}, ReLU]",
        "[Dense: {{units: {2}}}, ReLU]",
        "Dense: {{units: !classes}}",
    ],
    "cnn": [
        "[Conv2D: {{filters: {0}, kernel_size: 5}}, ReLU, MaxPooling2D]",
        "[Conv2D: {{filters: {1}, kernel_size: 5}}, ReLU, MaxPooling2D]",
        "[Flatten, Dense: {{units: {2}}}, ReLU]",
        "[Dense: {{units: {3}}}, ReLU]",
        "Dense: {{units: !classes}}",
    ],
}
# The dense kernel after Flatten: height and width of the map.
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


def recipe_text(file):
    """Return the recipe of a file; units outside its list of global names are personal."""
    meta = file.meta
    shared = {name.rpartition(".")[0] for name in meta["global_names"]}
    personal = [layer.partition("_")[0] for stem, layer in STEMS[meta["net"]].items() if stem not in shared]
    return common.recipe_text(
        file,
        len(meta["labels"]),
        [line.format(*meta["widths"]) for line in LAYERS[meta["net"]]],
        {"a": 1},
        round={"label_rows": "all", "personal": personal},
        client={"epochs": meta["local_epochs"], "batch_size": meta["batch"], "loss": LOSS[meta["net"]]},
        evaluate={"batch_size": meta["test_batch"]},
    )


class Replay(common.Replay):
    """One file as a learning process with the plans of its rounds."""

    def __init__(self, file, gaps):
        meta, examples = file.meta, common.Examples()
        self.clients, self.flattened = len(meta["labels"]), FLATTENED[meta["net"]]
        batches = [self._batches(file, examples, client) for client in range(self.clients)]
        self.plans = [
            common.plan([common.Entry(client, 0, batches[client] * meta["local_epochs"]) for client in cohort])
            for cohort in file.cohorts
        ]
        self.images, self.labels = file.input("test/img"), file.input("test/label")
        dataset = examples.dataset(CLASSES, file.name, (self.images, self.labels))
        tests = [file.input(f"client{client}/test_rows") for client in range(self.clients)]
        process = common.build_process(recipe_text(file), dataset, [1] * self.clients, tests=tests)
        super().__init__(file, gaps, process, STEMS[meta["net"]])
        self.model = process.family.predictor("a")

    def _batches(self, file, examples, client):
        images, labels = file.input(f"client{client}/img"), file.input(f"client{client}/label")
        size = file.meta["batch"]
        starts = range(0, len(labels), size)
        return [examples.add(images[first : first + size], labels[first : first + size]) for first in starts]

    def net(self, state, client):
        """`{variable path: value}` of a client's model."""
        personal = {path: table[client] for path, table in state.clients["personal"].items()}
        return {path: np.asarray(value) for path, value in (state.weights | personal).items()}

    def outputs(self, net, rows=slice(None)):
        """Outputs of the authors' network for test images: probabilities (mlp) or their logarithms (cnn)."""
        for variable in values(self.model):
            variable.assign(net[variable.path])
        logits = self.model(tf.constant(self.images[rows]), training=False).numpy()
        logs = logits - logits.max(-1, keepdims=True)
        logs -= np.log(np.exp(logs).sum(-1, keepdims=True))
        return np.exp(logs) if self.meta["net"] == "mlp" else logs

    def measured(self, outputs, rows=slice(None)):
        """Accuracy in percent, and the cross-entropy with the outputs as logits."""
        labels = self.labels[rows]
        loss = softmax_cross_entropy(tf.constant(outputs), tf.constant(labels))
        return 100 * np.mean(outputs.argmax(-1) == labels), float(tf.reduce_mean(loss))

    def local(self, state):
        """Production's metrics of the client models: accuracy [clients], and their losses as the authors report them."""
        evaluator = self.process.evaluator
        weights, personal, _ = evaluator.clients.values(state)
        results_of = evaluator.clients.build_results(["outputs"], lambda outputs, rows, client: {"outputs": outputs})
        logits = tf.function(results_of)(weights, personal, tf.constant(0))["outputs"]
        hits = tf.cast(tf.argmax(logits, -1) == self.labels[evaluator.tests.examples], logits.dtype)
        ends = np.cumsum(self.process.partition.test.sizes)[:-1]
        targets = tf.constant(self.labels[self.process.partition.test.ids])
        loss = softmax_twice.loss if self.meta["net"] == "mlp" else (lambda z, y, *_: softmax_cross_entropy(z, y))
        losses = np.split(loss(logits, targets, None, 0).numpy(), ends)
        return accuracies(hits, evaluator.tests).numpy(), [client_losses.mean() for client_losses in losses]

    def compare_rounds(self):
        """Compare every client's steps and result, every merge and the personal values; return all `State`s."""
        states = [self.start()]
        for number, planned in enumerate(self.plans):
            for slot, client in enumerate(planned.clients):
                prefix = f"round{number}/client{client}"
                trained = self.compare_client(states[-1], planned, slot, prefix)
                self.note("loss", trained.losses.mean(), f"{prefix}/reported_loss")
            states.append(common.run_planned_round(self.process, states[-1], planned))
            self.compare_merge(number, *states[-2:])
        return states

    def compare_merge(self, number, before, after):
        """Compare shared values after the merge, and personal values: as trained, or bit-equal for absent clients."""
        personal = after.clients["personal"]
        shared = {path: value for path, value in after.weights.items() if path not in personal}
        self.gaps.note("merge", shared, self.expected(f"round{number}/global_after"))
        trained = {client: self.expected(f"round{number}/client{client}/after") for client in self.file.cohorts[number]}
        for path, table in personal.items():
            for client, value in enumerate(table):
                if client in trained:
                    self.gaps.note("personal", value, trained[client][path])
                else:
                    self.gaps.note("unchanged", value, before.clients["personal"][path][client])

    def compare_predictions(self, state):
        """Compare outputs of every client model, of their mean, and the mean of their outputs."""
        outputs = [self.outputs(self.net(state, client)) for client in range(self.clients)]
        for client, client_outputs in enumerate(outputs):
            self.note("client outputs", client_outputs, f"eval/local{client}/outputs")
        self.note("mean outputs", np.mean(outputs, 0), "eval/ensemble/outputs")
        mean = {variable.path: variable.numpy() for variable in values(self.process.network(state))}
        self.gaps.note("mean net", mean, self.expected("mean_after"))
        self.note("mean net", self.outputs(mean), "eval/mean/outputs")

    def compare_metrics(self, states):
        """Compare accuracy and loss of the client models each round, and the driver's mean of the best ones."""
        file, clients = self.file, range(self.clients)
        started, _ = self.local(states[0])
        best, best_local = [(started[client], self.net(states[0], client)) for client in clients], (-np.inf, None)
        for number, state in enumerate(states[1:]):
            accuracy, losses = self.local(state)
            self.note("local", accuracy, f"round{number}/local/accuracy")
            self.note("local", losses, f"round{number}/local/test_loss")
            nets = [(accuracy[client], self.net(state, client)) for client in clients]
            best = [max(pairs, key=lambda pair: pair[0]) for pairs in zip(nets, best)]
            mean = _mean([net for _, net in best])
            metrics = self.measured(self.outputs(mean))
            expected = [file.result(f"round{number}/avg_of_best/{name}") for name in ("accuracy", "test_loss")]
            self.gaps.note("mean of best", metrics, expected)
            if accuracy.mean() > best_local[0]:
                shared = {path: value for path, value in mean.items() if path not in state.clients["personal"]}
                best_local = accuracy.mean(), [net | shared for _, net in best]
        self.compare_final(best_local[1])

    def compare_final(self, nets):
        """Compare the driver's last networks: each of them, their mean, and both ensembles."""
        rows, outputs = self.process.partition.test, np.stack([self.outputs(net) for net in nets])
        accuracy, loss = self.measured(outputs.mean(0))
        votes = np.eye(CLASSES)[outputs.argmax(-1)].sum(0).argmax(-1)
        metrics = {
            "local/accuracy": np.mean(
                [self.measured(self.outputs(net, client_rows), client_rows)[0] for net, client_rows in zip(nets, rows)]
            ),
            "mean/accuracy": self.measured(self.outputs(_mean(nets)))[0],
            "ensemble/accuracy_mean_of_outputs": accuracy,
            "ensemble/loss": loss,
            "ensemble/accuracy_majority": 100 * np.mean(votes == self.labels),
        }
        for name, value in metrics.items():
            self.note("final", value, f"final/{name}")


def _mean(nets):
    return {path: np.mean([net[path] for net in nets], 0) for path in nets[0]}


def replay(path):
    """Replay a file: (stage, largest difference, tolerance) of every stage."""
    lg = Replay(File(path), Gaps())
    states = lg.compare_rounds()
    lg.compare_predictions(states[-1])
    lg.compare_metrics(states)
    return lg.gaps.check_stages(lg.file, stages(lg))


def stages(replay):
    """Stages that a file must show; absent clients keep their personal values."""
    names = {"loss", "client", "merge", "personal", "client outputs", "mean outputs", "mean net"}
    absent = any(len(cohort) < replay.clients for cohort in replay.file.cohorts)
    return names | {"local", "mean of best", "final"} | ({"unchanged"} if absent else set())
