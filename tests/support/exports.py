"""Exports that tests only read: each is written once for all processes of a session."""

import dataclasses
import fcntl
import functools
import hashlib
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tables
import tiny
import traces

import hetero_tf
from hetero_tf import export, recipe
from hetero_tf.data.codecs import picture
from hetero_tf.data.described import describe
from hetero_tf.export import formats, saved_model

IMAGES = ("tiny/digits", "levels.mix=a")
# With two channels there is no graph that decodes pictures.
NARROW_IMAGES = (
    *("tiny/digits", "levels.mix=a-b", "input={name: images, mean: [0.5, 0.5], std: [0.25, 0.25]}"),
    "data={name: synthetic, kind: images, examples: 120, test_examples: 40, size: 8, channels: 2}",
)
TEXT = ("tiny/wikitext2", "levels.mix=b", "input.segment=5", "data.length=40", "model.settings.blocks=1")


@functools.cache
def process(name, *overrides):
    """The learning process of a shipped recipe."""
    return hetero_tf.learning_process(recipe.load(name, overrides))


def without_vocabulary():
    """The process of `TEXT` whose words are unknown."""
    text = process(*TEXT)
    (field,) = text.dataset.fields
    field = dataclasses.replace(
        field, codec=dataclasses.replace(field.codec, vocabulary=None, count=text.dataset.classes)
    )
    return dataclasses.replace(text, dataset=dataclasses.replace(text.dataset, fields=(field,)))


def state(process):
    """The state of the stored exports of a process: no weight has its initial value."""
    return tiny.perturbed(process.initialize())


class Version(NamedTuple):
    """A stored export: its folder, the contents of its export.json, and the statistics of its level."""

    folder: Path
    about: dict
    statistics: dict

    def reuse(self, monkeypatch):
        """Let exports of the same state and level copy this SavedModel; tracing it takes most of their time."""

        def write(draft, *_):
            for name in ("saved_model.pb", "variables", "assets"):
                path = self.folder / name
                (shutil.copytree if path.is_dir() else shutil.copyfile)(path, draft / name)
            return self.about["signatures"]

        monkeypatch.setattr(saved_model, "write", write)


def formats_without(*names):
    """All formats but some."""
    return tuple(name for name in formats.names() if name not in names)


def versions(process, levels=("a",), others=()):
    """`{level: Version}` of a process with `state(process)`; tests must not change the files."""
    key = [process.recipe.source, describe(process.dataset), process.dataset.sha256, process.partition.sha256, others]
    return {level: _version(process, level, others, repr((*key, level))) for level in levels}


def _version(process, level, others, key):
    def write(folder):
        weights = state(process)
        with tiny.eagerly():
            statistics = process.statistics(weights, level)
        export.export(process, weights, statistics, folder, {}, level, others=others)
        np.savez(folder / "statistics.npz", **statistics)

    folder = stored(write, key)
    with np.load(folder / "statistics.npz") as statistics:
        about = json.loads((folder / level / "1" / "export.json").read_text("utf-8"))
        return Version(folder / level / "1", about, dict(statistics))


def pixels(images):
    """Stored images as `serving_default` takes them."""
    return picture.Codec(images.shape[1:]).send("image", images)["image"]


def images():
    return versions(process(*IMAGES))["a"]


def text():
    return versions(process(*TEXT), ("b",))["b"]


def narrow_images():
    """The export of level b of `NARROW_IMAGES`, with all formats but that for training."""
    return versions(process(*NARROW_IMAGES), ("b",), formats_without("litert_train"))["b"]


def narrow_table():
    """The export of level b of `tables.process()`, with all formats for tables."""
    return versions(tables.process(), ("b",), formats_without("litert_int8"))["b"]


def stored(write, key):
    """The folder that `write(folder)` filled, in this process or in another one of the session."""
    path = Path(os.environ["HETERO_TF_EXPORTS"], hashlib.sha256(key.encode()).hexdigest()[:16])
    path.parent.mkdir(exist_ok=True)
    with open(f"{path}.lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
                draft = Path(scratch, "draft")
                draft.mkdir()
                with traces.for_several_tests():
                    write(draft)
                os.rename(draft, path)
    return path
