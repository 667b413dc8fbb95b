"""Reads the methods' vector files into Keras layouts, and notes how far results are from them."""

import json
import re
from pathlib import Path

import numpy as np

TOLERANCE = 1e-8
# PyTorch's name of what Keras calls the last part of a variable's path.
LEAVES = {
    "kernel": "weight",
    "depthwise_kernel": "weight",
    "gamma": "weight",
    "bias": "bias",
    "beta": "bias",
    "moving_mean": "running_mean",
    "moving_variance": "running_var",
}


# Results that no replay compares: counters of batches, and what follows from results that are compared.
DERIVED = re.compile(r"num_batches_tracked$|/reported_loss(_acc)?$|/loss_acc$|/as_published/")


class Arrays(dict):
    """Arrays by name, which remember who was read."""

    def __init__(self, given):
        super().__init__(given)
        self.read = set()

    def __getitem__(self, name):
        self.read.add(name)
        if name not in self:
            raise SystemExit(f"the file lacks {name}")
        return super().__getitem__(name)


class File:
    """One vector file: `meta`, and `arrays` under PyTorch names and in PyTorch layouts.

    Args:
        path: The npz file.
        precision: "float32" or "float64": the run whose results count, and the type of the inputs.
    """

    def __init__(self, path, precision="float64"):
        self.name, self.precision = Path(path).name, precision
        self.prefix = {"float32": "f32/", "float64": "f64/"}[precision]
        with np.load(path, allow_pickle=False) as arrays:
            self.arrays = Arrays({name: arrays[name] for name in arrays.files})
        self.meta = json.loads(str(self.arrays["meta.json"]))

    def __contains__(self, name):
        return name in self.arrays

    @property
    def cohorts(self):
        """The active clients of every round, in order."""
        for key in ("users_per_round", "users"):
            if key in self.meta:
                return self.meta[key]
        return [cohort["users"] for cohort in self.meta["rounds"]]

    def input(self, name):
        """An input: labels int32, floats in the file's precision, images with channels last."""
        value = self.arrays[name]
        if value.dtype.kind != "f":
            return value.astype(np.int32)
        value = value.astype(self.precision)
        return value.transpose(0, 2, 3, 1) if value.ndim == 4 else value

    def result(self, name):
        """A result of the run, as it stands."""
        return self.arrays[self.prefix + name]

    def steps(self, place, part="batch{}/img"):
        """How many batches stand under a place."""
        count = 0
        while f"{place}/{part.format(count)}" in self.arrays:
            count += 1
        return count

    def batches(self, place):
        """(images, labels) of every batch under a place."""
        names = [f"{place}/batch{step}" for step in range(self.steps(place))]
        return [(self.input(f"{name}/img"), self.input(f"{name}/label")) for name in names]

    def weights(self, place, paths, shapes, flattened=None):
        """The weights under a place, such as "global_init" or "f64/round0/global_after".

        Args:
            place: Their common prefix.
            paths: `{PyTorch name: variable path}`; names that the place lacks are left out.
            shapes: `{variable path: shape}`.
            flattened: `{PyTorch name: (height, width)}` of dense kernels behind a flattened map.

        Returns:
            `{variable path: array}` in the file's precision and the layout of Keras.
        """
        found = {}
        for name, path in paths.items():
            if f"{place}/{name}" in self.arrays:
                value = self.arrays[f"{place}/{name}"].astype(self.precision)
                if flattened and name in flattened:
                    value = channels_last(value, *flattened[name])
                found[path] = keras_layout(value, shapes[path], name)
        return found


def keras_layout(value, shape, name=""):
    """A PyTorch array in the layout of Keras: kernels lead with space or inputs; embeddings keep their order."""
    if value.ndim == 4:
        dense = value.transpose(2, 3, 1, 0)
        # Depthwise kernels have their channels before the 1.
        value = dense if dense.shape == tuple(shape) else value.transpose(2, 3, 0, 1)
    elif value.ndim == 2 and "embedding" not in name:
        value = value.T
    if value.size != np.prod(shape):
        raise SystemExit(f"an array of shape {value.shape} stands for a variable of shape {shape}")
    return value.reshape(shape)


def channels_last(kernel, height, width):
    """A dense kernel (outputs, channels * height * width) for inputs flattened as (height, width, channels)."""
    maps = kernel.reshape(len(kernel), -1, height, width)
    return maps.transpose(0, 2, 3, 1).reshape(kernel.shape)


def variable_paths(paths, stems):
    """`{PyTorch name: variable path}` of all variables below some layers.

    Args:
        paths: Variable paths of a model, such as `process.paths`.
        stems: `{PyTorch module: Keras layer}`, such as `{"layer1.0.n1": "1_0_pre_activation_block/norm1/bn"}`.
    """
    found = {}
    for stem, layer in stems.items():
        for path in paths:
            above, _, leaf = path.rpartition("/")
            kind, _, channels = leaf.rpartition("_")
            if above == layer:
                # Statistics of a norm for each width have the number of its channels in both names.
                name = f"{stem}.bn.{channels}.{LEAVES[kind]}" if channels.isdigit() else f"{stem}.{LEAVES[leaf]}"
                found[name] = path
    return found


class Gaps(dict):
    """The largest difference of each stage, noted one by one."""

    def note(self, stage, found, expected, relative=False, some=False):
        """Adds one comparison of arrays, or of dicts of arrays; NaN counts as infinitely wrong.

        Args:
            stage: Its name.
            found, expected: This project's and the file's.
            relative: Whether differences count as shares of what is expected.
            some: Whether the file may hold fewer names than were found.
        """
        if isinstance(expected, dict):
            missing = expected.keys() - found.keys() if some else expected.keys() ^ found.keys()
            if missing or not expected:
                raise SystemExit(f"{stage}: nothing stands for {sorted(missing) or 'it'}")
            for path, value in expected.items():
                self.note(stage, found[path], value, relative)
            return
        found, expected = np.asarray(found, np.float64), np.asarray(expected, np.float64)
        if found.shape != expected.shape:
            raise SystemExit(f"{stage}: shape {found.shape} instead of {expected.shape}")
        gap = np.abs(found - expected) / (np.abs(expected) if relative else 1.0)
        worst = float(np.max(gap, initial=0.0))
        self[stage] = max(self.get(stage, 0.0), np.inf if np.isnan(worst) else worst)

    def note_kept(self, stage, new, old, covered):
        """Adds the entries that nobody covers, which must be bit-equal to their old value.

        All are `{path: value}`: new and old values, both of this project or both of the file, and masks of the entries
        that somebody covers.
        """
        for path, mask in covered.items():
            self.note(stage, np.asarray(new[path])[~mask], np.asarray(old[path])[~mask])

    def told(self, file, stages, bit_equal=("kept",), tolerance=TOLERANCE):
        """(stage, gap, tolerance) of every stage; that of `bit_equal` stages is 0.

        Args:
            file: The `File`, all of whose float64 results must have been read.
            stages: The stages that it must show.
            bit_equal: Stages that allow no difference.
            tolerance: Of the other stages.

        Raises:
            SystemExit: A stage or a result was not compared.
        """
        if self.keys() != set(stages):
            raise SystemExit(f"{file.name}: shows {sorted(self)} instead of {sorted(stages)}")
        unread = [name for name in file.arrays if name.startswith("f64/") and not DERIVED.search(name)]
        unread = sorted(set(unread) - file.arrays.read)
        if unread:
            raise SystemExit(f"{file.name}: {unread[0]} and {len(unread) - 1} more results were not compared")
        return [(stage, gap, 0.0 if stage in bit_equal else tolerance) for stage, gap in self.items()]
