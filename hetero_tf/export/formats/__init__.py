"""Formats of other runtimes: one module each, with `convert(source, path)` and `load_runtime(path)`.

`convert` writes the file and returns a dict of entries for `export.json` that only this format has. `load_runtime`
returns `(**inputs) -> outputs` of the file. A module also defines `FILE`, the name of the file; `NEEDS`, the modules it
imports; `EXTRA`, the extra of this package that installs them; `EXACT`, True if its outputs must equal those of the
SavedModel; and perhaps `TRAINS`, True if devices train the file, so the adapters of Keras' layers are not merged.
"""

import contextlib
import importlib
import logging
import os
import pkgutil
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import numpy as np
import tensorflow as tf

from hetero_tf.base.errors import InputError, did_you_mean, require_modules
from hetero_tf.export.task import ExportTask

# Training examples that calibrate the range of values.
EXAMPLES = 200


@dataclass(frozen=True)
class ConversionSource:
    """Source of a conversion to another format.

    Attributes:
        task: Export task, with the learning process and the Keras model that the function calls.
        function, specs: The signature `task.portable_signature` as a function for tf.function, and its input specs.
        weights_sha256: Digest of the values of the model's variables.
    """

    saved_model: Path
    task: ExportTask
    function: Callable
    specs: list[tf.TensorSpec]
    level: str
    weights_sha256: str

    def examples(self) -> Iterator[dict[str, np.ndarray]]:
        """Yield requests with one training example each."""
        x = self.task.process.dataset.train.x[:EXAMPLES]
        yield from (self.task.request(x[index : index + 1], self.task.portable_signature) for index in range(len(x)))


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Discard the output of converters and interpreters, also from C++; exceptions are not affected."""
    saved_streams = {stream: os.dup(stream) for stream in (1, 2)}
    devnull = os.open(os.devnull, os.O_WRONLY)
    level = tf.get_logger().level
    try:
        for stream in saved_streams:
            os.dup2(devnull, stream)
        tf.get_logger().setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        tf.get_logger().setLevel(level)
        for stream, copy in saved_streams.items():
            os.dup2(copy, stream)
            os.close(copy)
        os.close(devnull)


def names() -> tuple[str, ...]:
    """Return the names of all formats."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))


def find(name: str) -> ModuleType:
    """Return the module of a format.

    Raises:
        InputError: The format is unknown, or a package that it needs is not installed.
    """
    if name not in names():
        raise InputError(f"--format {name}: no such format{did_you_mean(name, ('savedmodel', *names()))}")
    module = importlib.import_module(f"{__name__}.{name}")
    require_modules(f"--format {name}:", module.NEEDS, module.EXTRA)
    return module
