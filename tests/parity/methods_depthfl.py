"""Replays vectors of DepthFL's Flower baseline, which its first author wrote."""

import dataclasses

import methods_common as common
import numpy as np
import tensorflow as tf
from methods_files import File, Gaps

from hetero_tf.models.variables import values

LEVELS = "abcd"
# The vectors' counters of batches have no counterpart: the momentum of running statistics is constant.
BLOCK = {
    "conv1": "conv1",
    "bn1.norm": "norm1/bn",
    "conv2": "conv2",
    "bn2.norm": "norm2/bn",
    "downsample.0": "shortcut",
    "downsample.1.norm": "norm3/bn",
}
SEPARABLE = {
    "operations.0": "deep1",
    "operations.1": "mix1",
    "operations.2.norm": "norm1/bn",
    "operations.4": "deep2",
    "operations.5": "mix2",
    "operations.6.norm": "norm2/bn",
}


def recipe_text(file):
    """Return the recipe of a file: a level for each depth, the deepest first."""
    widths, fit, names = file.meta["widths"], file.meta["fit"], LEVELS[: len(file.meta["widths"])]
    dynamic = {"name": "dynamic", "alpha": fit["alpha"]} if fit["feddyn"] else None
    coupling = {"name": "mutual", "floor": 1e-7, "ramp": 300} if fit["kd"] else "sum"
    # If all exits are trained, a client trains its complete sub-model.
    counted = {} if fit["extended"] else {"untrained": "counted"}
    return common.recipe_text(
        file,
        file.meta["num_clients"],
        _layers(widths),
        dict.fromkeys(names, 1),
        levels={"depths": {name: len(names) - index for index, name in enumerate(names)}},
        round={"label_rows": "all", "server": dynamic or "replace", **counted},
        client={
            "coupling": coupling if fit["extended"] else "last",
            "stages": {"name": "joint", "exits": "all" if fit["extended"] else "last"},
            "correction": dynamic,
        },
        schedule={"name": "exponential", "factor": file.meta["lr_decay"]},
        evaluate={"exits": "mean"},
    )


def _layers(widths):
    """Return the lines of model.layers: a block for each depth, and an exit after all blocks but the last."""
    head, plain = "GlobalAveragePooling2D, Dense: {units: !classes}]", "norm: bn, scaler: false"
    lines = [f"[PaddedConv2D: {{filters: {widths[0]}, use_bias: false}}, Norm: {{kind: bn}}, ReLU]"]
    for index, width in enumerate(widths):
        lines.append(f"PostActivationBlock: {{filters: {width}, stride: {2 if index else 1}, {plain}}}")
        if index + 1 < len(widths):
            chain = "".join(f"SeparableBlock: {{filters: {more}, {plain}}}, " for more in widths[index + 1 :])
            lines.append(f"Exit: [AttentionGate: {{{plain}}}, {chain}{head}")
    return [*lines, f"[{head}"]


def stems(stages):
    """`{PyTorch module: Keras layer}` of a network with `stages` stages of one block."""
    stem_layers = {"conv1": "0_0_padded_conv2d", "bn1.norm": "0_1_norm/bn"}
    for stage in range(1, stages + 1):
        unit = 2 * stage - 1
        stem_layers |= {
            f"layer{stage}.0.{one}": f"{unit}_0_post_activation_block/{other}" for one, other in BLOCK.items()
        }
        if stage < stages:
            gate, chain = f"{unit + 1}_0_attention_gate", stages - stage
            stem_layers |= {
                f"attention{stage}.0.{one}": f"{gate}/separable/{other}" for one, other in SEPARABLE.items()
            }
            stem_layers |= {f"attention{stage}.1.norm": f"{gate}/norm3/bn"}
            for index in range(chain):
                layer = f"{unit + 1}_{index + 1}_separable_block"
                stem_layers |= {f"scala{stage}.{index}.{one}": f"{layer}/{other}" for one, other in SEPARABLE.items()}
            stem_layers[f"middle_fc{stage}"] = f"{unit + 1}_{chain + 2}_dense"
    stem_layers["fc_layer"] = f"{2 * stages}_1_dense"
    return stem_layers


class Replay(common.Replay):
    """One file as a learning process, and the plans of its rounds."""

    def __init__(self, file, gaps):
        meta, examples = file.meta, common.Examples()
        _restore_shapes(file)
        self.deepest = len(meta["widths"])
        self.plans = [
            common.plan(
                [
                    common.Entry(client, self.deepest - meta["depth"][client], batches)
                    for client, batches in work.items()
                ]
            )
            for work in examples.rounds(file)
        ]
        dataset = examples.dataset(meta["classes"], file.name, (file.input("eval/img"), file.input("eval/label")))
        process = common.build_process(recipe_text(file), dataset, [1] * meta["num_clients"])
        super().__init__(file, gaps, process, stems(self.deepest))

    def start(self):
        """Return the `State` before the first round; the file must have every value."""
        missing = set(self.process.paths) - self.read_values("global_init").keys()
        if missing:
            raise SystemExit(f"{self.file.name}: no values for {sorted(missing)}")
        return super().start()

    def compare_rounds(self):
        """Compare every client's steps and result, and every merge; return the last `State`."""
        state = self.start()
        for number, (part, planned) in enumerate(zip(self.meta["rounds"], self.plans)):
            before = dataclasses.replace(state, round=part["t"])
            trained_paths = set()
            for slot, client in enumerate(part["users"]):
                trained_paths |= self.compare_steps(before, planned, slot, f"round{number}/client{client}").keys()
            state = self.compare_round(before, planned, number, stage="merge")
            for path in before.weights.keys() - trained_paths:
                self.gaps.note("unchanged", state.weights[path], before.weights[path])
            for slot in state.server.values():
                self.gaps.note("server", slot, self.expected(f"round{number}/h"), some=True)
        return state

    def compare_steps(self, state, planned, slot, prefix):
        """Compare a client's losses, exit logits of every step, weights and memory; return its values."""
        trained, losses = self.trainer(state, planned, slot), []
        for step in range(planned.steps[slot]):
            before = self.trainer(state, dataclasses.replace(planned, steps=np.full_like(planned.steps, step)), slot)
            losses.append(trained.losses[step] + self.pull(state, int(planned.clients[slot]), before.values))
            logits = self.exit_logits(planned, slot, step, before.row)
            self.note("exits", logits, f"{prefix}/step{step}/logits_steps")
        self.note("loss", losses, f"{prefix}/loss")
        self.compare_values(trained, prefix)
        if trained.memory is not None:
            self.gaps.note("memory", trained.memory, self.expected(f"{prefix}/dual_after"), some=True)
        return trained.values

    def pull(self, state, client, values):
        """FedDyn's term of the reported loss: `-<weights, memory> + alpha / 2 |weights - start|^2`."""
        total, alpha = 0.0, self.meta["fit"]["alpha"]
        for path, memory in state.clients.get("memory", {}).items():
            if path in values and not path.rpartition("/")[2].startswith("moving_"):
                moved = values[path] - np.asarray(state.weights[path])
                total += alpha / 2 * np.sum(moved**2) - np.sum(values[path] * np.asarray(memory[client]))
        return total

    def exit_logits(self, planned, slot, step, row):
        """Return the logits of all exits in a training step, [exits, batch, classes], from a client's row of values."""
        rows = planned.rows[slot, step]
        inputs = self.process.dataset.train.x[rows[rows >= 0]][None]
        block = self.process.setup.submodels[self.process.family.submodel_of[planned.levels[slot]]].block
        outputs, _ = block.stages[0].joint.call(tf.constant(row[None]), tf.zeros([1, 4], tf.int32), tf.constant(inputs))
        return tf.concat(outputs, 0)

    def compare_predictions(self, state):
        """Compare logits of all exits, their mean, and the predictions of each depth with its exits."""
        file, process, levels = self.file, self.process, self.process.recipe.levels
        images, labels = tf.constant(file.input("eval/img")), file.input("eval/label")
        model = process.family.training_model(levels.global_level, process.dataset.classes)
        for variable in values(model):
            variable.assign(state.weights[variable.path])
        exits = np.stack(model(images, training=False))
        self.note("exit logits", exits, "eval/exits/logits")
        self.note("exit logits", np.mean(exits.argmax(-1) == labels, -1), "eval/exits/accuracy")
        for level, depth in levels.depths.items():
            if depth in predicted_depths(self.meta):
                loss = common.mean_loss(process.network(state, level)(images, training=False), labels)
                prefix = "eval/ensemble" if depth == self.deepest else f"eval/depth{depth}"
                self.note("prediction", loss, f"{prefix}/loss")
        metrics, _ = process.evaluate(state)
        self.note("prediction", metrics["global_loss"], "eval/ensemble/loss")
        self.note("prediction", metrics["global_accuracy"] / 100, "eval/ensemble/accuracy")


def _restore_shapes(file):
    """Reshape the clients' memories, which the file stores flattened."""
    for key, value in file.arrays.items():
        if "/dual_after/" in key:
            file.arrays[key] = value.reshape(file.arrays["global_init/" + key.rpartition("/")[2]].shape)


def replay(path):
    """Replay a file: (stage, largest difference, tolerance) of every stage."""
    depthfl = Replay(File(path), Gaps())
    depthfl.compare_predictions(depthfl.compare_rounds())
    return depthfl.gaps.check_stages(depthfl.file, stages(depthfl.meta))


def predicted_depths(meta):
    """Depths whose prediction a file has: those of its clients, and the deepest."""
    return {*meta["depth"], len(meta["widths"])}


def stages(meta):
    """Stages that a file must show: with FedDyn memory and server, without the deepest depth unchanged values."""
    names = {"exits", "loss", "client", "merge", "exit logits", "prediction"}
    if meta["fit"]["feddyn"]:
        names |= {"memory", "server"}
    reached = [max(meta["depth"][client] for client in part["users"]) for part in meta["rounds"]]
    return names | ({"unchanged"} if min(reached) < len(meta["widths"]) else set())
