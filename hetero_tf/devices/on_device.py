"""A client on a device: it trains an exported model with ai-edge-litert and NumPy alone, without TensorFlow.

trainer = LiteRTTrainer("exports/e/1")  # made by `bin/hetero_tf export --level e --format litert_train`
trainer.push(weights, statistics)  # from the server, `{path: array}` each
report = trainer.train(trainer.batches(x, y, epochs=5, rng=rng), 0.01, trainer.present(y), rng)
weights = trainer.pull()  # to the server
statistics = trainer.statistics(trainer.statistics_batches(x, y, rng), rng)
trainer.push(weights, statistics)  # `infer` needs the statistics of its weights
"""

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

FORMAT = "litert_train"
# Zero padding on each side of an image before the random crop, as in `inputs.images`.
PAD = 4
# Inputs by the number of axes of the examples.
ROWS = {2: "features", 3: "series"}
# Form of labels that the loss compares with one threshold between each class and the next one.
THRESHOLDS = "thresholds"
# Forms of targets whose encoded values are not labels from 0 to classes - 1.
NUMBERS = ("numbers", "several_targets")
FLOATS = (*NUMBERS, "label_set", THRESHOLDS)


@dataclass(frozen=True)
class Report:
    """Result of local training.

    Attributes:
        loss: Mean over the steps, each before its update.
        gradient_norm: Mean over the steps of the L2 norm of all gradients, before clipping.
        examples: Number of examples of all steps; each epoch counts.
        seconds: Wall time of all steps, with the preparation of their batches.
    """

    loss: float
    gradient_norm: float
    steps: int
    examples: int
    seconds: float


class LiteRTTrainer:
    """Trains a level's sub-model on the device's examples.

    Args:
        folder: Version folder of an export, with `export.json` and the file for training.
        threads: Number of threads of one operation.

    Attributes:
        settings: Training settings of `export.json`: "batches", "input", "classes", "targets", "epochs" and others.

    Raises:
        ValueError: The export has no file for training.
    """

    def __init__(self, folder: str | Path, threads: int = 1):
        from ai_edge_litert.interpreter import Interpreter

        description = json.loads((Path(folder) / "export.json").read_text(encoding="utf-8"))
        if FORMAT not in description["formats"]:
            raise ValueError(
                f"`folder` must be an export with a file for training; export it with --format {FORMAT}. "
                f"Received: folder={str(folder)!r} with formats {sorted(description['formats'])}"
            )
        export = description["formats"][FORMAT]
        self.settings, self.level = export["training"], description["level"]
        interpreter = Interpreter(model_path=str(Path(folder) / export["file"]), num_threads=threads)
        self._signatures = {name: interpreter.get_signature_runner(name) for name in interpreter.get_signature_list()}
        self._runs = {tuple(shape): name for name, shape in self.settings["batches"].items()}

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the values of `push` and `pull`, `{path: shape}`."""
        return self._shapes("variables")

    @property
    def statistics_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the statistics of static batch normalization, `{path: shape}`; empty without such layers."""
        return self._shapes("statistics")

    def push(self, weights: Mapping[str, np.ndarray], statistics: Mapping[str, np.ndarray] | None = None) -> None:
        """Set the level's values, `{path: float32 array}`, and reset the optimizer.

        Args:
            statistics: Values of `statistics_shapes` for these weights, which `infer` uses. None keeps the previous
                ones: enough for training, which uses batch statistics.

        Raises:
            ValueError: A value is missing, unknown, or of another shape.
        """
        inputs = self._inputs("variables", weights)
        if statistics is None:
            pulled = self._signatures["pull"]()
            inputs |= {name: pulled[name] for name in self.settings["statistics"]}
        else:
            inputs |= self._inputs("statistics", statistics)
        self._signatures["push"](**inputs)

    def _inputs(self, setting, values):
        """Inputs of `push` from values by path. The interpreter does not check their shapes."""
        shapes, received = self._shapes(setting), {path: np.shape(value) for path, value in values.items()}
        if received != shapes:
            paths = sorted(path for path in received | shapes if received.get(path) != shapes.get(path))
            raise ValueError(f"{setting} must be those of the export. Received: others at {', '.join(paths[:3])}")
        return {name: _float32(values[path]) for name, path in self.settings[setting].items()}

    def _shapes(self, setting):
        details = self._signatures["push"].get_input_details()
        return {path: tuple(map(int, details[name]["shape"])) for name, path in self.settings[setting].items()}

    def pull(self) -> dict[str, np.ndarray]:
        """Return the current values of the level, `{path: float32 array}`."""
        pulled = self._signatures["pull"]()
        return {path: np.array(pulled[name]) for name, path in self.settings["variables"].items()}

    def infer(self, **inputs: np.ndarray) -> dict[str, np.ndarray]:
        """Run inference like the export's SavedModel, such as `image` -> "logits" and others."""
        return {name: np.array(value) for name, value in self._signatures["infer"](**inputs).items()}

    def train(
        self,
        batches: Iterable[Mapping[str, np.ndarray]],
        learning_rate: float,
        present: np.ndarray,
        rng: np.random.Generator,
    ) -> Report:
        """Take one step on each batch.

        Args:
            batches: Batches of `batches`; missing random numbers of Dropout, `uniform_0` and so on, are drawn.
            learning_rate: Learning rate of this round.
            present: bool [classes], the labels of the client, see `present`.

        Raises:
            ValueError: The file has no step for the shape of a batch, or a label is outside 0..classes-1.
        """
        losses, norms, examples, start = [], [], 0, time.perf_counter()
        for batch in batches:
            run = self._signatures[self._signature_of(batch)]
            low, high = np.min(batch["label"]), np.max(batch["label"])
            if self.settings["targets"]["form"] not in FLOATS and not 0 <= low <= high < self.settings["classes"]:
                raise ValueError(f"labels must be from 0 to {self.settings['classes'] - 1}. Received: {low} to {high}")
            values = {**batch, "present": present, "learning_rate": _float32(learning_rate)}
            # A signature only has the inputs that its loss reads.
            inputs = {
                name: values[name] if name in values else _draw_uniform(rng, details["shape"])
                for name, details in run.get_input_details().items()
            }
            results = run(**inputs)
            losses.append(float(results["loss"]))
            norms.append(float(results["gradient_norm"]))
            examples += len(batch["label"])
        seconds = time.perf_counter() - start
        return Report(float(np.mean(losses)), float(np.mean(norms)), len(losses), examples, seconds)

    def statistics(
        self, batches: Iterable[Mapping[str, np.ndarray]], rng: np.random.Generator
    ) -> dict[str, np.ndarray]:
        """Return the statistics of static batch normalization with the current weights, `{path: float32 array}`.

        They are the unweighted means of the mean and the unbiased variance of each batch. The weights do not change.

        Args:
            batches: Batches of `statistics_batches`, of any size.
        """
        run, moments = self._signatures["statistics"], list[dict]()
        details = run.get_input_details()
        for batch in batches:
            size = len(batch["label"])
            inputs = {
                name: batch[name] if name in batch else _draw_uniform(rng, [size, *each["shape_signature"][1:]])
                for name, each in details.items()
            }
            moments.append({name: value.astype(np.float64) for name, value in run(**inputs).items()})
        return {
            path: np.mean([each[name] for each in moments], 0).astype(np.float32)
            for name, path in self.settings["statistics"].items()
        }

    def statistics_batches(
        self, x: np.ndarray, y: np.ndarray | None, rng: np.random.Generator
    ) -> Iterator[dict[str, np.ndarray]]:
        """Yield the batches of the statistics query: one pass in random order; for text, the first segment of rows.

        Args:
            rng: Generator for the order, random crops and masked words.
        """
        size = self.settings["statistics_batch"]
        order = rng.permutation(len(x))
        for first in range(0, len(x), size):
            rows = order[first : first + size]
            yield next(self._batches_of(x[rows], None if y is None else y[rows], rng))

    def present(self, targets: np.ndarray) -> np.ndarray:
        """Return the mask of labels that occur, bool [classes]; for text, pass the tokens. Numbers always occur.

        Thresholds between ordered classes occur if there are labels on both sides.
        """
        if self.settings["targets"]["form"] == THRESHOLDS:
            return np.ptp(self.encode(targets), axis=0) > 0
        if self.settings["targets"]["form"] in FLOATS:
            return (targets != 0).any(0) | (self.settings["targets"]["form"] in NUMBERS)
        return np.isin(np.arange(self.settings["classes"]), targets)

    def batches(
        self, x: np.ndarray, y: np.ndarray | None, epochs: int, rng: np.random.Generator
    ) -> Iterator[dict[str, np.ndarray]]:
        """Yield the batches of local training, as the recipe's clients read them.

        Args:
            x: Images uint8 in 0..255 or float32 in 0..1, [n, height, width, channels]; rows of a table [n, features];
                series [n, time, channels]; or tokens int32 [n, length].
            y: Targets in the form and unit of the data: labels int32 [n], numbers float [n, targets], sets of labels
                bool [n, labels] or maps of labels int32 [n, height, width]; None for text.
            rng: Generator for the order, random crops and masked words.
        """
        size = self.settings["batch_size"]
        for _ in range(epochs):
            order = rng.permutation(len(x)) if self.settings["shuffle"] else np.arange(len(x))
            for first in range(0, len(x), size):
                rows = order[first : first + size]
                yield from self._batches_of(x[rows], None if y is None else y[rows], rng)

    def _batches_of(self, x, y, rng):
        """The batches of some examples: one, or for text one per segment."""
        if y is None:
            yield from self._segments(x, rng)
        elif x.ndim in ROWS:
            yield {ROWS[x.ndim]: x.astype(np.float32), "label": self.encode(y)}
        else:
            yield self._images(x, self.encode(y), rng)

    def random_batch(self, signature: str, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Return random examples and targets for a signature of `settings["batches"]`, to measure its steps."""
        batch = {}
        for name, each in self._signatures[signature].get_input_details().items():
            kind, shape = np.dtype(each["dtype"]).kind, each["shape"]
            if name not in ("present", "learning_rate") and not name.startswith("uniform_"):
                values = rng.integers(0, self.settings["classes"], shape) if kind == "i" else rng.random(shape)
                batch[name] = (values < 0.5 if kind == "b" else values).astype(each["dtype"])
        return batch

    def encode(self, y: np.ndarray) -> np.ndarray:
        """Return targets of the data in the type and unit of the loss."""
        targets = self.settings["targets"]
        if targets["scaling"] is not None:
            mean, std = map(np.asarray, targets["scaling"])
            y = (y - mean) / std
        if targets["form"] == THRESHOLDS:
            y = y[:, None] > np.arange(self.settings["classes"])
        return y.astype(targets["dtype"])

    def _images(self, x, label, rng):
        pixels = x.astype(np.float32) / (255 if x.dtype == np.uint8 else 1)
        if self.settings["input"]["augment"] == "crop_flip":
            pixels, *maps = _crop_flip([pixels, label] if label.ndim == 3 else [pixels], rng)
            label = maps[0] if maps else label
        return {"image": pixels, "label": label}

    def _segments(self, x, rng):
        """One batch per segment of the rows; the mask token follows the last word."""
        segment, share = self.settings["input"]["segment"], self.settings["input"]["mask_share"]
        for first in range(0, x.shape[1], segment):
            words = x[:, first : first + segment].astype(np.int32)
            hidden = rng.random(words.shape) < share
            yield {"token_ids": np.where(hidden, np.int32(self.settings["classes"]), words), "label": words}

    def _signature_of(self, batch):
        label = batch["label"]
        shape = label.shape if "token_ids" in batch else (len(label), 1)
        if shape not in self._runs:
            raise ValueError(
                "a batch must have the number of examples and positions of a step of the file, one of "
                f"{sorted(self._runs)}. Received: {shape}"
            )
        return self._runs[shape]


def _float32(value):
    return np.asarray(value, np.float32)


def _draw_uniform(rng, shape):
    """Random multiples of 2**-16 in [0, 1), which Dropout compares with its rate."""
    return rng.integers(0, 2**16, shape).astype(np.float32) / 2**16


def _crop_flip(arrays, rng):
    """Return images and their maps, each [n, height, width, ...], after zero padding and a random crop and flip."""
    count, height, width = arrays[0].shape[:3]
    top, left = rng.integers(0, 2 * PAD + 1, (2, count))
    is_mirrored = rng.random(count) < 0.5
    results = []
    for array in arrays:
        framed = np.pad(array, [[0, 0], [PAD, PAD], [PAD, PAD], *[[0, 0]] * (array.ndim - 3)])
        cropped = np.stack([each[i : i + height, j : j + width] for each, i, j in zip(framed, top, left)])
        cropped[is_mirrored] = cropped[is_mirrored, :, ::-1]
        results.append(cropped)
    return results
