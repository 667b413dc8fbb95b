"""Formats of other runtimes, a module each: `convert(model, path)` and `answering(path) -> (**inputs) -> outputs`.

`convert` writes the file and returns a dict, what `export.json` says of this format besides what it says of each. A
module says in `FILE` what its file is called, in `NEEDS` which modules it imports, in `EXTRA` which extra of this
package installs them, and in `EXACT` whether its answers must be those of the SavedModel.
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

import tensorflow as tf
from keras import Model

from hetero_tf.base.errors import InputError, did_you_mean, require
from hetero_tf.process.learning_process import LearningProcess


@dataclass(frozen=True)
class Converted:
    """What a format is made of.

    Attributes:
        saved_model: Folder of the SavedModel.
        signature: Name of the signature that has neither loops nor strings.
        function, specs: The same as a function for a graph, and what it takes.
        process, level, model: What was trained, and the Keras model that the function calls.
        weights_sha256: Digest of the values of the model's variables.
        examples: `() -> {input: array}` of some training examples, for formats that must know the range of values.
    """

    saved_model: Path
    signature: str
    function: Callable
    specs: list[tf.TensorSpec]
    process: LearningProcess
    level: str
    model: Model
    weights_sha256: str
    examples: Callable


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Lets what converters and interpreters print, also from C++, go nowhere; what they raise comes through."""
    kept = {stream: os.dup(stream) for stream in (1, 2)}
    nowhere = os.open(os.devnull, os.O_WRONLY)
    level = tf.get_logger().level
    try:
        for stream in kept:
            os.dup2(nowhere, stream)
        tf.get_logger().setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        tf.get_logger().setLevel(level)
        for stream, copy in kept.items():
            os.dup2(copy, stream)
            os.close(copy)
        os.close(nowhere)


def names() -> tuple[str, ...]:
    """The names of all formats."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))


def find(name: str) -> ModuleType:
    """Returns the module of a format.

    Raises:
        InputError: There is none of the name, or what it needs is not installed.
    """
    if name not in names():
        raise InputError(f"--format {name}: no such format{did_you_mean(name, ('savedmodel', *names()))}")
    module = importlib.import_module(f"{__name__}.{name}")
    require(f"--format {name}:", module.NEEDS, module.EXTRA)
    return module
