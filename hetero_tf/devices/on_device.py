"""A client on a device: it trains an exported model with ai-edge-litert and NumPy alone, without TensorFlow.

client = Client("exports/e/1")  # made by `bin/hetero_tf export --level e --format litert_train`
client.push(weights, statistics)  # from the server, `{path: array}` each
report = client.train(client.batches(x, y, epochs=5, rng=rng), 0.01, client.present(y), rng)
weights = client.pull()  # to the server
moments = client.statistics(client.statistics_batches(x, y, rng), rng)
client.push(weights, moments.means())  # `infer` needs statistics of the weights that it runs
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

FORMAT = "litert_train"
# Zeros on each side of an image before it is cropped at random, as in `inputs.images`.
PAD = 4


@dataclass(frozen=True)
class Report:
    """What a client has done.

    Attributes:
        loss: Mean over its steps, each before its update.
        gradient_norm: Mean over its steps of the L2 norm of all gradients, before they are clipped.
        steps: How many.
        examples: Examples of all steps, those of later epochs counted again.
    """

    loss: float
    gradient_norm: float
    steps: int
    examples: int


@dataclass(frozen=True)
class Moments:
    """Sums over batches, from which a server computes the statistics of static batch normalization.

    Attributes:
        batches: Number of batches.
        sums: Sum over the batches of each mean and unbiased variance, `{path: float64 array}`.
    """

    batches: int
    sums: dict[str, np.ndarray]

    def means(self) -> dict[str, np.ndarray]:
        """Returns the means over the batches, `{path: float32 array}`; every batch counts the same."""
        return {path: (value / self.batches).astype(np.float32) for path, value in self.sums.items()}


class Client:
    """Trains a level's sub-model on the device's own examples.

    Args:
        folder: Version of an export, with `export.json` and the file for training.
        threads: Of one operation.

    Attributes:
        settings: What `export.json` says of the training: "batches", "input", "classes", "epochs" and others.
        level: Name of its level.

    Raises:
        ValueError: The export has no file for training.
    """

    def __init__(self, folder: str | Path, threads: int = 1):
        from ai_edge_litert.interpreter import Interpreter

        about = json.loads((Path(folder) / "export.json").read_text(encoding="utf-8"))
        if FORMAT not in about["formats"]:
            raise ValueError(
                f"`folder` must be an export with a file for training; export it with --format {FORMAT}. "
                f"Received: folder={str(folder)!r} with formats {sorted(about['formats'])}"
            )
        told = about["formats"][FORMAT]
        self.settings, self.level = told["training"], about["level"]
        if "statistics" not in self.settings:
            raise ValueError(
                f"`folder` must be an export of this version of hetero_tf; export the run again. "
                f"Received: folder={str(folder)!r}"
            )
        interpreter = Interpreter(model_path=str(Path(folder) / told["file"]), num_threads=threads)
        self._signatures = {name: interpreter.get_signature_runner(name) for name in interpreter.get_signature_list()}
        self._runs = {tuple(shape): name for name, shape in self.settings["batches"].items()}

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """What `push` takes and `pull` gives, `{path: shape}`."""
        return self._shapes("variables")

    @property
    def statistics_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the statistics of static batch normalization, `{path: shape}`; empty where there are none."""
        return self._shapes("statistics")

    def push(self, weights: Mapping[str, np.ndarray], statistics: Mapping[str, np.ndarray] | None = None) -> None:
        """Takes over the level's values, `{path: float32 array}`; the optimizer's memory begins anew.

        Args:
            weights: Values of `shapes`.
            statistics: Values of `statistics_shapes`, which `infer` normalizes by; they belong to these weights. None
                keeps the previous ones: enough to train, which normalizes by the batch.

        Raises:
            ValueError: A value is missing, unknown, of another shape, or NaN or infinite as float32.
        """
        inputs = self._inputs("weights", weights, "variables")
        if statistics is None:
            pulled = self._signatures["pull"]()
            inputs |= {name: pulled[name] for name in self.settings["statistics"]}
        else:
            inputs |= self._inputs("statistics", statistics, "statistics")
        self._signatures["push"](**inputs)

    def _inputs(self, argument, values, setting):
        """Inputs of `push` from the values of an argument; the setting maps their names to paths."""
        paths = self.settings[setting]
        if values.keys() != set(paths.values()):
            odd = sorted(values.keys() ^ set(paths.values()))
            raise ValueError(
                f"`{argument}` must have exactly the values of the export. Received: {odd} in one of them only"
            )
        for path, shape in self._shapes(setting).items():
            if shape != np.shape(values[path]):
                raise ValueError(
                    f"`{argument}` must have the shapes of the export, {path} {shape}. "
                    f"Received: {np.shape(values[path])}"
                )
        return {name: _float32(f"`{argument}` of {path}", values[path]) for name, path in paths.items()}

    def _shapes(self, setting):
        details = self._signatures["push"].get_input_details()
        return {path: tuple(map(int, details[name]["shape"])) for name, path in self.settings[setting].items()}

    def pull(self) -> dict[str, np.ndarray]:
        """Returns the level's values as they are now, `{path: float32 array}`."""
        pulled = self._signatures["pull"]()
        return {path: np.array(pulled[name]) for name, path in self.settings["variables"].items()}

    def infer(self, **inputs: np.ndarray) -> dict[str, np.ndarray]:
        """Answers as the export's SavedModel does: `image`, `features` or `token_ids` -> "logits" and others."""
        return {name: np.array(value) for name, value in self._signatures["infer"](**inputs).items()}

    def train(
        self,
        batches: Iterable[Mapping[str, np.ndarray]],
        learning_rate: float,
        present: np.ndarray,
        rng: np.random.Generator,
    ) -> Report:
        """Takes one step on each batch.

        Args:
            batches: As `batches` makes them; numbers of Dropouts, `uniform_0` and so on, are drawn where they lack.
            learning_rate: Of this round, at least 0.
            present: bool [classes], the labels that the client has, see `present`.
            rng: For Dropout.

        Raises:
            ValueError: The file has no step for so many examples; an input or the learning rate is NaN or infinite; a
                label is outside 0..classes-1.
        """
        losses, norms, examples = [], [], 0
        if isinstance(learning_rate, (bool, str)) or not learning_rate >= 0:
            raise ValueError(f"`learning_rate` must be a number of at least 0. Received: {learning_rate!r}")
        rate = _float32("`learning_rate`", learning_rate)
        for batch in batches:
            run = self._signatures[self._signature_of(batch["label"])]
            given = {**self._checked(batch), "present": present, "learning_rate": rate}
            # A signature lacks what its loss does not read.
            inputs = {
                name: given[name] if name in given else _draws(rng, details["shape"])
                for name, details in run.get_input_details().items()
            }
            found = run(**inputs)
            losses.append(float(found["loss"]))
            norms.append(float(found["gradient_norm"]))
            examples += len(batch["label"])
        if not losses:
            raise ValueError("`batches` must hold at least one batch. Received: none")
        return Report(float(np.mean(losses)), float(np.mean(norms)), len(losses), examples)

    def _checked(self, batch):
        """Return a batch whose inputs are finite and whose labels the model has."""
        low, high = np.min(batch["label"]), np.max(batch["label"])
        if low < 0 or high >= self.settings["classes"]:
            raise ValueError(
                f"labels must be from 0 to {self.settings['classes'] - 1}. Received: labels from {low} to {high}"
            )
        floats = (name for name, value in batch.items() if np.issubdtype(np.asarray(value).dtype, np.floating))
        return {**batch, **{name: _float32(f"`{name}`", batch[name]) for name in floats}}

    def statistics(self, batches: Iterable[Mapping[str, np.ndarray]], rng: np.random.Generator) -> Moments:
        """Measures the statistics of static batch normalization with the current weights, which it does not change.

        Args:
            batches: As `statistics_batches` makes them, of any size.
            rng: For Dropout.

        Raises:
            ValueError: The model has no such statistics, or there is no batch.
        """
        if not self.settings["statistics"]:
            raise ValueError("the model has no static batch normalization, so there are no statistics to measure")
        run, count = self._signatures["statistics"], 0
        sums: dict[str, np.ndarray] = {}
        details = run.get_input_details()
        for batch in map(self._checked, batches):
            size = len(batch["label"])
            inputs = {
                name: batch[name] if name in batch else _draws(rng, [size, *each["shape_signature"][1:]])
                for name, each in details.items()
            }
            for name, value in run(**inputs).items():
                sums[name] = sums.get(name, 0) + value.astype(np.float64)
            count += 1
        if not count:
            raise ValueError("`batches` must hold at least one batch. Received: none")
        return Moments(count, {path: sums[name] for name, path in self.settings["statistics"].items()})

    def statistics_batches(
        self, x: np.ndarray, y: np.ndarray | None, rng: np.random.Generator
    ) -> Iterator[dict[str, np.ndarray]]:
        """Yields the batches of the statistics query: one pass in random order; of text the first segment of each row.

        Args:
            x, y: As `batches` takes them.
            rng: For the order, random crops and hidden words.
        """
        size = self.settings["statistics_batch"]
        order = rng.permutation(len(x))
        for first in range(0, len(x), size):
            rows = order[first : first + size]
            yield next(self._batches_of(x[rows], None if y is None else y[rows], rng))

    def present(self, labels: np.ndarray) -> np.ndarray:
        """Returns which labels occur, bool [classes]; of text give the tokens themselves."""
        return np.isin(np.arange(self.settings["classes"]), labels)

    def batches(
        self, x: np.ndarray, y: np.ndarray | None, epochs: int, rng: np.random.Generator
    ) -> Iterator[dict[str, np.ndarray]]:
        """Yields the batches of local training, as the recipe's clients read them.

        Args:
            x: Images uint8 in 0..255 or float32 in 0..1, [n, height, width, channels]; rows of a table [n, features];
                or tokens int32 [n, length].
            y: Labels int32 [n] of images and tables; None for text.
            epochs: Passes over the examples.
            rng: For the order, random crops and hidden words.

        Raises:
            ValueError: There are not as many labels as examples.
        """
        if y is not None and len(y) != len(x):
            raise ValueError(f"`y` must hold one label for each example. Received: {len(y)} for {len(x)} examples")
        size = self.settings["batch_size"]
        for _ in range(epochs):
            order = rng.permutation(len(x)) if self.settings["shuffle"] else np.arange(len(x))
            for first in range(0, len(x), size):
                rows = order[first : first + size]
                yield from self._batches_of(x[rows], None if y is None else y[rows], rng)

    def _batches_of(self, x, y, rng):
        """The batches of some examples: one, or of text one for each segment."""
        if y is None:
            yield from self._segments(x, rng)
        elif x.ndim == 2:
            yield {"features": x.astype(np.float32), "label": y.astype(np.int32)}
        else:
            yield from self._images(x, y, rng)

    def _images(self, x, y, rng):
        pixels = x.astype(np.float32) / (255 if x.dtype == np.uint8 else 1)
        if self.settings["input"]["augment"] == "crop_flip":
            pixels = _crop_flip(pixels, rng)
        yield {"image": pixels, "label": y.astype(np.int32)}

    def _segments(self, x, rng):
        """One batch for each segment of the rows; the mask token is the one behind the last word."""
        segment, share = self.settings["input"]["segment"], self.settings["input"]["mask_share"]
        for first in range(0, x.shape[1], segment):
            words = x[:, first : first + segment].astype(np.int32)
            hidden = rng.random(words.shape) < share
            yield {"token_ids": np.where(hidden, np.int32(self.settings["classes"]), words), "label": words}

    def _signature_of(self, label):
        shape = (*label.shape, 1)[:2]
        if shape not in self._runs:
            raise ValueError(
                "a batch must have as many examples and positions as a step of the file takes, one of "
                f"{sorted(self._runs)}. Received: {shape}"
            )
        return self._runs[shape]


def _float32(name, value):
    """Return a value as float32; raise ValueError where it is NaN or infinite then."""
    with np.errstate(over="ignore"):
        array = np.asarray(value, np.float32)
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must hold finite float32 numbers. Received: NaN or infinity")
    return array


def _draws(rng, shape):
    """Multiples of 2**-16 in [0, 1), which is what rates of Dropouts are compared with."""
    return rng.integers(0, 2**16, shape).astype(np.float32) / 2**16


def _crop_flip(pixels, rng):
    """Images [n, height, width, channels] cropped out of a frame of zeros, and half of them mirrored."""
    count, height, width, _ = pixels.shape
    framed = np.pad(pixels, [[0, 0], [PAD, PAD], [PAD, PAD], [0, 0]])
    top, left = rng.integers(0, 2 * PAD + 1, (2, count))
    cropped = np.stack([image[i : i + height, j : j + width] for image, i, j in zip(framed, top, left)])
    mirrored = rng.random(count) < 0.5
    cropped[mirrored] = cropped[mirrored, :, ::-1]
    return cropped
