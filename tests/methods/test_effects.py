"""Every option has an effect: another valid value changes the result of the plug-in, or is refused.

Options come from the registry, so a new option is tested automatically."""

import dataclasses
import inspect
from pathlib import Path

import keras
import numpy as np
import pyarrow.parquet
import pytest
import tensorflow as tf

from hetero_tf.base import registry
from hetero_tf.base.errors import InputError
from hetero_tf.data.inputs import all_labels
from hetero_tf.methods.stages import LevelSpec, ModelOutline
from hetero_tf.models.build_model import layer_class
from hetero_tf.recipe import geometry
from hetero_tf.testing.step_checks import aggregate_clients, local_step, merge_arguments, selection_pool
from hetero_tf.testing.subject import Subject

RNG = np.random.default_rng(0)
# Options with which the other options have an effect.
BESIDE = {
    ("selections", "oort"): {"exploration": 0.5, "pacer_step": 2, "pacer_delta": 30.0},
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
    ("data", "parquet"): {"path": "rows.parquet", "label": "kind", "ignore": ("text",), "numbers": "point"},
    ("partitions", "labels", "shuffled"): {"draw": "consecutive"},
    ("partitions", "class_deck", "least"): {"sizes": "dirichlet"},
    ("partitions", "class_deck", "test_least"): {"sizes": "dirichlet"},
    ("partitions", "file"): {"path": "split.npz"},
    ("couplings", "weighted"): {"gamma": 1.0},
    **{
        ("policies", name, f"hinge_{option}"): {"staleness": "hinge"}
        for name in ("buffered", "immediate")
        for option in ("start", "slope")
    },
}  # fmt: skip
# Values to test if those of `others` may give equal results.
TRIED = {
    ("selections", "oort", "exploration_min"): (0.6,),
    ("inputs", "next_word", "segment"): (3,),
    ("data", "npz", "path"): ("other.npz",),
    ("data", "text", "train"): ("other.txt",),
    ("data", "text", "test"): ("other.txt",),
    ("data", "text", "vocabulary"): (5,),
    ("data", "npz", "classes"): (12,),
    ("data", "npz", "kind"): ("series",),
    ("partitions", "file", "path"): ("other.npz",),
    ("partitions", "labels", "shuffled"): (1.0,),
    ("partitions", "natural", "least"): (46,),
    ("partitions", "dirichlet", "least"): (30,),
    ("inputs", "masked_text", "segment"): (4,),
    ("merges", "trimmed_mean", "share"): (0.0,),
    ("updates", "top_k", "share"): (0.6,),
    ("merges", "geometric_median", "smoothing"): (5.0,),
    ("couplings", "weighted", "from_round"): (3,),
    # Other files test the other options of these loaders.
    ("data", "masks", "test_share"): (0.5,),
    ("data", "labelled_text", "tokenizer"): ("characters",),
    ("data", "labelled_text", "vocabulary"): (4,),
    ("data", "labelled_text", "vocabulary_file"): ("other.txt",),
    ("data", "series", "delimiter"): ("semicolon",),
}
TESTS = Path(__file__).parents[1]
# Options that other tests cover, since they need files, servers or more than one call. An option in `TRIED` is tested
# here. The tests of a loader, data/test_NAME.py, cover the options of the loader.
ELSEWHERE = {
    ("models", "preset"),
    ("selections", "available"),
    ("selections", "oort", "filled_utility"),
    ("partitions", "iid", "noise"),
    ("updates", "top_k", "error_feedback"),
    ("updates", "sign", "error_feedback"),
    ("personalizations", "apfl", "alpha"),
    ("data", "masks"),
    *(("data", "text", option) for option in ("column", "vocabulary_file", "encoding")),
    *(
        ("data", "csv", option)
        for option in ["group", "skip", "encoding", "missing_values", "delimiter", "image", "size", "channels"]
    ),
    *(("data", "labelled_text", option) for option in ("missing", "header", "encoding")),
    *(("data", "series", option) for option in ("missing_values", "gaps", "skip", "encoding")),
    *(("data", "wikitext2", option) for option in ("download", "verify")),
    ("layers", "Embedding", "padding"),
    ("layers", "Dropout", "rate"),
}
# Loaders that are tried here, although they have a file of tests.
HERE = (("data", "wikitext2"),)
IMAGES = RNG.integers(0, 256, (6, 8, 8, 2)).astype(np.uint8)
CLIPS = np.random.default_rng(2).integers(-9000, 9000, (6, 900)).astype(np.int16)
ROWS = np.random.default_rng(1).normal(9, 3, (6, 4)).astype(np.float32)
TOKENS = RNG.integers(0, 9, (6, 10)).astype(np.int32)
LABELS = RNG.integers(0, 10, 1000).astype(np.int32)
TEST_LABELS = RNG.integers(0, 10, 300).astype(np.int32)
OWNERS = (np.arange(1000, dtype=np.int32) * 7) % 22
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
    """Files of data and a saved partition."""
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
    table = {"text": ["a b c", "b d", "a e f"], "size": ["1,250", "2,500", "3,000"], "part": ["u", "v", "w"]}
    table = {**table, "kind": ["x", "y", "y"]}
    pyarrow.parquet.write_table(
        pyarrow.table({name: 8 * cells for name, cells in table.items()}), folder / "rows.parquet"
    )
    texts = zip(8 * table["text"], 8 * table["kind"])
    for name, rows in (("rows", [("text", "kind"), *texts]), ("series", [("day", "size"), *zip(range(24), range(24))])):
        (folder / f"{name}.csv").write_text("".join(f"{first},{second}\n" for first, second in rows))
    for name in ("images", "masks"):
        (folder / "streets" / name).mkdir(parents=True)
        for index in range(8):
            pixels = np.full((4, 4, 3 if name == "images" else 1), index % 2, np.uint8)
            (folder / "streets" / name / f"{index}.png").write_bytes(tf.io.encode_png(pixels).numpy())
    iid = registry.find("partitions", "iid")
    iid.split(LABELS, TEST_LABELS, 10, np.random.default_rng(0), clients=20).save(folder / "split.npz")
    return folder


def flat(value):
    """Nested arrays as a value that compares bit by bit."""
    if isinstance(value, dict):
        return {name: flat(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [flat(part) for part in value]
    if isinstance(value, (np.ndarray, tf.Tensor)):
        return np.shape(value), np.asarray(value).tobytes()
    return value


def rows(*shape):
    return tf.constant(np.random.default_rng(sum(shape)).normal(size=shape))


def with_gradients(function, *inputs):
    """The value of a function and its gradients."""
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        value = function(*inputs)
    return value, tape.gradient(value, inputs, unconnected_gradients="zero")


def data(module, folder, options):
    dataset = module.load(folder, **options)
    return dataset.train.x, dataset.train.y, dataset.train.owners, dataset.test.x, dataset.test.y, dataset.classes


def inputs(module, folder, options):
    learned = {"statistics": (ROWS.mean(0), ROWS.std(0)), "rate": 8000}
    injected = {name: learned[name] for name in inspect.signature(module.build).parameters if name in learned}
    source, labels = module.build("float64", **options, **injected), np.arange(6, dtype=np.int32)
    series = np.stack([ROWS, -ROWS], 1)
    by_kind = {"arrays": ROWS, "audio": CLIPS, "images": IMAGES, "series": series, "table": ROWS}
    x, y = (by_kind[module.DATA], labels) if module.DATA in by_kind else (TOKENS, None)
    y = None if y is None else tf.constant(y)
    arguments = (tf.constant(x), y, tf.constant([0, 3, 5]), tf.constant(0), tf.constant([1, 2, 3, 4]), all_labels(9))
    return source.batch(*arguments, training=True), source.starts(x)


def partitions(module, folder, options):
    owners = {"train_owners": OWNERS, "test_owners": OWNERS[:300]}
    parameters = inspect.signature(module.split).parameters
    injected = {name: value for name, value in owners.items() if name in parameters}
    options = {name: str(folder / value) if name == "path" else value for name, value in options.items()}
    return module.split(LABELS, TEST_LABELS, 10, np.random.default_rng(0), **injected, **options).sha256


def stages(module, folder, options):
    outline = ModelOutline(("0", "1", "3", "5", "7"), {1: (2, "2"), 2: (3, "4"), 3: (4, "6")}, (1.0, 0.5))
    shares = {"0": 0.10, "1": 0.40, "3": 0.25, "5": 0.20, "7": 0.05}
    levels = [LevelSpec("a", 1.0, 4, budget, 0.0) for budget in (None, 0.41, 2)]
    return repr([module.divide(outline, level, shares=shares, **options) for level in levels])


def couplings(module, folder, options):
    def coupled(*logits):
        losses = [tf.nn.sparse_softmax_cross_entropy_with_logits([[0, 1, 4]], each) for each in logits]
        return module.couple(losses, list(logits), tf.constant([[0, 1, 4]]), tf.constant(2), **options)

    return with_gradients(coupled, *(rows(1, 3, 5) * scale for scale in (1.0, 2.0, 3.0)))


def corrections(module, folder, options):
    slots = tuple(rows(2, 4) / 3 for _ in module.READS)
    memory = rows(2, 3)[:, :1] if module.REMEMBERS else None
    term = module.correct(rows(2, 4), rows(2, 4) / 2, memory, slots, **options)
    steps = tf.constant([1, 2])
    remembered = (
        module.remember(memory, rows(2, 4), rows(2, 4) / 2, slots, steps, 0.1, **options) if module.REMEMBERS else ()
    )
    return term, remembered


def personalizations(module, folder, options):
    alpha, number = tf.constant([[0.3], [0.9], [0.5]], tf.float64), tf.constant([0, 1, 2])
    local = local_step(rows(3, 7), rows(3, 7) / 2, rows(3, 7) / 3, alpha, -rows(3, 7), number)
    return module.personalize(local, **options)


def optimizers(module, folder, options):
    slots = tuple(tf.abs(rows(2, 4)) for _ in module.SLOTS)
    return module.step(rows(2, 4), rows(2, 4) / 2, slots, 0.1, tf.constant([1, 2]), **options)


def updates(module, folder, options):
    needs_entries = "entries" in inspect.signature(module.update).parameters
    entries = {"entries": tf.constant([4, 4])} if needs_entries else {}
    keys = tf.constant([[1, 2, 3], [1, 2, 4]])
    return module.update(9 * rows(2, 4), rows(2, 4), tf.constant([1, 2]), keys, **entries, **options)


def merges(module, folder, options):
    return aggregate_clients(Subject("merges", module.__name__.rpartition(".")[2], options), *merge_arguments())


def masks(module, folder, options):
    start, maskable = rows(2, 9), tf.constant([True] * 8 + [False])
    state = module.prepare(start, tf.constant([[1, 2, 3], [1, 2, 4]]), maskable, 4, **options)
    return state, with_gradients(lambda weights: module.mask(weights, state, **options) * weights, start)


def policies(module, folder, options):
    return module.policy(**options)


def selections(module, folder, options):
    subject, rounds = Subject("selections", module.__name__.rpartition(".")[2], options), range(12)
    memory, choices = selection_pool(subject, 0, 30).memory, []
    for round in rounds:
        pool = dataclasses.replace(selection_pool(subject, round, 30), memory=memory)
        choice = module.choose(pool, 8, np.random.default_rng(0), **options)
        memory = getattr(choice, "memory", memory)
        choices.append(getattr(choice, "ids", choice))
    return choices


def submodels(module, folder, options):
    coordinates = [module.keep(9, 4, *map(tf.constant, (round, round + 1, 7)), **options) for round in range(3)]
    return [tf.sort(each) for each in coordinates]


def losses(module, folder, options):
    present = tf.constant([True, True, False, True, True])
    # Numbers or label sets, unless the targets are labels.
    targets = tf.constant([[0, 1, 4]]) if "label" in module.TARGETS else rows(1, 3, 5) ** 2
    learned = {"class_shares": np.array([0.4, 0.3, 0.1, 0.1, 0.1])}
    learned = learned if "class_shares" in inspect.signature(module.loss).parameters else {}
    return with_gradients(
        lambda logits: module.loss(logits, targets, present, 0, **learned, **options), 3 * rows(1, 3, 5)
    )


def tasks(module, folder, options):
    learned = {"statistics": (np.array([1.0, 2.0]), np.array([3.0, 4.0]))}
    learned = learned if "statistics" in inspect.signature(module.task).parameters else {}
    return module.task(**learned, **options).encode(np.ones([3, 2], np.float32))


def metrics(module, folder, options):
    return module.metric(rows(4, 5), tf.constant([0, 1, 4, 2]), **options)


def servers(module, folder, options):
    injected = {"registered": 20, "memory_change": rows(4, 5)}
    parameters = inspect.signature(module.apply).parameters
    injected = {name: value for name, value in injected.items() if name in parameters}
    slots = tuple(tf.abs(rows(4, 5)) for _ in module.SLOTS)
    return module.apply(rows(4, 5), rows(4, 5) / 2, tf.ones([4, 5], tf.float64), slots, **injected, **options)


def schedules(module, folder, options):
    return [module.multiplier(round, **options) for round in range(40)]


def layers(name, options):
    """Initial weights, outputs in training and inference, and final weights; layers with a `scale` get 1/2."""
    keras.utils.set_random_seed(0)
    level = {"scale": 0.5} if "scale" in registry.level_arguments(name) else {}
    layer, x = layer_class(name)(**options, **level, dtype="float64"), INPUTS.get(name, PIXELS)
    layer(x)
    begin = {variable.path.split("/", 1)[-1]: variable.numpy() for variable in layer.variables}
    for variable in layer.trainable_variables:
        # An adapter adds nothing at first.
        if not variable.numpy().any():
            variable.assign(tf.ones_like(variable))
    trains = "training" in inspect.signature(layer.call).parameters
    outputs = [layer(x, training=training) for training in (True, False)] if trains else [layer(x)]
    return begin, outputs, [variable.numpy() for variable in layer.variables]


def others(constraint, value):
    """Other valid values: all choices, and numbers near to and far from the present value."""
    if constraint.choices:
        return [choice for choice in constraint.choices if choice != value]
    if constraint.type == "bool":
        return [not value]
    if constraint.type == "tuple":
        return [[0.5], [3]] if constraint.item is None or constraint.item.type == "float" else [[3]]
    if constraint.type == "pair":
        return [{None: 1, 3: 5}.get(value, 3)]
    if constraint.type == "int":
        return [2 if value is None else value + 2]
    if constraint.type == "float":
        low = constraint.low if constraint.above is None else constraint.above
        high = constraint.below if constraint.below is not None else constraint.high
        tried = (0.3, 0.7) if value is None else (value / 2 + 0.05, value * 2 + 0.1)
        return [x for x in tried if x > (-1 if low is None else low) and (high is None or x < high) and x != value][:1]
    return [f"{value}_other"]


REQUIRED = {"seconds": 5.0, "clients": 20, "alpha": 0.5, "mu": 0.1, "norm": 1.0, "rounds": 10, "factor": 0.5}
REQUIRED |= {"at": (2,), "candidates": 9}


def outcome(kind, name, options, folder):
    """The result of a plug-in with some options, or the error."""
    try:
        if kind == "layers":
            return flat(layers(name, options))
        return flat(globals()[kind](registry.find(kind, name), folder, options))
    except (InputError, ValueError) as problem:
        return f"refused: {problem}"


def is_tested_elsewhere(*key):
    """Whether other tests cover an option of a plug-in."""
    if key in TRIED:
        return False
    is_loader = key[0] == "data" and key[:2] not in HERE and (TESTS / f"data/test_{key[1]}.py").exists()
    return is_loader or not ELSEWHERE.isdisjoint((key, key[:2]))


OPTIONS = [
    (kind, name, option)
    for kind in registry.EXPORTS
    for name in registry.names(kind)
    # A second name has the options of the first.
    if registry.module_name(kind, name).endswith(f".{name}")
    for option in registry.options(kind, name)
]
PLUGINS = list(dict.fromkeys(key[:2] for key in OPTIONS if not is_tested_elsewhere(*key)))


@pytest.mark.parametrize(("kind", "name"), PLUGINS)
def test_every_option_of_a_plugin_has_an_effect(kind, name, folder):
    for option in registry.options(kind, name).values():
        key = (kind, name, option.name)
        if is_tested_elsewhere(*key):
            continue
        required = {o.name: REQUIRED.get(o.name) for o in registry.options(kind, name).values() if o.required}
        options = required | BESIDE.get(key, BESIDE.get(key[:2], {}))
        value = options.get(option.name, option.default)
        tried = TRIED.get(key) or others(option.constraint, value)
        outcomes = [outcome(kind, name, {**options, option.name: each}, folder) for each in (value, *tried)]
        assert tried and not str(outcomes[0]).startswith("refused"), f"{key}: {outcomes[0]}"
        for index, each in enumerate(outcomes):
            assert each not in outcomes[:index], f"{key} = {(value, *tried)[index]!r} has no effect"


@pytest.mark.parametrize("name", geometry.known_layers())
def test_every_argument_of_a_layer_has_an_effect(name, folder):
    options = geometry.layer_options(name)
    needed = {argument: SIZES[argument] for argument, option in options.items() if option.required}
    needed |= NEEDED.get(name, {})
    first = outcome("layers", name, needed, folder)
    assert not str(first).startswith("refused"), first
    for argument, option in options.items():
        if ("layers", name, argument) in ELSEWHERE:
            continue
        # wbn differs from bn between widths only: test_width_statistics.py.
        tried = [each for each in others(option.constraint, needed.get(argument, option.default)) if each != "wbn"]
        different, is_keras = [first], name not in registry.names("layers")
        for each in tried:
            changed = outcome("layers", name, {**needed, argument: each}, folder)
            if changed not in different:
                different.append(changed)
                # One call does not distinguish all choices of Keras, such as relu and relu6.
                if is_keras:
                    break
        assert len(different) == (2 if is_keras else 1 + len(tried)), f"{name}.{argument}"
