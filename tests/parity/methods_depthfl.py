"""DepthFL: vectors of its first author's Flower baseline, replayed; `replay(path)` as the other methods have it."""

import dataclasses
import functools

import numpy as np
import tensorflow as tf
from methods_common import Entry, Examples, Trainer, build_process, merged, plan, recipe_head, state_of, with_round
from methods_files import File, Gaps, variable_paths

from hetero_tf.data.dataset import Split
from hetero_tf.methods.losses.cross_entropy import softmax_cross_entropy
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


def recipe_text(meta):
    """The recipe of a file: a level for each depth, the deepest first."""
    widths, fit, names = meta["widths"], meta["fit"], LEVELS[: len(meta["widths"])]
    dynamic = f"{{name: dynamic, alpha: {fit['alpha']}}}" if fit["feddyn"] else None
    coupling = "{name: mutual, floor: 1.0e-7, ramp: 300}" if fit["kd"] else "sum"
    return f"""
{recipe_head(meta["num_clients"], _layers(widths))}
levels:
  widths: {{{", ".join(f"{name}: 1" for name in names)}}}
  depths: {{{", ".join(f"{name}: {len(names) - place}" for place, name in enumerate(names))}}}
  mix: {"-".join(names)}
round: {{clients: {max(len(part["users"]) for part in meta["rounds"])}, label_rows: all, untrained: counted,
         server: {dynamic or "replace"}}}
client:
  batch_size: 10
  loss: cross_entropy
  coupling: {coupling if fit["extended"] else "last"}
  stages: {{name: joint, exits: {"all" if fit["extended"] else "last"}}}
  correction: {dynamic or "null"}
optimizer: {{learning_rate: {meta["lr"]}, momentum: 0.0, weight_decay: {meta["weight_decay"]}, clip_norm: null}}
schedule: {{name: exponential, factor: {meta["lr_decay"]}}}
rounds: 1
evaluate: {{exits: mean}}
engine: sequential
precision: float64
"""


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


class Replay:
    """One file as a learning process, its plans and the state before its first round."""

    def __init__(self, path):
        self.file = File(path)
        _in_shape(self.file)
        self.meta, examples = self.file.meta, Examples()
        self.deepest = len(self.meta["widths"])
        self.plans = []
        for number, part in enumerate(self.meta["rounds"]):
            batches = [examples.batches(self.file, f"round{number}/client{client}") for client in part["users"]]
            levels = [self.deepest - self.meta["depth"][client] for client in part["users"]]
            self.plans.append(plan(list(map(Entry, part["users"], levels, batches))))
        test = Split(self.file.input("eval/img"), self.file.input("eval/label"))
        dataset = dataclasses.replace(examples.dataset(self.meta["classes"], self.file.name), test=test)
        self.process = build_process(recipe_text(self.meta), dataset, [1] * self.meta["num_clients"])
        self.paths = variable_paths(self.process.paths, stems(self.deepest))
        shapes = dict(zip(self.process.paths, self.process.parts.placement.cut.shapes))
        self.weights = functools.partial(self.file.weights, paths=self.paths, shapes=shapes)
        start = self.weights("global_init")
        if start.keys() != set(self.process.paths):
            raise SystemExit(f"{self.file.name}: no values for {sorted(set(self.process.paths) - start.keys())}")
        self.start = state_of(self.process, start)


def _in_shape(file):
    """Gives what clients remember, which the file holds flattened, the shapes of its tensors."""
    for key, value in file.arrays.items():
        if "/dual_after/" in key:
            file.arrays[key] = value.reshape(file.arrays["global_init/" + key.rpartition("/")[2]].shape)


def compare_rounds(replay, gaps):
    """Every client's steps and result, and every merge, from the file's weights before the round; the last `State`."""
    state, trainer = replay.start, Trainer(replay.process)
    for number, (part, round_plan) in enumerate(zip(replay.meta["rounds"], replay.plans)):
        state = with_round(state, part["t"])
        for slot, client in enumerate(part["users"]):
            _compare_client(replay, trainer, state, round_plan, slot, f"f64/round{number}/client{client}", gaps)
        after = merged(replay.process, state, round_plan)
        _compare_merge(replay, number, state, after, gaps)
        state = after
    return state


def _compare_client(replay, trainer, state, round_plan, slot, place, gaps):
    """One client's losses, logits of all exits at every step, weights, and what it remembers."""
    trained, losses = trainer(state, round_plan, slot), []
    for step in range(round_plan.steps[slot]):
        before = trainer(state, dataclasses.replace(round_plan, steps=np.full_like(round_plan.steps, step)), slot)
        losses.append(trained.losses[step] + _pull(replay, state, int(round_plan.clients[slot]), before.values))
        logits = _logits(replay, round_plan, slot, step, before.row)
        gaps.note("exits", logits, replay.file.arrays[f"{place}/step{step}/logits_steps"])
    gaps.note("loss", losses, replay.file.arrays[f"{place}/loss"])
    gaps.note("client", trained.values, replay.weights(f"{place}/after"))
    if trained.memory is not None:
        gaps.note("memory", trained.memory, replay.weights(f"{place}/dual_after"), some=True)


def _pull(replay, state, client, values):
    """The term of FedDyn in the loss that the file reports: `-<weights, memory> + alpha / 2 |weights - start|^2`."""
    total, alpha = 0.0, replay.meta["fit"]["alpha"]
    for path, memory in state.clients.get("memory", {}).items():
        if path in values and not path.rpartition("/")[2].startswith("moving_"):
            moved = values[path] - np.asarray(state.weights[path])
            total += alpha / 2 * np.sum(moved**2) - np.sum(values[path] * np.asarray(memory[client]))
    return total


def _logits(replay, round_plan, slot, step, row):
    """Logits of all exits of a client in a training step, [exits, batch, classes], from its row of values."""
    process = replay.process
    rows = round_plan.rows[slot, step]
    inputs = process.dataset.train.x[rows[rows >= 0]][None]
    stack = process.parts.engine.stacks[process.family.submodel_of[round_plan.levels[slot]]]
    outputs, _ = stack.call(tf.constant(row[None]), tf.zeros([1, 4], tf.int32), tf.constant(inputs))
    return tf.concat(outputs, 0)


def _compare_merge(replay, number, before, after, gaps):
    """Weights and statistics after the merge, what the server keeps, and what nobody in the round holds."""
    expected = replay.weights(f"f64/round{number}/global_after")
    gaps.note("merge", after.weights, expected)
    held = {
        path
        for client in replay.meta["rounds"][number]["users"]
        for path in replay.weights(f"f64/round{number}/client{client}/after")
    }
    free = {path: value for path, value in before.weights.items() if path not in held}
    if free:
        gaps.note("kept", after.weights, free, some=True)
    for slot in after.server.values():
        gaps.note("server", slot, replay.weights(f"f64/round{number}/h"), some=True)


def compare_predictions(replay, state, gaps):
    """Logits of all exits, their mean, and what clients of each depth predict with their own exits."""
    file, process = replay.file, replay.process
    images, labels = tf.constant(file.input("eval/img")), file.input("eval/label")
    model = process.family.trained(process.recipe.levels.global_level, process.dataset.classes)
    for variable in values(model):
        variable.assign(state.weights[variable.path])
    exits = np.stack(model(images, training=False))
    gaps.note("exit logits", exits, file.result("eval/exits/logits"))
    gaps.note("exit logits", np.mean(exits.argmax(-1) == labels, -1), file.result("eval/exits/accuracy"))
    for level in process.recipe.levels.names:
        depth = process.recipe.levels.depths[level]
        if depth not in predicted_depths(replay.meta):
            continue
        logits = process.model(state, level)(images, training=False)
        loss = tf.reduce_mean(softmax_cross_entropy(logits, tf.constant(labels)))
        place = "eval/ensemble" if depth == replay.deepest else f"eval/depth{depth}"
        gaps.note("prediction", loss, file.result(f"{place}/loss"))
    found, _ = process.evaluate(state)
    gaps.note("prediction", found["global_loss"], file.result("eval/ensemble/loss"))
    gaps.note("prediction", found["global_accuracy"] / 100, file.result("eval/ensemble/accuracy"))


def replay(path):
    """All stages of a file: (stage, largest difference, tolerance)."""
    given, gaps = Replay(path), Gaps()
    state = compare_rounds(given, gaps)
    compare_predictions(given, state, gaps)
    return gaps.told(given.file, stages(given.meta))


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
