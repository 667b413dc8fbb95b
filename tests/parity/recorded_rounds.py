"""The replay of one file: every client, every round and the predictions, by whatever arrays the file lists.

`Replay` has the parts of all methods; `recorded_methods` overrides the recipe of a file and what is special to a method.
"""

import dataclasses
import json
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from recorded_file import File, Gaps, variable_paths

from hetero_tf import recipe
from hetero_tf.data.codecs import picture
from hetero_tf.data.dataset import Dataset, Split
from hetero_tf.data.partitions.partition import ClientExamples, Partition
from hetero_tf.planning.packing import BlockPlan
from hetero_tf.planning.plan import Plan
from hetero_tf.rounds.block_training import RoundScalars, train_block
from hetero_tf.run.learning_process import learning_process


@dataclass(frozen=True)
class Run:
    """One replay of a file: the prefix of its results, the precision, the engine, and options of the method."""

    prefix: str = "f64/"
    precision: str = "float64"
    engine: str = "stacked"
    options: dict = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class Entry:
    """One slot of a plan: a client, its level's index in the mix, and each step's batch of ids, stage and start.

    `recorded` is the client's number in the file, if this replay gives it another one.
    """

    client: int
    level: int
    batches: list
    stages: list | None = None
    starts: list | None = None
    member: int = 0
    recorded: int | None = None

    def first(self, steps):
        """The same without the steps after some first ones."""
        cut = {name: values and values[:steps] for name, values in (("stages", self.stages), ("starts", self.starts))}
        return dataclasses.replace(self, batches=self.batches[:steps], **cut)


def plan(entries):
    """Build a `Plan` of entries, in their order."""
    steps = [len(entry.batches) for entry in entries]
    batch = max((len(batch) for entry in entries for batch in entry.batches), default=0)
    size = (len(entries), max(steps), batch)
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

    def split(self):
        """Return all examples as a split."""
        return Split(np.concatenate(self.images), np.concatenate(self.labels))


def named_levels(values):
    """Return `{name of its level: value}`, the largest first."""
    return dict(zip("abcdefghijklmnopqrstuvwxyz", sorted(set(values), reverse=True)))


def recipe_text(file, layers, clients, **sections):
    """Return a complete recipe with placeholder data.

    Args:
        file: `File`, whose settings have those of the optimizer.
        layers: Lines of model.layers.
        clients: Number of clients.
        sections: Contents of sections, which extend or replace the defaults below.
    """
    optimizer = {"learning_rate": file.meta.get("lr", 0.1), "momentum": file.meta.get("momentum", 0.0)}
    document = {
        "name": "parity",
        "data": {"name": "synthetic"},
        "input": {"name": "images"},
        "partition": {"name": "iid", "clients": clients},
        "levels": {"widths": {"a": 1}},
        "round": {"clients": max(map(len, file.cohorts), default=1)},
        "client": {"batch_size": 10, "loss": "cross_entropy"},
        "optimizer": {**optimizer, "weight_decay": file.meta.get("weight_decay", 0.0), "clip_norm": None},
        "rounds": 1,
        "precision": "float64",
    }
    for name, content in sections.items():
        document[name] = document.get(name, {}) | content if isinstance(content, dict) else content
    document["levels"].setdefault("mix", dict.fromkeys(document["levels"]["widths"], 1))
    # JSON is valid YAML; the lines of layers have tags, which JSON lacks.
    top = "".join(f"{name}: {json.dumps(content)}\n" for name, content in document.items())
    return top + "model:\n  layers:\n" + "".join(f"    - {line}\n" for line in layers)


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


class Trained(NamedTuple):
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

    def __call__(self, state, entry):
        """Train the client of an `Entry` from a `State`, in a block without other clients: `Trained`."""
        one, number = plan([entry]), self.process.family.submodel_of[entry.level]
        block, contained = self.process.setup.submodels[number].block, self.process.setup.layout.cut.contained
        idle = [(0, block.clients - 1)]
        work = BlockPlan(
            np.pad(one.clients, idle, constant_values=-1),
            np.pad(one.members, idle),
            one.steps[0],
            np.pad(one.rows, [*idle, (0, 0), (0, 0)], constant_values=-1),
            one.starts[0],
            one.stages[0],
        )
        rate = tf.constant(self.process.learning_rate(state.round), self.process.recipe.float_type)
        if number not in self._compiled:
            self._compiled[number] = self._compile(self.process.setup.submodels[number])
        row, losses, norms, memory = self._compiled[number](
            self.process.state_layout.values_of(state),
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


def with_weights(state, values):
    """Return a `State` with some global values `{path: array}` replaced."""
    constants = {path: tf.constant(value, state.weights[path].dtype) for path, value in values.items()}
    return dataclasses.replace(state, weights={**state.weights, **constants})


def mean_loss(logits, labels):
    """Cross-entropy, as the mean over examples."""
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))


class Client(NamedTuple):
    """One trained slot of a plan: the prefix of its names, the `State` before it, its `Entry` and its result."""

    prefix: str
    state: Any
    entry: Entry
    trained: Trained


class Replay:
    """One run of a file as a learning process. Every round starts from the weights of the recorded round before.

    A result `roundR/clientU/PART` is compared by the method `client_PART`; one that has no such method is an error.
    """

    RUNS = (Run(engine="sequential"), Run())
    # Tolerance of each precision; stages that allow no difference.
    TOLERANCE = {"float64": 1e-8}
    EXACT = ("cut", "unchanged")
    # As `Gaps.note`: how differences of weights and logits are measured.
    RELATIVE = False
    # As in `File.weights`.
    flattened = None

    def __init__(self, path, run):
        self.run, self.gaps, self.examples = run, Gaps(), Examples()
        self.file = File(path, run.precision, run.prefix)
        self.meta = self.file.meta
        self.batches = self.read_batches()
        layers, stems = self.network()
        execution = {"precision": run.precision, "engine": run.engine}
        self.text = recipe_text(self.file, layers, len(self.sizes()), **execution, **self.sections())
        self.process = self.build(self.text)
        # All run each round; the first one also trains single clients and predicts.
        self.processes = [self.process]
        self.stems, self.paths = stems, variable_paths(self.process.paths, stems)
        self.shapes = dict(zip(self.process.paths, self.process.setup.layout.cut.shapes, strict=True))
        self.trainer = Trainer(self.process)
        # Results of the clients of the current round.
        self.trained = []

    # What a method overrides: its network, recipe, data and plans.

    def network(self):
        """Return the lines of model.layers, and `{PyTorch module: begin of the variable's path}`."""
        raise NotImplementedError

    def sections(self):
        """Return the sections of the recipe; those of `recipe_text` have defaults."""
        raise NotImplementedError

    def sizes(self):
        """Return the number of training examples of each client, which are its weights in a merge."""
        raise NotImplementedError

    def entries(self, number):
        """Return the entries of a round."""
        raise NotImplementedError

    def compare_predictions(self, state):
        """Compare the predictions of the last state."""
        raise NotImplementedError

    def read_batches(self):
        """Collect the examples; return `{client: ids of its batches}` of each round."""
        return [
            {client: self.examples.batches(self.file, f"round{number}/client{client}") for client in cohort}
            for number, cohort in enumerate(self.file.cohorts)
        ]

    @property
    def classes(self):
        """Number of labels: in the settings, or the outputs of the last layer."""
        last = [name for name in self.file.arrays if name.startswith("global_init/")][-1]
        outputs = self.file.arrays.get("global_init/linear.bias", self.file.arrays[last])
        return self.meta.get("classes", self.meta.get("num_classes", len(outputs)))

    def dataset(self):
        """Return the `Dataset`: the collected examples, and the file's test examples or one placeholder."""
        train = self.examples.split()
        test = Split(train.x[:1], train.y[:1])
        if "eval/img" in self.file:
            test = Split(self.file.input("eval/img"), self.file.input("eval/label"))
        return Dataset(train, test, (picture.field(train.x),), self.classes, self.file.name)

    def build(self, text):
        """Build the process of a recipe."""
        return build_process(text, self.dataset(), self.sizes(), rates=self.meta.get("lr_per_round"))

    # The replay.

    def replay(self):
        """Return (stage, largest difference, tolerance) of every stage."""
        state = self.start()
        for number in range(len(self.file.cohorts)):
            state, self.trained = self.before_round(state, number), []
            for entry in self.entries(number):
                recorded = entry.client if entry.recorded is None else entry.recorded
                self.compare_client(state, f"round{number}/client{recorded}", entry)
            state = self.compare_round(state, number)
        self.compare_predictions(state)
        if unread := self.file.unread(self.run.prefix):
            raise SystemExit(f"{self.file.name}: {unread[0]} and {len(unread) - 1} more results were not compared")
        return [(stage, gap, self.tolerance(stage)) for stage, gap in self.gaps.items()]

    def tolerance(self, stage):
        """Return the largest allowed difference of a stage."""
        return 0.0 if stage in self.EXACT else self.TOLERANCE[self.run.precision]

    def read_values(self, prefix, smaller=()):
        """Read `{path: value}` under a prefix of the file; `smaller`: values whose shapes are not the global ones."""
        shapes = self.shapes | {path: value.shape for path, value in dict(smaller).items()}
        return self.file.weights(prefix, self.paths, shapes, self.flattened)

    def expected(self, prefix, smaller=()):
        """Read `{path: value}` under a prefix of the file's results."""
        return self.read_values(self.file.prefix + prefix, smaller)

    def note(self, stage, actual, name):
        """Compare an array with a result of the file."""
        self.gaps.note(stage, actual, self.file.result(name), self.RELATIVE)

    def start(self):
        """Return the `State` before the first round; the file must have every value."""
        state, values = self.process.initialize(), self.read_values("global_init")
        if missing := state.weights.keys() - values.keys():
            raise SystemExit(f"{self.file.name}: no values for {sorted(missing)}")
        personal = {path: tf.zeros_like(table) + values[path] for path, table in state.clients["personal"].items()}
        return with_weights(dataclasses.replace(state, clients={**state.clients, "personal": personal}), values)

    def before_round(self, state, number):
        """Return the `State` before a round, with the round's number in the recorded program."""
        cohort = self.meta["rounds"][number] if "rounds" in self.meta else {}
        return dataclasses.replace(state, round=cohort.get("t", number))

    def compare_client(self, state, prefix, entry):
        """Train a client and compare every result that the file lists."""
        client = Client(prefix, state, entry, self.trainer(state, entry))
        self.trained.append(client)
        parts = self.file.parts(prefix)
        for part in ("loss", "after"):
            if part not in parts and not self.file.omits(f"{prefix}/{part}"):
                raise SystemExit(f"the file lacks {self.file.prefix}{prefix}/{part}")
        for part in parts:
            getattr(self, f"client_{part.rstrip('0123456789')}")(client, f"{prefix}/{part}")

    def step_logits(self, client, step):
        """Return the logits of all exits in a step of a client, before its update: [exits, batch, classes]."""
        entry, setup = client.entry, self.process.setup
        block = setup.submodels[self.process.family.submodel_of[entry.level]].block
        row, inputs = self.trainer(client.state, entry.first(step)).row, self.process.dataset.train.x
        row, inputs = (
            tf.repeat(tf.constant(each)[None], block.clients, 0) for each in (row, inputs[entry.batches[step]])
        )
        joint = block.stages[entry.stages[step] if entry.stages else 0].joint
        return tf.stack([output[0] for output in joint.call(row, tf.zeros([block.clients, 4], tf.int32), inputs)[0]])

    def loss_and_accuracy(self, client, steps, losses):
        """Return the means over the examples of some steps: of the losses of all steps, and of the first exit's hits."""
        batches = [client.entry.batches[step] for step in steps]
        labels = self.process.dataset.train.y[np.concatenate(batches)]
        hits = np.argmax(np.concatenate([self.step_logits(client, step)[0] for step in steps]), -1) == labels
        return np.average(losses[steps], weights=list(map(len, batches))), np.mean(hits)

    def client_loss(self, client, name):
        """Compare the losses of the steps."""
        self.note("loss", client.trained.losses, name)

    def client_grad_norm(self, client, name):
        """Compare the gradient norms before clipping."""
        self.gaps.note("norm", client.trained.norms, self.file.result(name), relative=True)

    def client_after(self, client, name):
        """Compare the trained values; those that the recorded client does not change keep their bits."""
        values = client.trained.values
        recorded = self.expected(name, values)
        self.gaps.note("client", values, recorded, self.RELATIVE)
        whole = {path: value for path, value in recorded.items() if value.shape == self.shapes[path]}
        self.gaps.note_unchanged("unchanged", values, whole, client.state.weights)

    def compare_round(self, state, number):
        """Run a complete round and compare it; return the `State` after it with the recorded weights.

        Entries that the recorded round does not change keep their bits.
        """
        recorded, planned = self.recorded_round(number), plan(self.entries(number))
        if f"round{number}/weights" in self.file:
            sizes = np.asarray(self.sizes())[self.file.cohorts[number]]
            self.gaps.note("weights", sizes / sum(self.sizes()), self.file.arrays[f"round{number}/weights"])
        before = {path: np.asarray(value) for path, value in state.weights.items()}
        for process in self.processes:
            after = process.run(state, [planned])[0]
            compared = {path: after.weights[path] for path in after.weights if self.is_merged(path)}
            self.gaps.note("round", compared, recorded, self.RELATIVE)
            self.gaps.note_unchanged("unchanged", after.weights, recorded, before)
        return with_weights(after, recorded)

    def is_merged(self, path):
        """True if the recorded program merges a variable as hetero_tf does."""
        return True

    def recorded_round(self, number):
        """Read the merged weights after a round."""
        recorded = self.expected(f"round{number}/global_after")
        return {path: value for path, value in recorded.items() if self.is_merged(path)}

    def predict(self, state, images, level=None, training=False):
        """Return the logits of a level's predictor; with `training` its norms use the moments of these images."""
        images = tf.constant(images, self.process.recipe.float_type)
        return self.process.network(state, level, statistics={})(images, training=training)

    def eval_logits(self, state, level=None, training=False):
        """Return the logits of each test batch."""
        return [self.predict(state, images, level, training).numpy() for images, _ in self.file.batches("eval")]

    def metrics(self, logits):
        """Return the mean loss over the test batches, and the accuracy over the examples."""
        labels = [each for _, each in self.file.batches("eval")]
        hits = np.argmax(np.concatenate(logits), -1) == np.concatenate(labels)
        return np.mean(list(map(mean_loss, logits, labels))), np.mean(hits)

    def compare_logits(self, state, prefix, level=None, training=False):
        """Compare the logits of the test batches, and their metrics if the file lists them under a prefix."""
        logits = self.eval_logits(state, level, training)
        for batch, value in enumerate(logits):
            # Sorted ensembles predict the first batch only.
            if batch == 0 or not prefix.startswith("sort/"):
                self.note("logits", value, f"{prefix}/batch{batch}/logits")
        if f"{self.file.prefix}{prefix}/loss_acc" in self.file:
            self.note("metrics", self.metrics(logits), f"{prefix}/loss_acc")

    def client_state(self, state, client):
        """Return a `State` in which all clients have the personal values of one client."""
        personal = {path: tf.stack([table[client]] * len(table)) for path, table in state.clients["personal"].items()}
        return dataclasses.replace(state, clients={**state.clients, "personal": personal})
