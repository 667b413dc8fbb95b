"""Odd or damaged data files: the data, or one error message."""

import functools
import json
import os
import shutil

import folders
import numpy as np
import pytest
from hypothesis import given as for_all
from hypothesis import settings
from hypothesis import strategies as st
from world import assert_sentences

from hetero_tf.base import registry
from hetero_tf.base.console import escape_unprintable
from hetero_tf.base.errors import UserError
from hetero_tf.data import tfds

pytestmark = pytest.mark.long

# The copy and the load of a folder take a tenth of a second.
SLOW = settings(max_examples=max(1, settings.default.max_examples // 4))
IMAGES = {"x_train": (6, 5, 5), "y_train": (6,), "x_test": (3, 5, 5), "y_test": (3,), "train_owners": (6,)}


def write_tfds(folder):
    with tfds._suppress_output():
        folders.write_tfds(folder / "tfds", "tiny")


# Kind of data: the function that writes a folder, and the options.
FOLDERS = {name: folders.loader_case(name) for name in registry.names("data") if name != "wikitext2"}
FOLDERS = {"tfds": (write_tfds, {"dataset": "tiny"}), **{name: case for name, case in FOLDERS.items() if case}}
POSITIONS = st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), min_size=1, max_size=8)


def load_or_reject(kind, folder, options):
    """Load data; an error must be one message. Return the data set, or None."""
    try:
        return registry.find("data", kind).load(folder, **options)
    except UserError as problem:
        assert_sentences(escape_unprintable(str(problem)))
        return None


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """`kind -> folder of valid data`."""

    @functools.cache
    def write(kind):
        folder = tmp_path_factory.mktemp("data") / kind
        folder.mkdir()
        FOLDERS[kind][0](folder)
        return folder

    return write


def flipped(content, changes):
    """Bytes with a new value at some positions, which are shares of their length."""
    copy = bytearray(content)
    for share, value in changes if content else ():
        copy[int(share * len(copy))] = value
    return bytes(copy)


def damage(folder, draw):
    """Change bytes or values of a file, truncate it, exchange it, or put something else in its place."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    path, action = draw(st.sampled_from(files)), draw(st.sampled_from(("bytes", "values", "cut", "exchange", "odd")))
    content = path.read_bytes()
    if action == "values" and path.suffix == ".json":
        tree = json.loads(content)
        key = draw(st.sampled_from(sorted(tree) if isinstance(tree, dict) else range(len(tree))))
        tree[key] = draw(st.sampled_from((None, True, -1, 10**30, 0.5, "", "\x1b[31m", [], {}, [None])))
        path.write_text(json.dumps(tree))
    elif action in ("bytes", "values"):
        path.write_bytes(flipped(content, draw(POSITIONS)))
    elif action == "cut":
        path.write_bytes(content[: draw(st.integers(0, len(content)))])
    elif action == "exchange":
        path.write_bytes(draw(st.sampled_from(files)).read_bytes())
    else:
        path.unlink()
        draw(st.sampled_from((os.mkdir, lambda name: None)))(path)


@pytest.mark.parametrize("kind", FOLDERS)
@SLOW
@for_all(data=st.data())
def test_damaged_folders_are_loaded_or_rejected(kind, template, tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("damaged") / "data"
    shutil.copytree(template(kind), folder)
    damage(folder, data.draw)
    load_or_reject(kind, folder, FOLDERS[kind][1])
    shutil.rmtree(folder.parent)


@for_all(
    st.dictionaries(
        st.sampled_from(sorted(IMAGES)),
        st.tuples(
            st.sampled_from(("u1", "f4", "i8", "f2", "?", "U3", "S2", "c8")),
            st.one_of(st.none(), st.lists(st.sampled_from((0, 1, 2, 5, 8)), max_size=5)),
        ),
        max_size=2,
    ),
    st.sets(st.sampled_from(sorted(IMAGES)), max_size=2),
)
def test_arrays_of_any_shape_and_type_are_loaded_or_rejected(tmp_path_factory, changes, missing):
    path = tmp_path_factory.getbasetemp() / "odd.npz"
    arrays = {name: np.arange(np.prod(shape)).reshape(shape) % 3 for name, shape in IMAGES.items()}
    for name, (kind, shape) in changes.items():
        arrays[name] = (np.ones(shape) if shape is not None else arrays[name]).astype(kind)
    np.savez(path, **{name: value.astype(value.dtype) for name, value in arrays.items() if name not in missing})
    load_or_reject("npz", None, {"path": str(path)})
