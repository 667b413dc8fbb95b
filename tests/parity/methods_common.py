"""What the replays of vectors share: data, recipes, plans, one client's training, and the comparisons of a round.

Each `methods_*.py` has `replay(path)`, which gives (stage, largest difference, tolerance) one after the other.
"""

import json
from dataclasses import dataclass

import numpy as np
import tensorflow as tf
from methods_files import variable_paths

from hetero_tf import recipe
from hetero_tf.data.dataset import Dataset, Split
from hetero_tf.models.state import in_order
from hetero_tf.partitions.partition import Partition
from hetero_tf.partitions.shares import ClientExamples
from hetero_tf.planning.plan import Plan
from hetero_tf.process.learning_process import State, learning_process
from hetero_tf.rounds.block_training import BlockPlan, train_block
from hetero_tf.rounds.global_row import joined
from hetero_tf.rounds.merge import coverage, merge_variables


class Examples:
    """Collects the batches of all clients as one training split; each becomes the ids of its examples."""

    def __init__(self):
        self.images, self.labels = [], []

    def add(self, images, labels):
        """Adds one batch (images with channels last) and gives its ids."""
        first = sum(map(len, self.labels))
        self.images.append(images)
        self.labels.append(labels)
        return np.arange(first, first + len(labels), dtype=np.int32)

    def batches(self, file, place):
        """Adds the batches under a place, in order, and gives their ids."""
        return [self.add(images, labels) for images, labels in file.batches(place)]

    def rounds(self, file):
        """Adds the batches of every client of every round: for each round `{client: ids of its batches}`."""
        return [
            {client: self.batches(file, f"round{number}/client{client}") for client in cohort}
            for number, cohort in enumerate(file.cohorts)
        ]

    def clients(self, file):
        """Adds the batches of every client, which are the same in all rounds: `{client: ids of its batches}`."""
        clients = sorted({client for cohort in file.cohorts for client in cohort})
        return {client: self.batches(file, f"client{client}") for client in clients}

    def dataset(self, classes, source, test=None):
        """The `Dataset`; where no (images, labels) are given as its test split, the first example stands for them."""
        train = Split(np.concatenate(self.images), np.concatenate(self.labels))
        return Dataset(train, Split(*test or (train.x[:1], train.y[:1])), classes=classes, source=source)


@dataclass(frozen=True)
class Entry:
    """One place of a plan: a client, its level's position in the mix, and each step's batch of ids, stage and start."""

    client: int
    level: int
    batches: list
    stages: list | None = None
    starts: list | None = None
    member: int = 0


def named_levels(values):
    """`{name of its level: value}`, the largest first."""
    return dict(zip("abcdefghijklmnopqrstuvwxyz", sorted(set(values), reverse=True)))


def recipe_text(file, clients, layers, widths, **sections):
    """A whole recipe with stand-in data.

    Args:
        file: `File`, whose meta data name settings of the optimizer; those with a rate of each round have no `lr`.
        clients: Their number.
        layers: The lines of model.layers.
        widths: `{level: width}`.
        sections: Their contents, beside or instead of what stands here.
    """
    optimizer = {"learning_rate": file.meta.get("lr", 0.1), "momentum": file.meta.get("momentum", 0.0)}
    given = {
        "name": "parity",
        "data": {"name": "synthetic"},
        "input": {"name": "images"},
        "partition": {"name": "iid", "clients": clients},
        "levels": {"widths": widths, "mix": dict.fromkeys(widths, 1)},
        "round": {"clients": max(map(len, file.cohorts))},
        "client": {"batch_size": 10, "loss": "cross_entropy"},
        "optimizer": {**optimizer, "weight_decay": file.meta.get("weight_decay", 0.0), "clip_norm": None},
        "rounds": 1,
        "engine": "sequential",
        "precision": "float64",
    }
    for name, content in sections.items():
        given[name] = given.get(name, {}) | content if isinstance(content, dict) else content
    # JSON is YAML too; the lines of layers have tags, which JSON lacks.
    top = "".join(f"{name}: {json.dumps(content)}\n" for name, content in given.items())
    return top + "model:\n  layers:\n" + "".join(f"    - {line}\n" for line in layers)


def post_activation_resnet(meta, blocks, norm, stem, scaled=""):
    """A ResNet whose norms follow its convolutions: lines of model.layers, and `{PyTorch module: Keras layer}`.

    Of each stage `meta` has a width and `blocks` a number of blocks. PyTorch's norms begin with `stem`; `scaled` stands
    before every width.
    """
    widths = [f"{scaled}{width}" for width in meta["widths"]]
    lines = [f"[PaddedConv2D: {{filters: {widths[0]}, use_bias: false}}, Norm: {{kind: {norm}}}, ReLU]"]
    stems = {"conv1": "0_0_padded_conv2d", f"{stem}1": f"0_1_norm/{norm}"}
    for stage, (width, count) in enumerate(zip(widths, blocks, strict=True), 1):
        for block in range(count):
            name, layer = f"layer{stage}.{block}", f"{len(lines)}_0_post_activation_block"
            stems |= {f"{name}.conv{part}": f"{layer}/conv{part}" for part in (1, 2)}
            stems |= {f"{name}.{stem}{part}": f"{layer}/norm{part}/{norm}" for part in (1, 2)}
            stems |= {f"{name}.shortcut.0": f"{layer}/shortcut", f"{name}.shortcut.1": f"{layer}/norm3/{norm}"}
            stride = 2 if stage > 1 and block == 0 else 1
            lines.append(f"PostActivationBlock: {{filters: {width}, stride: {stride}, norm: {norm}, scaler: false}}")
    stems["linear"] = f"{len(lines)}_1_dense"
    return [*lines, "[GlobalAveragePooling2D, Dense: {units: !classes}]"], stems


def plan(entries):
    """A `plans.Plan` of entries, in their order."""
    steps = [len(entry.batches) for entry in entries]
    size = (len(entries), max(steps), max(len(batch) for entry in entries for batch in entry.batches))
    rows, starts, stages = np.full(size, -1, np.int32), np.zeros(size[:2], np.int32), np.zeros(size[:2], np.int32)
    for slot, entry in enumerate(entries):
        stages[slot, : steps[slot]] = 0 if entry.stages is None else entry.stages
        starts[slot, : steps[slot]] = 0 if entry.starts is None else entry.starts
        for step, batch in enumerate(entry.batches):
            rows[slot, step, : len(batch)] = batch
    clients, levels, members = (
        np.asarray([getattr(entry, name) for entry in entries], np.int32) for name in ("client", "level", "member")
    )
    return Plan(clients, levels, np.asarray(steps, np.int32), rows, starts, stages, members)


def build_process(text, dataset, sizes, labels=None, rates=None, tests=None):
    """The learning process of a recipe text; of each client the number of examples, its labels, and its test examples.

    None stands for all labels and for no test examples; `rates` may give the learning rate of each round.
    """
    mask = np.ones((len(sizes), dataset.classes), bool)
    for client, own in enumerate(labels or ()):
        mask[client] = np.isin(np.arange(dataset.classes), own)
    train = ClientExamples.from_sizes(np.zeros(sum(sizes), np.int32), sizes)
    test = ClientExamples.empty(len(sizes)) if tests is None else ClientExamples.from_lists(tests)
    partition = Partition(train=train, test=test, label_mask=mask)
    process = learning_process(recipe.loads(text, "parity"), dataset, partition, parallel=2, device="cpu")
    if rates is not None:
        object.__setattr__(process, "learning_rate", rates.__getitem__)
    return process


def state_of(process, weights, round=0):
    """A fresh `State` before a round with global values `{path: array}`; those not given keep their initial value."""
    start, dtype = process.initialize(), process.recipe.float_type
    unknown = sorted(weights.keys() - start.weights.keys())
    if unknown:
        raise SystemExit(f"the model has no variables {unknown}")
    values = {
        path: tf.constant(weights[path], dtype) if path in weights else value for path, value in start.weights.items()
    }
    personal = {path: tf.zeros_like(table) + values[path] for path, table in start.clients.get("personal", {}).items()}
    clients = {**start.clients, "personal": personal} if personal else start.clients
    return State(round, values, start.server, clients)


@dataclass(frozen=True)
class Trained:
    """What one client returns: losses and gradient norms of its steps, `{path: value}`, the same of each peer, its row."""

    losses: np.ndarray
    norms: np.ndarray
    values: dict
    memory: dict | None
    peers: list[dict]
    row: np.ndarray


class Trainer:
    """Local training of one client at a time by the round's own code; compiled once for each sub-model."""

    def __init__(self, process):
        self.process, self._compiled = process, {}

    def __call__(self, state, plan, slot):
        """Trains the client in a slot of a plan from a `State`, alone in its stack: `Trained`."""
        submodel, steps = self.process.family.submodel_of[plan.levels[slot]], int(plan.steps[slot])
        stack, held = self.process.parts.engine.stacks[submodel], self.process.parts.placement.cut.contained
        empty = [(0, stack.clients - 1)]
        work = (
            np.pad(plan.clients[slot : slot + 1], empty, constant_values=-1),
            np.pad(plan.members[slot : slot + 1], empty),
            np.int32(steps),
            np.pad(plan.rows[slot : slot + 1, :steps], [*empty, (0, 0), (0, 0)], constant_values=-1),
            plan.starts[slot, :steps],
            plan.stages[slot, :steps],
        )
        given = in_order(state)
        rate = tf.constant(self.process.learning_rate(state.round), self.process.recipe.float_type)
        if submodel not in self._compiled:
            self._compiled[submodel] = self._compile(submodel, given)
        row, losses, norms, memory = self._compiled[submodel](
            given["weights"], given["tables"], tf.constant(state.round), [tf.constant(part) for part in work], rate
        )
        paths = [path for path, holds in zip(self.process.paths, held, strict=True) if holds[submodel]]

        def named(row, network=0):
            return {path: value.numpy() for path, value in zip(paths, stack.from_row(row, network), strict=True)}

        remembered = named(memory[0][0]) if memory else None
        peers = [named(row, network) for network in range(1, stack.networks)]
        return Trained(losses.numpy(), norms.numpy(), named(row), remembered, peers, row.numpy())

    def _compile(self, submodel, given):
        clients = self.process.parts.engine.stacks[submodel].clients
        tensors = tf.nest.map_structure(lambda value: tf.TensorSpec(value.shape, value.dtype), given)
        # One trace for every number of steps and every size of a batch.
        shapes = ([clients], [clients], [], [clients, None, None], [None], [None])
        number, *work = (tf.TensorSpec(shape, tf.int32) for shape in ([], *shapes))
        rate = tf.TensorSpec([], self.process.recipe.float_type)
        signature = [tensors["weights"], tensors["tables"], number, work, rate]

        @tf.function(autograph=False, input_signature=signature)
        def train(weights, tables, number, work, rate):
            state = {"weights": joined(weights), "slots": [], "tables": tables}
            update = train_block(self.process.parts, submodel, state, number, tf.constant(0), BlockPlan(*work), rate)
            memory = [] if update.memory is None else [update.memory]
            return update.local.weights[0], update.local.losses[:, 0], update.local.gradient_norms[:, 0], memory

        return train


def predict(process, state, images, level=None, training=False):
    """Logits of a level's predictor; with `training` its norms use the moments of the images themselves."""
    images = tf.constant(images, process.recipe.float_type)
    return process.network(state, level, statistics={})(images, training=training)


def mean_loss(logits, labels):
    """Cross-entropy, as the mean over examples."""
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))


class Replay:
    """One file as a learning process, whose clients and rounds are compared with those of the file.

    Args:
        file: `File`.
        gaps: `Gaps` that note every difference.
        process: The learning process of the file's recipe.
        stems: `{PyTorch module: Keras layer}`.
    """

    # As in `File.weights`.
    flattened = None

    def __init__(self, file, gaps, process, stems):
        self.file, self.meta, self.gaps, self.process = file, file.meta, gaps, process
        self.paths = variable_paths(process.paths, stems)
        self.shapes = dict(zip(process.paths, process.parts.placement.cut.shapes, strict=True))
        self.trainer = Trainer(process)

    def given(self, place, smaller=()):
        """`{path: value}` of what the file has under a place; `smaller`: values with other shapes than globally."""
        shapes = self.shapes | {path: value.shape for path, value in dict(smaller).items()}
        return self.file.weights(place, self.paths, shapes, self.flattened)

    def expected(self, place, smaller=()):
        """The same under a place of its results."""
        return self.given(self.file.prefix + place, smaller)

    def start(self):
        """The `State` before the first round."""
        return state_of(self.process, self.given("global_init"))

    def plan_of(self, batches, segment=0):
        """The plan of a round of `{client: its batches}`; each step starts so many words behind the one before."""
        names, levels, entries = self.process.recipe.levels.names, self.meta["levels"], []
        for client, own in batches.items():
            starts = [segment * step for step in range(len(own))]
            entries.append(Entry(client, names.index(levels[client]), own, starts=starts))
        return plan(entries)

    def note(self, stage, found, name):
        """Compares an array with a result of the file."""
        self.gaps.note(stage, found, self.file.result(name))

    def compare_client(self, state, plan, slot, place):
        """Trains the client in a slot of a plan; its losses and values against those of the file: `Trained`."""
        found = self.trainer(state, plan, slot)
        self.note("loss", found.losses, f"{place}/loss")
        self.compare_values(found, place)
        return found

    def compare_values(self, found, place):
        """The values that a client returns against those of the file."""
        self.gaps.note("client", found.values, self.expected(f"{place}/after", found.values))

    def compare_round(self, state, plan, number, covered=None, stage="round"):
        """Runs a planned round and compares its result: the `State` after it.

        What no client covers must keep its bits, here as in the file; `covered`: `{path: mask of the covered entries}`.
        """
        after, expected = merged(self.process, state, plan), self.expected(f"round{number}/global_after")
        self.gaps.note(stage, after.weights, expected)
        if covered is not None:
            before = self.expected(f"round{number - 1}/global_after") if number else self.given("global_init")
            self.gaps.note_kept("kept", after.weights, state.weights, covered)
            self.gaps.note_kept("kept", expected, before, covered)
        return after


def merged(process, state, plan):
    """The `State` after one planned round."""
    return process.run(state, [plan])[0]


def merge(process, state, total, masks, counts):
    """`{path: value}` after the production merge alone.

    `total` has the sum over clients of each variable, weighed by `counts`; `masks` is `{axis: [clients, size]}`, 1 for
    what each client holds.
    """
    covered = coverage(process.parts.placement.cut, masks, [counts] * len(total))
    found = merge_variables(process.parts, in_order(state), total, covered)
    return dict(zip(process.paths, found["weights"], strict=True))
