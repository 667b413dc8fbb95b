"""A vector file of the HeteroFL authors' code as a learning process: its data, its plans and its masks."""

import dataclasses

import methods_common as common
import numpy as np
import tensorflow as tf

from hetero_tf.data.dataset import Dataset, Split
from hetero_tf.inputs import masked_text
from recipes import heterofl_recipe

STAGES = ("cut", "loss", "norm", "client", "merge", "round", "kept", "sbn", "global", "local")


class Replay(common.Replay):
    """One file in one precision, set up as a learning process with its plans."""

    def __init__(self, vectors, gaps, engine, label_cut):
        self.file, meta = vectors, vectors.meta
        dataset, work = _text_data(vectors) if vectors.text else _image_data(vectors)
        text, labels = heterofl_recipe(vectors, engine, label_cut), meta["label_split"]
        tests = [self._tested(client, dataset.test.y) for client in range(len(labels))]
        process = common.build_process(text, dataset, [1] * len(labels), labels, tests=tests)
        super().__init__(vectors, gaps, process, dict(zip(vectors.names(), process.paths, strict=True)))
        self.plans = [self.plan_of(batches, meta["bptt"] if vectors.text else 0) for batches in work]
        if vectors.text:
            self._read_given_masks()

    def _read_given_masks(self):
        """Lets the process, and what measures the model, read the masks of the file."""
        process, source = self.process, _with_given_masks(self.file, self.plans)
        examples = dataclasses.replace(process.parts.examples, input=source)
        parts = dataclasses.replace(process.parts, examples=examples)
        evaluator = dataclasses.replace(process.evaluator, examples=examples)
        self.process = dataclasses.replace(process, input=source, parts=parts, evaluator=evaluator)
        self.trainer = common.Trainer(self.process)

    def _tested(self, client, labels):
        """Which test examples are the client's: those that the file lists, which it must if it has any of its labels."""
        name = f"eval/local{client}/rows"
        own = [] if labels is None else np.isin(labels, self.file.meta["label_split"][client])
        if np.any(own) and name not in self.file:
            raise SystemExit(f"{self.file.name}: lacks {name}")
        return np.asarray(self.file.arrays.get(name, []), np.int32)

    def covered(self, plan):
        """`{path: mask of the entries that some client covers}`: its level's share of every axis, its own labels."""
        found = {path: np.zeros(shape, bool) for path, shape in self.shapes.items()}
        # The label axes: rows of the words' vectors, and the outputs of the last layer.
        axes = {**({0: 0} if self.file.text else {}), len(found) - 2: -1, len(found) - 1: -1}
        for client, level in zip(plan.clients.tolist(), plan.levels.tolist()):
            stack = self.process.parts.engine.stacks[self.process.family.submodel_of[level]]
            for place, (mask, shape) in enumerate(zip(found.values(), stack.own_shapes, strict=True)):
                index = [np.arange(size) for size in shape]
                if place in axes:
                    index[axes[place]] = np.asarray(self.meta["label_split"][client])
                mask[np.ix_(*index)] = True
        return found

    def stages(self):
        """The stages that the file must show."""
        shown = {
            "cut": any(
                self.has_cut(number, client) for number, cohort in enumerate(self.file.cohorts) for client in cohort
            ),
            "sbn": self.meta.get("norm") == "bn",
            "local": not self.file.text,
        }
        return {stage for stage in STAGES if shown.get(stage, True)}

    def has_cut(self, number, client):
        """Whether the file holds the sub-model that a client was handed: in float32, and never the whole model."""
        whole = self.meta["levels"][client] == self.meta["global_level"]
        left_out = self.file.leaves_out(f"round{number}/client{client}/before")
        return self.file.precision == "float32" and not whole and not left_out


def _image_data(vectors):
    """All batches of all clients as one training split, and the batches of each round."""
    examples = common.Examples()
    work = examples.rounds(vectors)
    classes = len(vectors.arrays["global_init/" + vectors.names()[-1]])
    test = vectors.input("eval/img"), vectors.input("eval/label")
    return examples.dataset(classes, vectors.name, test), work


def _text_data(vectors):
    """All token rows as one split, padded on the right, and for each round the rows of every client and step."""
    rows, work = [], []
    for number, cohort in enumerate(vectors.cohorts):
        work.append({})
        for client in cohort:
            place = f"round{number}/client{client}"
            tokens = vectors.input(f"{place}/tokens")
            batch = np.arange(len(rows), len(rows) + len(tokens), dtype=np.int32)
            work[-1][client] = [batch] * vectors.steps(place)
            rows.extend(tokens)
    longest = max(map(len, rows))
    padded = np.stack([np.pad(row, (0, longest - len(row))) for row in rows])
    test = Split(vectors.input("eval/tokens"), None)
    return Dataset(Split(padded, None), test, classes=vectors.meta["num_tokens"], source=vectors.name), work


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
