"""The SavedModel, loaded by a process that cannot import this package, against the model that was exported."""

import dataclasses
import hashlib
import json
import os
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from refusals import refusal

import hetero_tf
from hetero_tf import export
from hetero_tf.base.errors import BadInput, DiskProblem
from hetero_tf.export import images, text
from hetero_tf.recipe import load

NAMES = tuple(f"digit {place}" for place in range(10))
SENTENCES = ["word3 <mask> word4", "word7 nonsense <mask> word2 <eos> word9", ""]
# Runs elsewhere with -I; the package is barred even where it is installed.
STRANGER = """
import sys
sys.modules["hetero_tf"] = None
try:
    import hetero_tf
    raise SystemExit("hetero_tf must not be there")
except ImportError:
    pass
import numpy as np, tensorflow as tf
images, text, given, out = sys.argv[1:]
data = np.load(given)
model = tf.saved_model.load(images).signatures
found = {f"float/{name}": value.numpy() for name, value in
         model["serving_default"](image=tf.constant(data["pixels"])).items()}
bytes_ = tf.map_fn(tf.io.encode_png, tf.constant(data["raw"]), fn_output_signature=tf.string)
found |= {f"bytes/{name}": value.numpy() for name, value in model["serve_bytes"](image_bytes=bytes_).items()}
model = tf.saved_model.load(text).signatures
found["ids/logits"] = model["serving_default"](token_ids=tf.constant(data["ids"]))["logits"].numpy()
found |= {f"text/{name}": value.numpy() for name, value in
          model["serve_text"](text=tf.constant(list(data["sentences"]))).items()}
assert not [name for name in sys.modules if name.startswith("hetero_tf.")]
np.savez(out, **{name: value.astype("S") if value.dtype == object else value for name, value in found.items()})
"""


@pytest.fixture(scope="module")
def image_process():
    process = hetero_tf.learning_process(load("tiny/mnist"))
    dataset = dataclasses.replace(process.dataset, class_names=NAMES, stand_in_for="mnist")
    return hetero_tf.learning_process(process.recipe, dataset=dataset, partition=process.partition)


@pytest.fixture(scope="module")
def text_process():
    return hetero_tf.learning_process(load("tiny/wikitext2", ["input.segment=5", "data.length=40"]))


@pytest.fixture(scope="module")
def exported(image_process, text_process, tmp_path_factory):
    """Folders of both exports, of states that are not the initial ones."""
    root, found = tmp_path_factory.mktemp("exports"), []
    for name, process in (("images", image_process), ("text", text_process)):
        state = moved(process)
        info = {"last": {"round": 0, "global_loss": float("nan")}}
        found.append(export.export(process, state, process.statistics(state), root / "deep" / name, info))
    return found


@pytest.fixture(scope="module")
def answers(exported, image_process, tmp_path_factory):
    """What a process without the package gets from both."""
    here = tmp_path_factory.mktemp("stranger")
    raw = image_process.dataset.test.x[:7]
    given = {"raw": raw, "pixels": raw.astype(np.float32) / 255, "ids": token_ids(), "sentences": np.array(SENTENCES)}
    np.savez(here / "given.npz", **given)
    files = [*(folder / "1" for folder in exported), here / "given.npz", here / "out.npz"]
    command = [sys.executable, "-I", "-c", STRANGER, *map(str, files)]
    run(command, here)
    with np.load(here / "out.npz") as found:
        return dict(found)


def run(command, folder):
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def moved(process):
    """A state whose biases and offsets differ from zero too."""
    rng = np.random.default_rng(3)
    state = process.initialize()
    noise = {path: rng.standard_normal(value.shape).astype(np.float32) for path, value in state.weights.items()}
    return dataclasses.replace(
        state, round=4, weights={path: value + 0.05 * noise[path] for path, value in state.weights.items()}
    )


def token_ids():
    ids = np.random.default_rng(1).integers(0, 51, (3, 13)).astype(np.int32)
    ids[:, 4] = 50
    return ids


def direct(process, ids):
    """Logits [n, length, words] by the Keras model, segment by segment."""
    model = process.model(moved(process), statistics={})
    size = process.recipe.input.options["segment"]
    pieces = [model(ids[:, start : start + size], training=False) for start in range(0, ids.shape[1], size)]
    return np.concatenate(pieces, 1)


def test_pixels_give_the_logits_of_the_evaluation(answers, image_process):
    state = moved(image_process)
    statistics = image_process.statistics(state)
    evaluator = image_process.evaluator
    expected = evaluator.global_logits(*evaluator.global_values(state, statistics))[:7]
    np.testing.assert_allclose(answers["float/logits"], expected, atol=1e-5)
    np.testing.assert_allclose(answers["float/probabilities"], tf.nn.softmax(expected), atol=1e-5)
    np.testing.assert_array_equal(answers["float/class"], np.argmax(expected, 1))
    assert np.ptp(expected) > 0.1


def test_bytes_of_a_png_give_the_same_and_the_name(answers):
    for name in ("logits", "probabilities", "class"):
        np.testing.assert_allclose(answers[f"bytes/{name}"], answers[f"float/{name}"], atol=1e-5)
    assert [name.decode() for name in answers["bytes/class_name"]] == [NAMES[k] for k in answers["float/class"]]
    assert "float/class_name" not in answers


def test_token_ids_are_answered_segment_by_segment(answers, text_process):
    np.testing.assert_allclose(answers["ids/logits"], direct(text_process, token_ids()), atol=1e-5)


def test_sentences_do_not_see_their_padding(answers, text_process):
    words = text_process.dataset.vocabulary
    assert list(answers["text/lengths"]) == [3, 6, 0]
    assert answers["text/token_ids"].tolist() == [[3, 50, 4, -1, -1, -1], [7, 0, 50, 2, 1, 9], [-1] * 6]
    assert np.argwhere(answers["text/is_mask"]).tolist() == [[0, 1], [1, 2]]
    for row, length in enumerate(answers["text/lengths"][:2]):
        logits = direct(text_process, answers["text/token_ids"][row : row + 1, :length])[0]
        best = np.argsort(-logits, 1)[:, :5]
        assert [[word.decode() for word in place] for place in answers["text/topk_tokens"][row, :length]] == [
            [words[k] for k in place] for place in best
        ]
        chances = np.take_along_axis(tf.nn.softmax(logits).numpy(), best, 1)
        np.testing.assert_allclose(answers["text/topk_probabilities"][row, :length], chances, atol=1e-5)
    assert set(answers["text/topk_tokens"][0, 3:].ravel()) == {b""}
    assert not answers["text/topk_probabilities"][2].any()


def test_signatures_have_the_stated_names_and_types(exported):
    pixels, tokens = (tf.saved_model.load(str(folder / "1")).signatures for folder in exported)
    specs = {name: value.structured_input_signature[1] for name, value in {**tokens, **pixels}.items()}
    assert specs["serving_default"]["image"] == tf.TensorSpec((None, 14, 14, 1), tf.float32, "image")
    assert specs["serve_bytes"]["image_bytes"] == tf.TensorSpec((None,), tf.string, "image_bytes")
    assert specs["serve_text"]["text"] == tf.TensorSpec((None,), tf.string, "text")
    assert tokens["serving_default"].structured_input_signature[1]["token_ids"] == tf.TensorSpec(
        (None, None), tf.int32, "token_ids"
    )
    outputs = {"logits", "probabilities", "class"}
    assert set(pixels["serving_default"].structured_outputs) == outputs
    assert set(pixels["serve_bytes"].structured_outputs) == outputs | {"class_name"}
    assert set(tokens["serving_default"].structured_outputs) == {"logits"}
    answers = "is_mask lengths token_ids topk_probabilities topk_tokens"
    assert " ".join(sorted(tokens["serve_text"].structured_outputs)) == answers


def test_json_tells_what_was_exported(exported, image_process):
    folder = exported[0]
    about = json.loads((folder / "export.json").read_text())
    assert about["warning"] == "NOT THE REAL DATA: trained on a stand-in for mnist"
    assert about["data"] == {
        "name": "synthetic images, standing in for mnist",
        "stand_in_for": "mnist",
        "sha256": image_process.dataset.sha256,
    }
    assert (about["recipe"], about["level"], about["round"], about["classes"]) == ("tiny_mnist", "a", 4, 10)
    assert about["class_names"] == list(NAMES)
    assert about["metrics"] == {"last": {"round": 0, "global_loss": None}}
    assert about["signatures"]["serve_bytes"] == {
        "inputs": ["image_bytes"],
        "outputs": ["class", "class_name", "logits", "probabilities"],
    }
    there = {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file() and path.name != "export.json"
    }
    assert about["files"] == there and "1/saved_model.pb" in there
    assert "warning" not in json.loads((exported[1] / "export.json").read_text())
    assert os.listdir(folder.parent) and not [name for name in os.listdir(folder.parent) if name.startswith(".")]


def test_vocabulary_travels_with_the_model(exported, text_process):
    asset = (exported[1] / "1" / "assets" / "vocabulary.txt").read_text()
    assert tuple(asset.splitlines()) == text_process.dataset.vocabulary


def test_the_lines_of_the_readme_work(exported, image_process):
    scripts = []
    for folder in exported:
        lines = (folder / "README.txt").read_text().splitlines()
        code = lines[-3:]
        assert code[0] == "import tensorflow as tf"
        scripts.append(f"os.chdir({str(folder)!r})\n" + "\n".join(code))
    assert (exported[0] / "README.txt").read_text().startswith("NOT THE REAL DATA: trained on a stand-in for mnist\n")
    picture = exported[0] / "picture.png"
    picture.write_bytes(tf.io.encode_png(image_process.dataset.test.x[0]).numpy())
    try:
        printed = run([sys.executable, "-I", "-c", "import os\n" + "\n".join(scripts)], exported[0].parent)
    finally:
        picture.unlink()
    assert "shape=(1, 10)" in printed and "shape=(1, 3, 5), dtype=string" in printed


def test_a_narrower_level_is_its_own_model(image_process, tmp_path):
    state = moved(image_process)
    statistics = image_process.statistics(state, "e")
    folder = export.export(image_process, state, statistics, tmp_path / "e", {}, level="e")
    loaded = tf.saved_model.load(str(folder / "1"))
    pixels = image_process.dataset.test.x[:3] / np.float32(255)
    model = image_process.model(state, "e", statistics)
    expected = model((pixels - np.float32(0.1307)) / np.float32(0.3081), training=False)
    found = loaded.signatures["serving_default"](image=tf.constant(pixels))["logits"]
    np.testing.assert_allclose(found, expected, atol=1e-5)
    about = json.loads((folder / "export.json").read_text())
    assert (about["level"], about["width"]) == ("e", 0.0625)


def test_wrong_arguments_are_refused_and_write_nothing(image_process, tmp_path):
    state = image_process.initialize()
    statistics = image_process.statistics(state)

    def refused(statistics, folder, **options):
        return refusal(export.export, image_process, state, statistics, folder, {}, **options)

    assert refused(statistics, tmp_path / "x", level="z") == (
        "`level` must be one of the recipe's levels. Received: level='z'; known: a, b, c, d, e"
    )
    assert refused({}, tmp_path / "x") == (
        "`statistics` must be those of static batch normalisation at level 'a', as `process.statistics(state, 'a')` "
        "gives them: 0_2_norm/sbn/mean has shape (8,). Received: nothing"
    )
    assert refused(statistics, tmp_path / "x", level="b").endswith("mean has shape (4,). Received: (8,)")
    assert refused(statistics, Path(".")) == ".: must be a new folder with a name, such as export"
    assert os.listdir(tmp_path) == []
    levels = dataclasses.replace(image_process.recipe.levels, mix=(("b", 1.0),))
    with pytest.raises(BadInput, match="must not be wider than the global model, level 'b'. Received: level='a'"):
        export.check_level(levels, "a")


@pytest.fixture
def quick(monkeypatch):
    """Writes a file instead of a SavedModel, for what is only about folders."""

    def write(process, model, folder):
        folder.mkdir()
        (folder / "saved_model.pb").write_bytes(b"model")
        return {}, "call it\n"

    monkeypatch.setattr(export, "_write_model", write)


def test_only_exports_are_replaced_and_only_on_request(text_process, tmp_path, quick):
    state = text_process.initialize()

    def write(folder, **options):
        return export.export(text_process, state, {}, folder, {"run": len(options)}, **options)

    folder = tmp_path / "out"
    folder.mkdir()
    assert write(folder) == folder
    again = f"{folder}: holds an export already; add --overwrite to replace it, or choose another folder"
    assert refusal(write, folder) == again
    (folder / "1" / "stale").touch()
    write(folder, overwrite=True)
    assert json.loads((folder / "export.json").read_text())["metrics"] == {"run": 1}
    assert not (folder / "1" / "stale").exists() and os.listdir(tmp_path) == ["out"]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").touch()
    (tmp_path / "link").symlink_to(folder)
    for name in ("mine", "link"):
        with pytest.raises(BadInput, match=f"{name}: stands in the way and is not an export; choose another folder"):
            write(tmp_path / name, overwrite=True)


def test_a_failed_export_leaves_the_old_one(text_process, tmp_path, monkeypatch, quick):
    state, folder = text_process.initialize(), tmp_path / "out"
    export.export(text_process, state, {}, folder, {"run": 1})
    rename = os.rename

    def stop(source, target):
        if Path(target) == folder and Path(source).name.startswith(".tmp-"):
            raise OSError(28, "No space left on device")
        rename(source, target)

    monkeypatch.setattr(os, "rename", stop)
    with pytest.raises(DiskProblem, match="could not replace: No space left on device; free some space"):
        export.export(text_process, state, {}, folder, {"run": 2}, overwrite=True)
    assert os.listdir(tmp_path) == ["out"]
    assert json.loads((folder / "export.json").read_text())["metrics"] == {"run": 1}


def test_the_next_export_ends_what_a_killed_one_began(text_process, tmp_path, quick):
    """The earlier export comes back, its draft goes; what somebody else put there stays."""
    state, folder = text_process.initialize(), tmp_path / "out"
    export.export(text_process, state, {}, folder, {"run": 1})
    os.rename(folder, tmp_path / ".old-out")
    for name in (".tmp-out.4194999", ".tmp-mine", ".old-mine", ".tmp-out.old"):
        (tmp_path / name).mkdir()
    assert refusal(export.export, text_process, state, {}, folder, {"run": 2}).startswith(f"{folder}: holds an export")
    assert json.loads((folder / "export.json").read_text())["metrics"] == {"run": 1}
    mine = [".old-mine", ".tmp-mine", ".tmp-out.old"]
    assert sorted(os.listdir(tmp_path)) == [*mine, "out"]
    (tmp_path / ".old-out").mkdir()
    told = refusal(export.export, text_process, state, {}, folder, {"run": 2}, overwrite=True)
    assert told.startswith(f"{tmp_path / '.old-out'}: stands in the way, as the folder to replace takes this name")
    os.rmdir(tmp_path / ".old-out")
    export.export(text_process, state, {}, folder, {"run": 3}, overwrite=True)
    assert json.loads((folder / "export.json").read_text())["metrics"] == {"run": 3}
    assert sorted(os.listdir(tmp_path)) == [*mine, "out"]


def test_the_longest_name_of_an_export(text_process, tmp_path, quick):
    state, folder = text_process.initialize(), tmp_path / ("x" * 250)
    for number in (1, 2):
        export.export(text_process, state, {}, folder, {"run": number}, overwrite=True)
    assert os.listdir(tmp_path) == [folder.name]


def test_statistics_that_are_not_finite_are_not_exported(image_process, tmp_path):
    state = image_process.initialize()
    statistics = {path: np.full_like(value, np.nan) for path, value in image_process.statistics(state).items()}
    assert refusal(export.export, image_process, state, statistics, tmp_path / "x", {}) == (
        "`statistics` must be finite. Received: NaN or infinite values in 0_2_norm/sbn/mean"
    )


def test_a_full_disk_while_tensorflow_writes_is_one_sentence(text_process, tmp_path, monkeypatch):
    def full(*_, **__):
        raise tf.errors.ResourceExhaustedError(None, None, "No space\nleft on device")

    monkeypatch.setattr(tf.saved_model, "save", full)
    with pytest.raises(DiskProblem, match="could not write the SavedModel: No space left on device; check the"):
        export.export(text_process, text_process.initialize(), {}, tmp_path / "out", {})
    assert os.listdir(tmp_path) == []


def test_words_that_cannot_be_looked_up_are_refused(tmp_path):
    with pytest.raises(BadInput, match=r"must be one word without white space to be looked up. Received: 'a b' at pl"):
        text._tables(("<ukn>", "a b"), tmp_path)
    with pytest.raises(BadInput, match="every word of the vocabulary must stand in it once. Received: 'a' twice"):
        text._tables(("a", "b", "a"), tmp_path)


def test_without_a_vocabulary_there_are_token_ids_only(text_process):
    dataset = dataclasses.replace(text_process.dataset, vocabulary=None)
    process = dataclasses.replace(text_process, dataset=dataset)
    made = text.endpoints(process, None, None, None)
    assert set(made) == {"serving_default"}
    assert "token_ids=[[0, 1, 50]]" in text.readme(process, made)


def test_words_are_split_as_in_training(tmp_path):
    numbers, _ = text._tables(("<ukn>", "<eos>", "é", "b"), tmp_path)
    spaces = [chr(code) for code in range(0x3100) if chr(code).isspace() and chr(code) != "\n"]
    assert len(spaces) > 20
    lines = [f"{space}é{space}{space}b {space}c" for space in spaces]
    ids, hidden, lengths = text.encode(tf.constant(lines), numbers, 4, ends_lines=True)
    assert ids.numpy().tolist() == [[2, 3, 0]] * len(lines) and not hidden.numpy().any()
    ids, hidden, lengths = text.encode(tf.constant(["b\r\nb\n<mask>", "b"]), numbers, 4, ends_lines=True)
    assert ids.numpy().tolist() == [[3, 1, 3, 1, 4], [3, -1, -1, -1, -1]]
    assert hidden.numpy().tolist() == [[False] * 4 + [True], [False] * 5] and lengths.numpy().tolist() == [5, 1]
    assert text.encode(tf.constant(["b\nb"]), numbers, 4, ends_lines=False)[0].numpy().tolist() == [[3, 3]]


def bmp(pixels):
    """A 24-bit BMP file of uint8 pixels [height, width, 3] whose rows need no padding."""
    height, width, _ = pixels.shape
    body = pixels[::-1, :, ::-1].tobytes()
    head = struct.pack("<IiiHHIIiiII", 40, width, height, 1, 24, 0, len(body), 0, 0, 0, 0)
    return b"BM" + struct.pack("<IHHI", 54 + len(body), 0, 0, 54) + head + body


def test_pictures_of_all_kinds_are_decoded():
    rng = np.random.default_rng(0)
    colour, alpha = (rng.integers(0, 256, (4, 4, depth)).astype(np.uint8) for depth in (3, 4))
    grey, grey_alpha = colour[..., :1], alpha[..., :2]
    weights = np.array([0.299, 0.587, 0.114])
    cases = [
        (tf.io.encode_png(colour), 3, colour),
        (bmp(colour), 3, colour),
        (tf.io.encode_png(alpha), 3, alpha[..., :3]),
        (tf.io.encode_png(grey), 1, grey),
        (tf.io.encode_png(grey_alpha), 1, alpha[..., :1]),
        (tf.io.encode_png(grey), 3, np.repeat(grey, 3, 2)),
        (tf.io.encode_png(colour), 1, colour @ weights[:, None]),
        (bmp(colour), 1, colour @ weights[:, None]),
    ]
    for data, depth, expected in cases:
        found = images.decode(tf.constant(data), (4, 4, depth))
        np.testing.assert_allclose(found, expected / 255, atol=1e-6)
    # A JPEG of another size is resized.
    jpeg = tf.io.encode_jpeg(np.full((30, 20, 3), 100, np.uint8))
    np.testing.assert_allclose(images.decode(jpeg, (4, 4, 1)), np.full((4, 4, 1), 100 / 255), atol=0.01)


def test_images_of_two_channels_have_no_bytes(image_process):
    dataset = image_process.dataset
    train, test = (dataclasses.replace(split, x=np.repeat(split.x, 2, 3)) for split in (dataset.train, dataset.test))
    process = dataclasses.replace(image_process, dataset=dataclasses.replace(dataset, train=train, test=test))
    made = images.endpoints(process, process.family.predictor("a"), None, None)
    assert set(made) == {"serving_default"}
    assert "image=tf.zeros([1, 14, 14, 2])" in images.readme(process, made)
