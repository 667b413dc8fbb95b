"""A vector file of the HeteroFL authors' code as a learning process: its data, its plans and its masks."""

import dataclasses

import numpy as np
import tensorflow as tf
from methods_common import Entry, Examples, plan

from hetero_tf import recipe
from hetero_tf.data.dataset import Dataset, Split
from hetero_tf.inputs import masked_text
from hetero_tf.partitions.partition import Partition
from hetero_tf.partitions.shares import Shares
from hetero_tf.process import State, learning_process
from recipes import recipe_text

STAGES = ("cut", "loss", "norm", "client", "merge", "round", "kept", "sbn", "global", "local")


class Replay:
    """One file in one precision, set up as a learning process whose rate is that of the file."""

    def __init__(self, vectors, engine, label_cut):
        self.vectors = vectors
        self.recipe = recipe.loads(recipe_text(vectors.meta, vectors.precision, engine, label_cut), vectors.name)
        self.levels = [self.recipe.levels.names.index(level) for level in vectors.meta["levels"]]
        self.dataset, self.plans = _text_data(vectors) if vectors.text else _image_data(vectors)
        self.plans = [self._with_levels(plan) for plan in self.plans]
        process = learning_process(self.recipe, self.dataset, self._partition())
        if vectors.text:
            source = _with_given_masks(vectors, self.plans)
            examples = dataclasses.replace(process.parts.examples, input=source)
            parts = dataclasses.replace(process.parts, examples=examples)
            # What measures the model reads the examples too.
            evaluator = dataclasses.replace(process.evaluator, examples=examples)
            process = dataclasses.replace(process, input=source, parts=parts, evaluator=evaluator)
        object.__setattr__(process, "learning_rate", lambda round: vectors.meta["lr"])
        self.process = process
        self.shapes = [tuple(v.shape) for v in process.evaluator.global_model.trainable_variables]
        start = vectors.parameters("global_init", self.shapes, results=False)
        self.start = self.state(0, start)

    def state(self, number, values):
        """The `State` before a round, with these global values."""
        tensors = [tf.constant(value, self.vectors.precision) for value in values]
        return State(number, dict(zip(self.process.paths, tensors, strict=True)))

    def _with_levels(self, plan):
        return dataclasses.replace(plan, levels=np.asarray([self.levels[client] for client in plan.clients], np.int32))

    def _partition(self):
        classes = self.dataset.classes
        split = self.vectors.meta["label_split"]
        mask = np.zeros((len(split), classes), bool)
        for client, labels in enumerate(split):
            mask[client, labels] = True
        test = Shares.from_lists(self._tested(client) for client in range(len(split)))
        return Partition(train=Shares.empty(len(split)), test=test, label_mask=mask)

    def _tested(self, client):
        """Which test examples are the client's: those that the file lists, which it must if it has any of its labels."""
        name = f"eval/local{client}/rows"
        own = [] if self.vectors.text else np.isin(self.dataset.test.y, self.vectors.meta["label_split"][client])
        if np.any(own) and name not in self.vectors:
            raise SystemExit(f"{self.vectors.name}: lacks {name}")
        return np.asarray(self.vectors.arrays.get(name, []), np.int32)

    def covered(self, plan):
        """For each variable the entries that some client covers: its level's share of every axis, its own labels."""
        found = [np.zeros(shape, bool) for shape in self.shapes]
        # The label axes: rows of the words' vectors, and the outputs of the last layer.
        axes = {**({0: 0} if self.vectors.text else {}), len(found) - 2: -1, len(found) - 1: -1}
        for client, level in zip(plan.clients.tolist(), plan.levels.tolist()):
            stack = self.process.parts.engine.stacks[self.process.family.submodel_of[level]]
            for place, (mask, shape) in enumerate(zip(found, stack.own_shapes, strict=True)):
                index = [np.arange(size) for size in shape]
                if place in axes:
                    index[axes[place]] = np.asarray(self.vectors.meta["label_split"][client])
                mask[np.ix_(*index)] = True
        return found

    def stages(self):
        """The stages that the file must show."""
        vectors = self.vectors
        work = [(f"round{number}/client{c}", c) for number, own in enumerate(vectors.cohorts) for c in own]
        shown = {
            "cut": vectors.precision == "float32" and any(self._has_cut(*each) for each in work),
            "sbn": vectors.meta.get("norm") == "bn",
            "local": not vectors.text,
        }
        return {stage for stage in STAGES if shown.get(stage, True)}

    def _has_cut(self, place, client):
        """Whether the file holds the sub-model that a client was handed; clients of the global level get everything."""
        whole = self.vectors.meta["levels"][client] == self.vectors.meta["global_level"]
        return not whole and not self.vectors.leaves_out(f"{place}/before")


def _image_data(vectors):
    """All batches of all clients as one training split, and the plans that read them in the given order."""
    examples, planned = Examples(), []
    for number, cohort in enumerate(vectors.cohorts):
        places = [f"round{number}/client{client}" for client in cohort]
        planned.append(plan([Entry(c, 0, examples.batches(vectors, place)) for c, place in zip(cohort, places)]))
    test = Split(vectors.input("eval/img"), vectors.input("eval/label"))
    classes = len(vectors.arrays["global_init/" + vectors.names()[-1]])
    return dataclasses.replace(examples.dataset(classes, vectors.name), test=test), planned


def _text_data(vectors):
    """All token rows as one split, padded on the right, and the plans that read them segment by segment."""
    rows, planned = [], []
    for number, cohort in enumerate(vectors.cohorts):
        entries = []
        for client in cohort:
            place = f"round{number}/client{client}"
            tokens, steps = vectors.input(f"{place}/tokens"), vectors.steps(place)
            batch = np.arange(len(rows), len(rows) + len(tokens), dtype=np.int32)
            rows.extend(tokens)
            starts = [step * vectors.meta["bptt"] for step in range(steps)]
            entries.append(Entry(client, 0, [batch] * steps, starts=starts))
        planned.append(plan(entries))
    longest = max(map(len, rows))
    padded = np.stack([np.pad(row, (0, longest - len(row))) for row in rows])
    test = Split(vectors.input("eval/tokens"), None)
    return Dataset(Split(padded, None), test, classes=vectors.meta["num_tokens"], source=vectors.name), planned


def _with_given_masks(vectors, planned):
    """The production input, reading the file's masks instead of random numbers, and rows without their padding."""
    bptt = vectors.meta["bptt"]
    most = max(max(plan.rows.shape[2] for plan in planned), *vectors.arrays["eval/mask"].shape[:1])
    clients, steps = len(vectors.meta["levels"]), max(plan.rows.shape[1] for plan in planned)
    table = np.zeros((len(planned) + 1, clients, max(steps, 1), most, bptt), np.float32)
    work = [(number, client) for number, cohort in enumerate(vectors.cohorts) for client in cohort]
    rows = sum(len(vectors.arrays[f"round{number}/client{client}/tokens"]) for number, client in work)
    lengths = np.zeros(rows, np.int32)
    for number, (cohort, drawn) in enumerate(zip(vectors.cohorts, planned)):
        for slot, client in enumerate(cohort):
            tokens = vectors.arrays[f"round{number}/client{client}/tokens"]
            lengths[drawn.rows[slot, 0][: len(tokens)]] = tokens.shape[1]
            for step in range(drawn.steps[slot]):
                mask = vectors.arrays[f"round{number}/client{client}/step{step}/mask"]
                table[number, client, step, : mask.shape[0], : mask.shape[1]] = mask
    mask = vectors.arrays["eval/mask"]
    table[-1, 0, 0, : mask.shape[0], : mask.shape[1]] = mask

    def given(key, shape):
        # Training keys are (seed, round, client, step), one for each client of a stack; those of the test are
        # (seed, row, start).
        mask = tf.gather_nd(table, key[..., 1:]) if key.shape[-1] == 4 else tf.constant(table)[-1, 0, 0]
        return 1.0 - mask[..., : shape[0], : shape[1]]

    source = masked_text.build(vectors.precision, segment=bptt, uniform=given)

    def batch(x, y, rows, start, key, labels, training, length=None):
        # The clients that idle in a tick read row 0, which is not shorter than the rows of the others.
        most = tf.reduce_min(tf.gather(lengths, rows[..., 0])) if training else x.shape[1]
        return source.batch(x[:, :most], y, rows, start, key, labels, training)

    return dataclasses.replace(source, batch=batch)
