"""Every option of a loader and every argument of a layer has an effect; `check_effects` tests the other plug-ins.

Options come from the registry, so a new option is tested automatically."""

import inspect
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from hetero_tf.base import registry
from hetero_tf.models.build_model import layer_class
from hetero_tf.recipe import geometry
from hetero_tf.testing.effects import has_effect, other_values

RNG = np.random.default_rng(0)
# Options with which the other options have an effect.
BESIDE = {
    **{("data", "synthetic", name): {"kind": "text"} for name in ("rows", "test_rows", "length", "vocabulary")},
    ("data", "synthetic", "rate"): {"kind": "audio"},
    ("data", "wikitext2"): {"verify": False, "rows": 3, "test_rows": 2},
    ("data", "text"): {"train": "words.txt", "rows": 3, "test_rows": 2},
    ("data", "text", "test_share"): {"train": "words.txt", "rows": 3, "test_rows": 2, "test": None},
    ("data", "npz"): {"path": "images.npz"},
    # Few and small pictures, which are drawn quickly.
    ("data", "shapes"): {"examples": 9, "test_examples": 3, "size": 16},
    ("data", "masks"): {"path": "streets", "size": 4},
    ("data", "labelled_text"): {"path": "rows.csv", "label": "kind", "vocabulary": 9},
    ("data", "series"): {"path": "series.csv", "label": "size", "horizon": 1, "time": "day", "window": 2, "targets": "numbers"},
}  # fmt: skip
# Values to test if those of `other_values` may give equal results.
TRIED = {
    ("data", "npz", "path"): ("other.npz",),
    ("data", "text", "train"): ("other.txt",),
    ("data", "text", "test"): ("other.txt",),
    ("data", "text", "vocabulary"): (5,),
    ("data", "npz", "classes"): (12,),
    ("data", "npz", "kind"): ("series",),
    # Other files test the other options of these loaders.
    ("data", "masks", "test_share"): (0.5,),
    ("data", "labelled_text", "tokenizer"): ("characters",),
    ("data", "labelled_text", "vocabulary"): (4,),
    ("data", "labelled_text", "vocabulary_file"): ("other.txt",),
    ("data", "series", "delimiter"): ("semicolon",),
}
TESTS = Path(__file__).parents[1]
# Options that other tests cover, since they need files or more than one call. An option in `TRIED` is tested
# here. The tests of a loader, data/test_NAME.py, cover the options of the loader.
ELSEWHERE = {
    ("data", "masks"),
    *(("data", "text", option) for option in ("column", "vocabulary_file", "encoding")),
    *(("data", "wikitext2", option) for option in ("download", "verify")),
    ("layers", "Embedding", "padding"),
    ("layers", "Dropout", "rate"),
}
# A loader that is tried here, although it has a file of tests.
HERE = "wikitext2"
IMAGES = RNG.integers(0, 256, (6, 8, 8, 2)).astype(np.uint8)
PIXELS, VECTORS, WORDS = 9 * RNG.normal(size=(4, 6, 6, 8)), RNG.normal(size=(3, 6, 8)), RNG.integers(0, 9, (3, 5))
INPUTS = {
    "Dropout": VECTORS,
    "ClassTokenReadout": VECTORS,
    **dict.fromkeys(("Embedding", "MaskedTokenEmbedding"), WORDS),
    **dict.fromkeys(("Conv1D", "GRU", "LSTM", "PositionEmbedding"), VECTORS),
    **dict.fromkeys(("AveragePooling1D", "MaxPooling1D", "GlobalAveragePooling1D", "GlobalMaxPooling1D"), VECTORS),
    "SelfAttention": VECTORS,
    "TransformerBlock": VECTORS,
}
SIZES = {"rows": 3, "channels": 11, "positions": 7, "classes": 9, "words": 9, "units": 5, "filters": 8, "width": 6}
SIZES |= {"heads": 2, "head_width": 3, "hidden": 7, "lora_rank": 3, "kernel_size": 3, "patch": 3, "pool_size": 4}
SIZES |= {"activation": "relu", "rate": 0.3}

# Not required, but the defaults suit other images, or have no adapters.
NEEDED = {"GroupNormalization": {"groups": 4}, "MaxPooling1D": {"pool_size": 4}, "MaxPooling2D": {"pool_size": 4}}
NEEDED |= dict.fromkeys(("SelfAttention", "TransformerBlock"), {"lora_rank": 3})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Files of data."""
    folder = tmp_path_factory.mktemp("data")
    for name, shift in (("images", 0), ("other", 1)):
        labels = np.arange(20) % 10
        arrays = {"x_train": IMAGES[labels % 6], "y_train": labels, "x_test": IMAGES[:1], "y_test": labels[:1] + shift}
        np.savez(folder / f"{name}.npz", **arrays)
    for name, words in (("words", "a b c d e f g "), ("other", "a c e g b ")):
        (folder / f"{name}.txt").write_text(words * 30)
    (folder / "wikitext-2").mkdir()
    for name in ("train", "test"):
        (folder / "wikitext-2" / f"{name}.txt").write_text("a b c d e f g " * 30)
    texts = 8 * [("a b c", "x"), ("b d", "y"), ("a e f", "y")]
    for name, rows in (("rows", [("text", "kind"), *texts]), ("series", [("day", "size"), *zip(range(24), range(24))])):
        (folder / f"{name}.csv").write_text("".join(f"{first},{second}\n" for first, second in rows))
    for name in ("images", "masks"):
        (folder / "streets" / name).mkdir(parents=True)
        for index in range(8):
            pixels = np.full((4, 4, 3 if name == "images" else 1), index % 2, np.uint8)
            (folder / "streets" / name / f"{index}.png").write_bytes(tf.io.encode_png(pixels).numpy())
    return folder


def data(name, folder, options):
    dataset = registry.find("data", name).load(folder, **options)
    return dataset.train.x, dataset.train.y, dataset.train.owners, dataset.test.x, dataset.test.y, dataset.classes


def layers(name, options):
    """Initial weights, outputs in training and inference, and final weights; layers with a `scale` get 1/2."""
    keras.utils.set_random_seed(0)
    level = {"scale": 0.5} if "scale" in registry.level_arguments(name) else {}
    layer, x = layer_class(name)(**options, **level, dtype="float64"), INPUTS.get(name, PIXELS)
    layer(x)
    begin = [(variable.path.split("/", 1)[-1], variable.numpy()) for variable in layer.variables]
    for variable in layer.trainable_variables:
        # An adapter adds nothing at first.
        if not variable.numpy().any():
            variable.assign(tf.ones_like(variable))
    trains = "training" in inspect.signature(layer.call).parameters
    outputs = [layer(x, training=training) for training in (True, False)] if trains else [layer(x)]
    return begin, outputs, [variable.numpy() for variable in layer.variables]


def is_tested_elsewhere(*key):
    """Whether other tests cover an option of a loader."""
    has_tests = key[1] != HERE and (TESTS / f"data/test_{key[1]}.py").exists()
    return key not in TRIED and (has_tests or not ELSEWHERE.isdisjoint((key, key[:2])))


LOADERS = {name: registry.options("data", name) for name in registry.names("data")}
OPTIONS = [
    ("data", name, option)
    for name, options in LOADERS.items()
    for option in options
    # A second name has the options of the first.
    if registry.module_name("data", name).endswith(f".{name}") and not is_tested_elsewhere("data", name, option)
]


@pytest.mark.parametrize("key", OPTIONS, ids="-".join)
def test_every_option_of_a_loader_has_an_effect(key, folder):
    (_, name, option), constraint = key, LOADERS[key[1]][key[2]].constraint
    options = BESIDE.get(key, BESIDE.get(key[:2], {}))
    tried = TRIED.get(key) or other_values(constraint, options.get(option, LOADERS[name][option].default))
    distinct = bool(constraint.choices)
    assert tried and has_effect(lambda each: data(name, folder, each), options, option, tried, distinct)


@pytest.mark.parametrize("name", geometry.known_layers())
def test_every_argument_of_a_layer_has_an_effect(name):
    options, is_keras = geometry.layer_options(name), name not in registry.names("layers")
    needed = {argument: SIZES[argument] for argument, option in options.items() if option.required}
    needed |= NEEDED.get(name, {})
    for argument, option in options.items():
        if ("layers", name, argument) in ELSEWHERE:
            continue
        # wbn differs from bn between widths only: test_width_statistics.py.
        values = other_values(option.constraint, needed.get(argument, option.default))
        tried = [each for each in values if each != "wbn"]
        # One call does not distinguish all choices of Keras, such as relu and relu6.
        distinct = bool(option.constraint.choices) and not is_keras
        is_used = has_effect(lambda each: layers(name, each), needed, argument, tried, distinct)
        assert is_used, f"{name}.{argument}"
