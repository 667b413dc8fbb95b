"""DepthFL: vectors of its first author's Flower baseline, replayed; `replay(path)` as the other methods have it."""

import dataclasses

import methods_common as common
import numpy as np
import tensorflow as tf
from methods_files import File, Gaps

from hetero_tf.models.variables import values

LEVELS = "abcd"
# Running statistics of the vectors that say how many batches they saw have no counterpart: momentum is constant.
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
    """The recipe of a file: a level for each depth, the deepest first."""
    widths, fit, names = file.meta["widths"], file.meta["fit"], LEVELS[: len(file.meta["widths"])]
    dynamic = {"name": "dynamic", "alpha": fit["alpha"]} if fit["feddyn"] else None
    coupling = {"name": "mutual", "floor": 1e-7, "ramp": 300} if fit["kd"] else "sum"
    # Where all exits are trained, a client trains all that it holds.
    counted = {} if fit["extended"] else {"untrained": "counted"}
    return common.recipe_text(
        file,
        file.meta["num_clients"],
        _layers(widths),
        dict.fromkeys(names, 1),
        levels={"depths": {name: len(names) - place for place, name in enumerate(names)}},
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
    """The lines of model.layers: a block for each depth, and behind all but the last an exit."""
    head, plain = "GlobalAveragePooling2D, Dense: {units: !classes}]", "norm: bn, scaler: false"
    lines = [f"[PaddedConv2D: {{filters: {widths[0]}, use_bias: false}}, Norm: {{kind: bn}}, ReLU]"]
    for place, width in enumerate(widths):
        lines.append(f"PostActivationBlock: {{filters: {width}, stride: {2 if place else 1}, {plain}}}")
        if place + 1 < len(widths):
            chain = "".join(f"SeparableBlock: {{filters: {more}, {plain}}}, " for more in widths[place + 1 :])
            lines.append(f"Exit: [AttentionGate: {{{plain}}}, {chain}{head}")
    return [*lines, f"[{head}"]


def stems(stages):
    """`{PyTorch module: Keras layer}` of a network of so many stages, one block each."""
    found = {"conv1": "0_0_padded_conv2d", "bn1.norm": "0_1_norm/bn"}
    for stage in range(1, stages + 1):
        unit = 2 * stage - 1
        found |= {f"layer{stage}.0.{one}": f"{unit}_0_post_activation_block/{other}" for one, other in BLOCK.items()}
        if stage < stages:
            gate, chain = f"{unit + 1}_0_attention_gate", stages - stage
            found |= {f"attention{stage}.0.{one}": f"{gate}/separable/{other}" for one, other in SEPARABLE.items()}
            found |= {f"attention{stage}.1.norm": f"{gate}/norm3/bn"}
            for place in range(chain):
                layer = f"{unit + 1}_{place + 1}_separable_block"
                found |= {f"scala{stage}.{place}.{one}": f"{layer}/{other}" for one, other in SEPARABLE.items()}
            found[f"middle_fc{stage}"] = f"{unit + 1}_{chain + 2}_dense"
    found["fc_layer"] = f"{2 * stages}_1_dense"
    return found


class Replay(common.Replay):
    """One file as a learning process, and the plans of its rounds."""

    def __init__(self, file, gaps):
        meta, examples = file.meta, common.Examples()
        _in_shape(file)
        self.deepest = len(meta["widths"])
        self.plans = [
            common.plan(
                [common.Entry(client, self.deepest - meta["depth"][client], own) for client, own in work.items()]
            )
            for work in examples.rounds(file)
        ]
        dataset = examples.dataset(meta["classes"], file.name, (file.input("eval/img"), file.input("eval/label")))
        process = common.build_process(recipe_text(file), dataset, [1] * meta["num_clients"])
        super().__init__(file, gaps, process, stems(self.deepest))

    def start(self):
        """The `State` before the first round, of which the file gives every value."""
        missing = set(self.process.paths) - self.given("global_init").keys()
        if missing:
            raise SystemExit(f"{self.file.name}: no values for {sorted(missing)}")
        return super().start()

    def compare_rounds(self):
        """Every client's steps and result, and every merge: the last `State`."""
        state = self.start()
        for number, (part, planned) in enumerate(zip(self.meta["rounds"], self.plans)):
            before = dataclasses.replace(state, round=part["t"])
            held = set()
            for slot, client in enumerate(part["users"]):
                held |= self.compare_steps(before, planned, slot, f"round{number}/client{client}").keys()
            state = self.compare_round(before, planned, number, stage="merge")
            for path in before.weights.keys() - held:
                self.gaps.note("kept", state.weights[path], before.weights[path])
            for slot in state.server.values():
                self.gaps.note("server", slot, self.expected(f"round{number}/h"), some=True)
        return state

    def compare_steps(self, state, planned, slot, place):
        """One client's losses, logits of all exits at every step, weights, and what it remembers; gives its values."""
        trained, losses = self.trainer(state, planned, slot), []
        for step in range(planned.steps[slot]):
            before = self.trainer(state, dataclasses.replace(planned, steps=np.full_like(planned.steps, step)), slot)
            losses.append(trained.losses[step] + self.pull(state, int(planned.clients[slot]), before.values))
            logits = self.exit_logits(planned, slot, step, before.row)
            self.note("exits", logits, f"{place}/step{step}/logits_steps")
        self.note("loss", losses, f"{place}/loss")
        self.compare_values(trained, place)
        if trained.memory is not None:
            self.gaps.note("memory", trained.memory, self.expected(f"{place}/dual_after"), some=True)
        return trained.values

    def pull(self, state, client, values):
        """FedDyn's term in the loss that the file reports: `-<weights, memory> + alpha / 2 |weights - start|^2`."""
        total, alpha = 0.0, self.meta["fit"]["alpha"]
        for path, memory in state.clients.get("memory", {}).items():
            if path in values and not path.rpartition("/")[2].startswith("moving_"):
                moved = values[path] - np.asarray(state.weights[path])
                total += alpha / 2 * np.sum(moved**2) - np.sum(values[path] * np.asarray(memory[client]))
        return total

    def exit_logits(self, planned, slot, step, row):
        """Logits of all exits of a client in a training step, [exits, batch, classes], from its row of values."""
        rows = planned.rows[slot, step]
        inputs = self.process.dataset.train.x[rows[rows >= 0]][None]
        stack = self.process.parts.engine.stacks[self.process.family.submodel_of[planned.levels[slot]]]
        outputs, _ = stack.call(tf.constant(row[None]), tf.zeros([1, 4], tf.int32), tf.constant(inputs))
        return tf.concat(outputs, 0)

    def compare_predictions(self, state):
        """Logits of all exits, their mean, and what clients of each depth predict with their own exits."""
        file, process, levels = self.file, self.process, self.process.recipe.levels
        images, labels = tf.constant(file.input("eval/img")), file.input("eval/label")
        model = process.family.trained(levels.global_level, process.dataset.classes)
        for variable in values(model):
            variable.assign(state.weights[variable.path])
        exits = np.stack(model(images, training=False))
        self.note("exit logits", exits, "eval/exits/logits")
        self.note("exit logits", np.mean(exits.argmax(-1) == labels, -1), "eval/exits/accuracy")
        for level, depth in levels.depths.items():
            if depth in predicted_depths(self.meta):
                loss = common.mean_loss(process.network(state, level)(images, training=False), labels)
                place = "eval/ensemble" if depth == self.deepest else f"eval/depth{depth}"
                self.note("prediction", loss, f"{place}/loss")
        found, _ = process.evaluate(state)
        self.note("prediction", found["global_loss"], "eval/ensemble/loss")
        self.note("prediction", found["global_accuracy"] / 100, "eval/ensemble/accuracy")


def _in_shape(file):
    """Gives what clients remember, which the file holds flattened, the shapes of its tensors."""
    for key, value in file.arrays.items():
        if "/dual_after/" in key:
            file.arrays[key] = value.reshape(file.arrays["global_init/" + key.rpartition("/")[2]].shape)


def replay(path):
    """All stages of a file: (stage, largest difference, tolerance)."""
    given = Replay(File(path), Gaps())
    given.compare_predictions(given.compare_rounds())
    return given.gaps.told(given.file, stages(given.meta))


def predicted_depths(meta):
    """The depths whose prediction a file has: those of its clients, and the deepest."""
    return {*meta["depth"], len(meta["widths"])}


def stages(meta):
    """The stages that a file must show: memory and server of FedDyn, and what rounds without the deepest depth keep."""
    found = {"exits", "loss", "client", "merge", "exit logits", "prediction"}
    if meta["fit"]["feddyn"]:
        found |= {"memory", "server"}
    reached = [max(meta["depth"][client] for client in part["users"]) for part in meta["rounds"]]
    return found | ({"kept"} if min(reached) < len(meta["widths"]) else set())
