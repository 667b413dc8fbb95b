"""Reads a vector file of the authors' code: what was put in, what came out, and under which names.

A file is an npz whose arrays keep PyTorch names and layouts; `meta.json` holds the settings. Results carry the
prefix f32/ or f64/.
"""

import json
from pathlib import Path

import numpy as np


class Vectors:
    """One file, with references converted to Keras order and layout.

    Args:
        path: The npz file.
        precision: "float32" or "float64"; chooses the results and the type of the inputs.
    """

    def __init__(self, path, precision):
        self.name = Path(path).name
        with np.load(path, allow_pickle=False) as arrays:
            self.arrays = {name: arrays[name] for name in arrays.files}
        self.meta = json.loads(str(self.arrays["meta.json"]))
        self.precision = precision
        self.prefix = {"float32": "f32/", "float64": "f64/"}[precision]
        self.text = self.meta["model"] == "transformer"

    def __contains__(self, name):
        return name in self.arrays or self.prefix + name in self.arrays

    def input(self, name):
        """An input; floats in the precision of the replay, images with channels last."""
        value = self.arrays[name]
        if value.dtype.kind != "f":
            return value.astype(np.int32)
        value = value.astype(self.precision)
        return value.transpose(0, 2, 3, 1) if value.ndim == 4 else value

    def result(self, name):
        """A result of the run in this precision; SystemExit if the file lacks it."""
        if self.prefix + name not in self.arrays:
            raise SystemExit(f"{self.name}: lacks {self.prefix}{name}")
        return self.arrays[self.prefix + name]

    def leaves_out(self, name):
        """Whether a shortened file says that it does not hold what stands under a name."""
        return name in self.meta.get("left_out", ())

    @property
    def has_results(self):
        """Whether the file holds the run in this precision; shortened files may leave one out."""
        return not self.leaves_out(self.prefix)

    @property
    def cohorts(self):
        """The active clients of every round, in order."""
        return self.meta["users_per_round"]

    def steps(self, place):
        """Number of local steps of a client, by its place "roundR/clientU"."""
        part = "step{}/mask" if self.text else "batch{}/img"
        count = 0
        while f"{place}/{part.format(count)}" in self.arrays:
            count += 1
        return count

    def parameters(self, place, shapes, results=True):
        """Parameters under a place, as arrays of the given Keras shapes in Keras order.

        None where a shortened file leaves them out; SystemExit where one is missing.
        """
        if self.leaves_out(place):
            return None
        prefix = self.prefix if results else ""
        missing = [name for name in self.names() if f"{prefix}{place}/{name}" not in self.arrays]
        if missing:
            raise SystemExit(f"{self.name}: lacks {prefix}{place}/{missing[0]} and {len(missing) - 1} more")
        return [
            keras_layout(name, self.arrays[f"{prefix}{place}/{name}"], shape)
            for name, shape in zip(self.names(), shapes, strict=True)
        ]

    def names(self):
        """PyTorch parameter names in the order of the Keras model's variables."""
        candidates = {"conv": _conv, "resnet18": _resnet, "transformer": _transformer}[self.meta["model"]](self.meta)
        return [name for name in candidates if f"global_init/{name}" in self.arrays]

    def statistics_names(self):
        """Names of the norms that have running statistics, in the order of the Keras model."""
        stems = [name.removesuffix(".weight") for name in self.names()]
        return [stem for stem in stems if f"{self.prefix}sbn/{stem}.running_mean" in self.arrays]


def keras_layout(name, value, shape):
    """A PyTorch parameter in Keras layout: kernels input first, attention kernels with an axis for the heads."""
    if value.ndim == 4:
        value = value.transpose(2, 3, 1, 0)
    elif value.ndim == 2 and "embedding" not in name:
        value = value.T
    return value.reshape(shape)


def _pair(stem):
    return [f"{stem}.weight", f"{stem}.bias"]


def _conv(meta):
    stages = [
        [*_pair(f"blocks.{5 * stage}"), *_pair(f"blocks.{5 * stage + 2}")] for stage in range(len(meta["hidden"]))
    ]
    head = 5 * len(meta["hidden"]) + 1
    return [*sum(stages, []), *_pair(f"blocks.{head}")]


def _resnet(meta):
    names = ["conv1.weight"]
    for stage in range(1, 5):
        for block in range(8):
            stem = f"layer{stage}.{block}"
            names += [*_pair(f"{stem}.n1"), *_pair(f"{stem}.n2")]
            names += [f"{stem}.{part}.weight" for part in ("conv1", "conv2", "shortcut")]
    return [*names, *_pair("n4"), *_pair("linear")]


def _transformer(meta):
    top = "transformer_embedding"
    names = [
        f"{top}.embedding.weight",
        f"{top}.positional_embedding.positional_embedding.weight",
        *_pair(f"{top}.norm"),
    ]
    for layer in range(meta["tcfg"]["num_layers"]):
        stem = f"transformer_encoder.layers.{layer}"
        parts = [*(f"mha.linear_{part}" for part in "qkvo"), "norm1", "norm2", "linear1", "linear2"]
        names += sum((_pair(f"{stem}.{part}") for part in parts), [])
    return names + sum((_pair(f"decoder.{part}") for part in ("linear1", "norm1", "linear2")), [])
