"""Shared code of the replays: data, recipes, plans, one client's training, and the comparisons of a round.

Each `methods_*.py` has `replay(path)`, which returns (stage, largest difference, tolerance) of every stage.
"""

import dataclasses
import json
from dataclasses import dataclass

import numpy as np
import tensorflow as tf
from methods_files import variable_paths

from hetero_tf import recipe
from hetero_tf.data.dataset import Dataset, Split
from hetero_tf.data.partitions.partition import Partition
from hetero_tf.data.partitions.shares import ClientExamples
from hetero_tf.planning.packing import BlockPlan
from hetero_tf.planning.plan import Plan
from hetero_tf.rounds.block_training import RoundScalars, train_block
from hetero_tf.rounds.merge import coverage, merge_updates
from hetero_tf.run.learning_process import learning_process


class Examples:
    """Collector of the batches of all clients as one training split; each becomes the ids of its examples."""

    def __init__(self):
        self.images, self.labels = [], []

    def add(self, images, labels):
        """Add one batch (images with channels last) and return its ids."""
        first = sum(map(len, self.labels))
        self.images.append(images)
        self.labels.append(labels)
        return np.arange(first, first + len(labels), dtype=np.int32)

    def batches(self, file, prefix):
        """Add the batches under a prefix, in order, and return their ids."""
        return [self.add(images, labels) for images, labels in file.batches(prefix)]

    def rounds(self, file):
        """Add the batches of every client of every round; return `{client: ids of its batches}` of each round."""
        return [
            {client: self.batches(file, f"round{number}/client{client}") for client in cohort}
            for number, cohort in enumerate(file.cohorts)
        ]

    def clients(self, file):
        """Add the batches of every client, equal in all rounds; return `{client: ids of its batches}`."""
        clients = sorted({client for cohort in file.cohorts for client in cohort})
        return {client: self.batches(file, f"client{client}") for client in clients}

    def dataset(self, classes, source, test=None):
        """Return the `Dataset`. `test` is (images, labels) of its test split; None: the first training example."""
        train = Split(np.concatenate(self.images), np.concatenate(self.labels))
        return Dataset(train, Split(*test or (train.x[:1], train.y[:1])), classes=classes, source=source)


@dataclass(frozen=True)
class Entry:
    """One slot of a plan: a client, its level's index in the mix, and each step's batch of ids, stage and start."""

    client: int
    level: int
    batches: list
    stages: list | None = None
    starts: list | None = None
    member: int = 0


def named_levels(values):
    """Return `{name of its level: value}`, the largest first."""
    return dict(zip("abcdefghijklmnopqrstuvwxyz", sorted(set(values), reverse=True)))


def recipe_text(file, clients, layers, widths, **sections):
    """Return a complete recipe with placeholder data.

    Args:
        file: `File`. Its meta data have the optimizer's settings, without `lr` if each round has a rate.
        clients: Number of clients.
        layers: Lines of model.layers.
        widths: `{level: width}`.
        sections: Contents of sections, which extend or replace the defaults below.
    """
    optimizer = {"learning_rate": file.meta.get("lr", 0.1), "momentum": file.meta.get("momentum", 0.0)}
    document = {
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
        document[name] = document.get(name, {}) | content if isinstance(content, dict) else content
    # JSON is valid YAML; the lines of layers have tags, which JSON lacks.
    top = "".join(f"{name}: {json.dumps(content)}\n" for name, content in document.items())
    return top + "model:\n  layers:\n" + "".join(f"    - {line}\n" for line in layers)


def post_activation_resnet(meta, blocks, norm, stem, scaled=""):
    """A ResNet whose norms follow its convolutions: lines of model.layers, and `{PyTorch module: Keras layer}`.

    `meta` has a width and `blocks` a number of blocks for each stage. Names of PyTorch's norms begin with `stem`;
    `scaled` is a prefix of every width.
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
    """Build a `Plan` of entries, in their order."""
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
    """Build the learning process of a recipe text.

    Args:
        text: The recipe.
        dataset: `Dataset`.
        sizes: Number of training examples of each client.
        labels: Labels of each client; None: all.
        rates: Learning rate of each round; None: the recipe's.
        tests: Rows of each client's test examples; None: no examples.
    """
    mask = np.ones((len(sizes), dataset.classes), bool)
    for client, client_labels in enumerate(labels or ()):
        mask[client] = np.isin(np.arange(dataset.classes), client_labels)
    train = ClientExamples.from_sizes(np.zeros(sum(sizes), np.int32), sizes)
    test = ClientExamples.empty(len(sizes)) if tests is None else ClientExamples.from_lists(tests)
    partition = Partition(train=train, test=test, label_mask=mask)
    process = learning_process(recipe.loads(text, "parity"), dataset, partition, parallel=2, device="cpu")
    if rates is not None:
        object.__setattr__(process, "learning_rate", rates.__getitem__)
    return process


def state_of(process, weights, round=0):
    """Return a new `State` before a round with global values `{path: array}`; other values stay initial."""
    start, dtype = process.initialize(), process.recipe.float_type
    unknown = sorted(weights.keys() - start.weights.keys())
    if unknown:
        raise SystemExit(f"the model has no variables {unknown}")
    values = {
        path: tf.constant(weights[path], dtype) if path in weights else value for path, value in start.weights.items()
    }
    personal = {path: tf.zeros_like(table) + values[path] for path, table in start.clients.get("personal", {}).items()}
    clients = {**start.clients, "personal": personal} if personal else start.clients
    return dataclasses.replace(start, round=round, weights=values, clients=clients)


@dataclass(frozen=True)
class Trained:
    """Result of one client: losses and gradient norms of its steps, `{path: value}`, the same of each peer, its row."""

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
        """Train the client in a slot of a plan from a `State`, in a block without other clients: `Trained`."""
        number, steps = self.process.family.submodel_of[plan.levels[slot]], int(plan.steps[slot])
        block, contained = self.process.setup.submodels[number].block, self.process.setup.layout.cut.contained
        empty = [(0, block.clients - 1)]
        work = BlockPlan(
            np.pad(plan.clients[slot : slot + 1], empty, constant_values=-1),
            np.pad(plan.members[slot : slot + 1], empty),
            np.int32(steps),
            np.pad(plan.rows[slot : slot + 1, :steps], [*empty, (0, 0), (0, 0)], constant_values=-1),
            plan.starts[slot, :steps],
            plan.stages[slot, :steps],
        )
        rate = tf.constant(self.process.learning_rate(state.round), self.process.recipe.float_type)
        if number not in self._compiled:
            self._compiled[number] = self._compile(self.process.setup.submodels[number])
        values = self.process.state_layout.values_of(state)
        row, losses, norms, memory = self._compiled[number](
            values,
            RoundScalars(tf.constant(state.round), tf.constant(0), rate),
            tf.nest.map_structure(tf.constant, work),
        )
        paths = [path for path, contains in zip(self.process.paths, contained, strict=True) if contains[number]]

        def named(row, network=0):
            return {path: value.numpy() for path, value in zip(paths, block.values_of(row, network), strict=True)}

        remembered = named(memory[0][0]) if memory else None
        peers = [named(row, network) for network in range(1, block.networks)]
        return Trained(losses.numpy(), norms.numpy(), named(row), remembered, peers, row.numpy())

    def _compile(self, submodel):
        layout, dtype, clients = self.process.state_layout, self.process.recipe.float_type, submodel.block.clients
        # One trace for every number of steps and every size of a batch.
        shapes = BlockPlan([clients], [clients], [], [clients, None, None], [None], [None])
        signature = [
            layout.build(tf.TensorSpec),
            RoundScalars(tf.TensorSpec([], tf.int32), tf.TensorSpec([], tf.int32), tf.TensorSpec([], dtype)),
            BlockPlan(*(tf.TensorSpec(shape, tf.int32) for shape in shapes)),
        ]

        @tf.function(autograph=False, input_signature=signature)
        def train(values, scalars, work):
            result = train_block(self.process.setup, submodel, layout.pack(values), scalars, work)
            memory = [] if result.memory is None else [result.memory]
            return result.local.rows[0], result.local.losses[:, 0], result.local.gradient_norms[:, 0], memory

        return train


def predict(process, state, images, level=None, training=False):
    """Return the logits of a level's predictor; with `training` its norms use the moments of these images."""
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
        self.shapes = dict(zip(process.paths, process.setup.layout.cut.shapes, strict=True))
        self.trainer = Trainer(process)

    def read_values(self, prefix, smaller=()):
        """Read `{path: value}` under a prefix of the file; `smaller`: values whose shapes are not the global ones."""
        shapes = self.shapes | {path: value.shape for path, value in dict(smaller).items()}
        return self.file.weights(prefix, self.paths, shapes, self.flattened)

    def expected(self, prefix, smaller=()):
        """Read `{path: value}` under a prefix of the file's results."""
        return self.read_values(self.file.prefix + prefix, smaller)

    def start(self):
        """The `State` before the first round."""
        return state_of(self.process, self.read_values("global_init"))

    def plan_of(self, batches, segment=0):
        """Build the plan of a round of `{client: its batches}`; each step starts `segment` words after the last one."""
        names, levels, entries = self.process.recipe.levels.names, self.meta["levels"], []
        for client, client_batches in batches.items():
            starts = [segment * step for step in range(len(client_batches))]
            entries.append(Entry(client, names.index(levels[client]), client_batches, starts=starts))
        return plan(entries)

    def note(self, stage, actual, name):
        """Compare an array with a result of the file."""
        self.gaps.note(stage, actual, self.file.result(name))

    def compare_client(self, state, plan, slot, prefix):
        """Train the client in a slot of a plan and compare its losses and values with the file: `Trained`."""
        trained = self.trainer(state, plan, slot)
        self.note("loss", trained.losses, f"{prefix}/loss")
        self.compare_values(trained, prefix)
        return trained

    def compare_values(self, trained, prefix):
        """Compare the values that a client returns with the file."""
        self.gaps.note("client", trained.values, self.expected(f"{prefix}/after", trained.values))

    def compare_round(self, state, plan, number, covered=None, stage="round"):
        """Run a planned round, compare its result, and return the `State` after it.

        Entries that no client covers must keep their bits, here and in the file.
        `covered`: `{path: mask of the covered entries}`.
        """
        after, expected = run_planned_round(self.process, state, plan), self.expected(f"round{number}/global_after")
        self.gaps.note(stage, after.weights, expected)
        if covered is not None:
            before = self.expected(f"round{number - 1}/global_after") if number else self.read_values("global_init")
            self.gaps.note_unchanged("unchanged", after.weights, state.weights, covered)
            self.gaps.note_unchanged("unchanged", expected, before, covered)
        return after


def run_planned_round(process, state, plan):
    """Return the `State` after one planned round."""
    return process.run(state, [plan])[0]


def merge(process, state, total, masks, counts):
    """Run the production merge and return `{path: value}`.

    `total` is the sum over clients of each entry of the global row, weighted by `counts`; `masks` is
    `{axis: [clients, size]}`, 1 for the coordinates of each client.
    """
    layout, cut = process.state_layout, process.setup.layout.cut
    rows, covered = layout.pack(layout.values_of(state)), coverage(cut, masks, [counts] * len(cut.shapes))
    return layout.unpack(merge_updates(process.setup, rows, total, covered))["weights"]
