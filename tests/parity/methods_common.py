"""What the replays of the methods' vectors share: data, plans and one client's training.

Each `methods_*.py` has `replay(path)`, which gives (stage, largest difference, tolerance) one after the other.
"""

import dataclasses
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from hetero_tf import recipe
from hetero_tf.data.dataset import Dataset, Split
from hetero_tf.partitions.partition import Partition
from hetero_tf.partitions.shares import Shares
from hetero_tf.planning.plan import Plan
from hetero_tf.process import State, learning_process
from hetero_tf.rounds.stack_update import StackPlan, train_stack
from hetero_tf.rounds.state import in_order


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
        return [
            self.add(file.input(f"{place}/batch{step}/img"), file.input(f"{place}/batch{step}/label"))
            for step in range(file.steps(place))
        ]

    def dataset(self, classes, source):
        """The `Dataset`; its test split is the first example, as the replays predict by themselves."""
        train = Split(np.concatenate(self.images), np.concatenate(self.labels))
        return Dataset(train, Split(train.x[:1], train.y[:1]), classes=classes, source=source)


@dataclass(frozen=True)
class Entry:
    """One place of a plan: a client and its level's position in the mix; of each step the batch's ids, stage and start."""

    client: int
    level: int
    batches: list
    stages: list | None = None
    starts: list | None = None
    member: int = 0


def recipe_head(clients, lines):
    """How the recipes of all files begin: stand-in data, the number of clients, and the lines of model.layers."""
    layers = "\n".join(f"    - {line}" for line in lines)
    top = "name: parity\ndata: {name: synthetic}\ninput: {name: images}\n"
    return f"{top}partition: {{name: iid, clients: {clients}}}\nmodel:\n  layers:\n{layers}"


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


def build_process(text, dataset, sizes, labels=None, rates=None):
    """The learning process of a recipe text.

    Args:
        text: A whole recipe with `precision: float64`.
        dataset: `Dataset`.
        sizes: Examples of each client, for merges that weigh by them.
        labels: Labels of each client; None: all.
        rates: `round -> learning rate`; None: as the recipe says.
    """
    mask = np.ones((len(sizes), dataset.classes), bool)
    for client, own in enumerate(labels or ()):
        mask[client] = np.isin(np.arange(dataset.classes), own)
    train = Shares.from_sizes(np.zeros(sum(sizes), np.int32), sizes)
    partition = Partition(train=train, test=Shares.empty(len(sizes)), label_mask=mask)
    process = learning_process(recipe.loads(text, "parity"), dataset, partition, parallel=2, device="cpu")
    if rates is not None:
        object.__setattr__(process, "learning_rate", rates)
    return process


def state_of(process, weights, round=0):
    """A fresh `State` with the given global values.

    Args:
        weights: `{variable path: array}`; what it lacks keeps its initial value.
        round: Number of the next round.
    """
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
    """What one client returns: losses and gradient norms of its steps, `{path: value}`, and its whole row."""

    losses: np.ndarray
    norms: np.ndarray
    values: dict
    memory: dict | None
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

        def named(row):
            return {path: value.numpy() for path, value in zip(paths, stack.from_row(row), strict=True)}

        remembered = named(memory[0][0]) if memory else None
        return Trained(losses.numpy(), norms.numpy(), named(row), remembered, row.numpy())

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
            state = {"weights": weights, "slots": [], "tables": tables}
            update = train_stack(self.process.parts, submodel, state, number, tf.constant(0), StackPlan(*work), rate)
            memory = [] if update.memory is None else [update.memory]
            return update.local.weights[0], update.local.losses[:, 0], update.local.gradient_norms[:, 0], memory

        return train


def predict(process, state, images, level=None, training=False):
    """Logits of a level's predictor; with `training` its norms use the moments of the images themselves."""
    return process.model(state, level, statistics={})(tf.constant(images), training=training)


def merged(process, state, plan):
    """The `State` after one planned round."""
    return process.run(state, [plan])[0]


def with_round(state, number):
    """The same `State` before the round of a number."""
    return dataclasses.replace(state, round=number)
