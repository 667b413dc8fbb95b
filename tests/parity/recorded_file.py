"""Reader of vector files in Keras layouts, and the largest difference of each stage."""

import json
import re
from pathlib import Path

import numpy as np

# PyTorch's name for the end of a Keras variable's path.
LEAVES = {
    "": "weight",
    "kernel": "weight",
    "depthwise_kernel": "weight",
    "gamma": "weight",
    "bias": "bias",
    "beta": "bias",
    "moving_mean": "running_mean",
    "moving_variance": "running_var",
    "mean": "running_mean",
    "variance": "running_var",
}
# Arrays that no replay compares: counters of batches, which models here do not have; runs of public programs with
# defects (`published`, `as_published`, `env_drift`), which hetero_tf does not have; and the examples of a statistics
# query that models without batch norm do not make.
NOT_COMPARED = re.compile(r"num_batches_tracked$|^published/|/as_published/|^env_drift/|^sbn/(img|label)$")


class Arrays(dict):
    """Arrays by name. `read` has the names that were read."""

    def __init__(self, arrays):
        super().__init__(arrays)
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
        prefix: Prefix of the results, such as "f64/".
    """

    def __init__(self, path, precision="float64", prefix="f64/"):
        self.name, self.precision, self.prefix = Path(path).name, precision, prefix
        with np.load(path, allow_pickle=False) as arrays:
            self.arrays = Arrays({name: arrays[name] for name in arrays.files})
        self.meta = json.loads(str(self.arrays["meta.json"]))

    def __contains__(self, name):
        return name in self.arrays

    @property
    def cohorts(self):
        """Active clients of every round, in order."""
        for key in ("users_per_round", "users"):
            if key in self.meta:
                return self.meta[key]
        return [cohort["users"] for cohort in self.meta["rounds"]] if "rounds" in self.meta else []

    def omits(self, name):
        """True if a shortened file lists a name as omitted."""
        return name in self.meta.get("left_out", ())

    def unread(self, prefix=""):
        """Names of the arrays that no comparison has read, except for those of `NOT_COMPARED`."""
        return sorted(
            name
            for name in self.arrays.keys() - self.arrays.read
            if name.startswith(prefix) and not NOT_COMPARED.search(name)
        )

    def parts(self, prefix):
        """The first parts of the names of results under a prefix, such as `loss` and `after`."""
        prefix = f"{self.prefix}{prefix}/"
        names = [name for name in self.arrays if name.startswith(prefix) and not NOT_COMPARED.search(name)]
        return sorted({name.removeprefix(prefix).partition("/")[0] for name in names})

    def input(self, name):
        """An input: labels int32, floats in the file's precision, images with channels last."""
        value = self.arrays[name]
        if value.dtype.kind != "f":
            return value.astype(np.int32)
        value = value.astype(self.precision)
        return value.transpose(0, 2, 3, 1) if value.ndim == 4 else value

    def result(self, name):
        """A result of the run, unchanged."""
        return self.arrays[self.prefix + name]

    def steps(self, prefix, part="batch{}/img"):
        """Number of batches under a prefix."""
        count = 0
        while f"{prefix}/{part.format(count)}" in self.arrays:
            count += 1
        return count

    def batches(self, prefix):
        """(images, labels) of every batch under a prefix."""
        names = [f"{prefix}/batch{step}" for step in range(self.steps(prefix))]
        return [(self.input(f"{name}/img"), self.input(f"{name}/label")) for name in names]

    def weights(self, prefix, paths, shapes, flattened=None):
        """Read the weights under a prefix, such as "global_init" or "f64/round0/global_after".

        Args:
            prefix: Common prefix of their names.
            paths: `{PyTorch name: variable path}`; names that the file lacks are omitted.
            shapes: `{variable path: shape}`.
            flattened: `{PyTorch name: (height, width)}` of dense kernels that read a flattened map.

        Returns:
            `{variable path: array}` in the file's precision and the layout of Keras.
        """
        weights = {}
        for name, path in paths.items():
            if f"{prefix}/{name}" in self.arrays:
                value = self.arrays[f"{prefix}/{name}"].astype(self.precision)
                if flattened and name in flattened:
                    value = channels_last(value, *flattened[name])
                weights[path] = keras_layout(value, shapes[path], name)
        return weights


def keras_layout(value, shape, name=""):
    """Convert a PyTorch array to the layout of Keras: kernels lead with space or inputs; embeddings do not change."""
    if value.ndim == 4:
        dense = value.transpose(2, 3, 1, 0)
        # Depthwise kernels have their channels before the 1.
        value = dense if dense.shape == tuple(shape) else value.transpose(2, 3, 0, 1)
    elif value.ndim == 2 and "embedding" not in name:
        value = value.T
    if value.size != np.prod(shape):
        raise SystemExit(f"an array of shape {value.shape} does not fit a variable of shape {shape}")
    return value.reshape(shape)


def channels_last(kernel, height, width):
    """Reorder a dense kernel (outputs, channels * height * width) for inputs flattened as (height, width, channels)."""
    maps = kernel.reshape(len(kernel), -1, height, width)
    return maps.transpose(0, 2, 3, 1).reshape(kernel.shape)


def variable_paths(paths, stems):
    """Return `{PyTorch name: variable path}` of all variables of some layers.

    Args:
        paths: Variable paths of a model, such as `process.paths`.
        stems: `{PyTorch module: begin of the path}`, such as `{"layer1.0.n1": "1_0_pre_activation_block/norm1/bn"}`.
    """
    path_by_name = {}
    for stem, begin in stems.items():
        for path in paths:
            leaf = path.removeprefix(begin).removeprefix("/") if path.startswith(begin) else None
            if leaf in LEAVES:
                path_by_name[f"{stem}.{LEAVES[leaf]}"] = path
            elif leaf and leaf.rpartition("_")[2].isdigit():
                # Statistics of a norm for each width have the number of its channels in both names.
                kind, _, channels = leaf.rpartition("_")
                path_by_name[f"{stem}.bn.{channels}.{LEAVES[kind]}"] = path
    return path_by_name


class Gaps(dict):
    """Largest difference of each stage."""

    def note(self, stage, actual, expected, relative=False):
        """Add one comparison of arrays, or of dicts of arrays; NaN and other shapes count as infinite differences.

        `relative`: True to divide differences by the expected values; "above 1" to divide those of values above 1.
        """
        if isinstance(expected, dict):
            if not expected or expected.keys() != actual.keys():
                different = sorted(expected.keys() ^ actual.keys()) or "values"
                raise SystemExit(f"{stage}: the file or the result has no {different}")
            for path, value in expected.items():
                self.note(stage, actual[path], value, relative)
            return
        actual, expected = np.asarray(actual, np.float64), np.asarray(expected, np.float64)
        worst = np.nan
        if actual.shape == expected.shape:
            scale = np.maximum(np.abs(expected), 1.0 if relative == "above 1" else 0.0) if relative else 1.0
            worst = float(np.max(np.abs(actual - expected) / scale, initial=0.0))
        self[stage] = max(self.get(stage, 0.0), np.inf if np.isnan(worst) else worst)

    def note_unchanged(self, stage, actual, recorded, before):
        """Add the entries that the recorded program did not change: they must keep their bits.

        All are `{path: value}`; the last two have values of the recorded program.
        """
        for path, value in recorded.items():
            same = value == before[path]
            self.note(stage, np.asarray(actual[path])[same], value[same])
