"""Trials with damaged data files: they are loaded, or rejected with one message, within seconds."""

import json
import os
import shutil
import time
from pathlib import Path

import folders
import numpy as np

from campaign.inputs import SECONDS, change, sentence
from campaign.world import Failed
from hetero_tf.base.errors import UserError
from hetero_tf.data import audio, csv, femnist, masks, npy, npz, parquet, text, tfds, tiny_imagenet
from hetero_tf.data import folder as image_folder


def write_prepared(folder):
    """Write a small data set of TensorFlow Datasets."""
    with tfds._suppress_output():
        folders.write_tfds(folder / "tfds", "tiny")


def tables(folder):
    """Write the small tables of `folders`."""
    folder.mkdir(parents=True)
    folders.write_tables(folder)


# Function that writes a folder, its loader and the options.
FOLDERS = {
    "prepared": (write_prepared, tfds, {"dataset": "tiny"}),
    "writers": (lambda folder: folders.write_femnist(folder / "femnist"), femnist, {}),
    "pictures": (
        lambda folder: folders.write_tiny_imagenet(folder / "pictures"),
        tiny_imagenet,
        {"path": "pictures", "size": 8},
    ),
    "clips": (lambda folder: folders.write_sounds(folder / "own"), audio, {"path": "own", "rate": 8000}),
    "classes": (lambda folder: folders.write_pictures(folder / "own"), image_folder, {"path": "own", "size": 8}),
    "masks": (lambda folder: folders.write_masks(folder / "own"), masks, {"path": "own", "size": 8}),
    "arrays": (lambda folder: folders.write_arrays(folder / "arrays"), npy, {"path": "arrays"}),
    "table": (tables, csv, {"path": "own.csv", "label": "kind", "owner": "farm"}),
    "columns": (tables, parquet, {"path": "own.parquet", "label": "kind", "owner": "farm"}),
}


def outcome(loader, data_dir, options):
    """Load the data within a limit of processor time; return the loader and "loaded" or "refused"."""
    began, result = time.process_time(), "loaded"
    try:
        loader.load(data_dir, **options)
    except UserError as problem:
        sentence(problem)
        result = "refused"
    if time.process_time() - began > SECONDS:
        raise Failed(f"took {time.process_time() - began:.1f} s")
    return f"{loader.__name__.rpartition('.')[2]}: {result}"


def data_file(world, rng):
    """An .npz or text file with odd arrays or words, complete or damaged."""
    path, loader = world.folder / "data.npz", rng.choice((npz, text))
    options = {"path": str(path)} if loader is npz else {"train": str(path), "test": str(path)}
    if loader is npz:
        np.savez(path, **arrays(rng))
    else:
        words = rng.choices(
            ("a", "b", "\n", "<eos>", "\r\n", "\t", "\ufeff", "\x1b[31m", "\u2028", "é", "x" * 999), k=300
        )
        path.write_text(" ".join(words))
    data = flipped(path.read_bytes(), rng, rng.choice((0, 0, 1, 3, 20)))
    path.write_bytes(data[: rng.choice((len(data), len(data), rng.randrange(len(data))))])
    try:
        return outcome(loader, None, options)
    finally:
        os.unlink(path)


def arrays(rng):
    """Named arrays of images and labels; some may be missing or have another shape or type."""
    generator = np.random.default_rng(rng.getrandbits(32))
    arrays_by_name = {"x_train": (6, 5, 5), "y_train": (6,), "x_test": (3, 5, 5), "y_test": (3,), "train_owners": (6,)}
    arrays_by_name = {name: generator.integers(0, 3, shape).astype(np.uint8) for name, shape in arrays_by_name.items()}
    if rng.random() < 0.5:
        del arrays_by_name["train_owners"]
    for name in rng.sample(sorted(arrays_by_name), rng.choice((0, 0, 1, 2))):
        kind = rng.choice((np.uint8, np.float32, np.int64, np.float16, bool, "U3", "S2", complex, None))
        shape = tuple(rng.choice((0, 1, 2, 5, 8)) for _ in range(rng.randint(0, 5)))
        values = generator.integers(0, 9, rng.choice((shape, arrays_by_name[name].shape)))
        if kind is None:
            del arrays_by_name[name]
        else:
            arrays_by_name[name] = values.astype(kind)
    return arrays_by_name


def data_folder(world, rng):
    """A damaged folder of TensorFlow Datasets, of LEAF's writers, of pictures or clips by class, of arrays, or of tables."""
    name = rng.choice(list(FOLDERS))
    write, loader, options = FOLDERS[name]
    whole, folder = world.folder / f"whole {name}", world.fresh()
    if not whole.exists():
        write(whole)
    shutil.copytree(whole, folder)
    for _ in range(rng.randint(1, 3)):
        damage(folder, rng)
    try:
        return outcome(loader, folder, options)
    finally:
        world.drop(folder)


def flipped(content, rng, times):
    """Return a copy with `times` changed bytes."""
    copy = bytearray(content)
    for _ in range(times if copy else 0):
        copy[rng.randrange(len(copy))] = rng.randrange(256)
    return bytes(copy)


def damage(folder, rng):
    """Damage one file of a folder; files that describe others are more likely."""
    files = sorted(path for path in Path(folder).rglob("*") if path.is_file() and not path.is_symlink())
    if not files:
        return
    descriptions = [path for path in files if path.suffix in (".json", ".txt")]
    path, other = rng.choice(descriptions if descriptions and rng.random() < 0.6 else files), rng.choice(files)
    content, action = path.read_bytes(), rng.choice(("values", "values", "bytes", "cut", "exchange", "gone", "odd"))
    if action == "values" and path.suffix == ".json" and content:
        try:
            tree = json.loads(content)
        except ValueError:
            return
        change(tree, rng, rng.randint(1, 5))
        path.write_text(json.dumps(tree))
    elif action in ("values", "bytes"):
        path.write_bytes(flipped(content, rng, rng.choice((1, 3, 20))))
    elif action == "cut":
        path.write_bytes(content[: rng.randrange(len(content) + 1)])
    elif action == "exchange":
        path.write_bytes(other.read_bytes())
    else:
        path.unlink()
        if action == "odd":
            rng.choice((os.mkfifo, os.mkdir, lambda name: os.symlink("/dev/zero", name)))(path)


TRIALS = (data_file, data_folder)
