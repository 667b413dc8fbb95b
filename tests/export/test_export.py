"""Exported SavedModels, loaded by a process that cannot import this package, compared with the Keras model."""

import dataclasses
import hashlib
import json
import os
import shutil
import subprocess
import sys
from types import SimpleNamespace

import exports
import numpy as np
import pytest
import tensorflow as tf
import tiny
import yaml
from refusals import raising, refusal

import hetero_tf
from hetero_tf import export
from hetero_tf.base.errors import DiskProblem, InputError
from hetero_tf.data.graph_tokenizer import vocabulary_tables
from hetero_tf.export import compare, positions, saved_model, task_of
from hetero_tf.export.positions import MaskedTextTask, NextWordTask
from hetero_tf.export.task import ExportTask
from hetero_tf.recipe import load
from hetero_tf.run.data import load_data

ONE_CONVOLUTION = (
    "model.settings={}",
    "model.layers=[[PaddedConv2D: {filters: !w 8}, Scaler, Norm: {kind: sbn}, ReLU], GlobalAveragePooling2D, Dense: {units: !classes}]",
)
NAMES = tuple(f"digit {index}" for index in range(10))
SENTENCES = ["word3 <mask> word4", "word7 nonsense <mask> word2 <eos> word9", ""]
# Runs in an isolated process (-I); the package is blocked even if it is installed.
STRANGER_SCRIPT = """
import sys
sys.modules["hetero_tf"] = None
try:
    import hetero_tf
    raise SystemExit("hetero_tf must not be importable")
except ImportError:
    pass
import numpy as np, tensorflow as tf
images, text, inputs, out = sys.argv[1:]
data = np.load(inputs)
model = tf.saved_model.load(images).signatures
outputs = {f"float/{name}": value.numpy() for name, value in
         model["serving_default"](image=tf.constant(data["pixels"])).items()}
bytes_ = tf.map_fn(tf.io.encode_png, tf.constant(data["raw"]), fn_output_signature=tf.string)
outputs |= {f"uint8/{name}": value.numpy() for name, value in
          model["serve_uint8"](image=tf.constant(data["raw"])).items()}
outputs |= {f"bytes/{name}": value.numpy() for name, value in model["serve_bytes"](image_bytes=bytes_).items()}
model = tf.saved_model.load(text).signatures
outputs["ids/logits"] = model["serving_default"](token_ids=tf.constant(data["ids"]))["logits"].numpy()
outputs["segment/logits"] = model["serve_segment"](token_ids=tf.constant(data["ids"][:, 5:10]))["logits"].numpy()
outputs |= {f"text/{name}": value.numpy() for name, value in
          model["serve_text"](text=tf.constant(list(data["sentences"]))).items()}
assert not [name for name in sys.modules if name.startswith("hetero_tf.")]
np.savez(out, **{name: value.astype("S") if value.dtype == object else value for name, value in outputs.items()})
"""


@pytest.fixture(scope="module")
def image_process():
    recipe = load("tiny/mnist", ONE_CONVOLUTION)
    dataset = dataclasses.replace(load_data(recipe, None), class_names=NAMES, stand_in_for="mnist")
    return hetero_tf.learning_process(recipe, dataset=dataset)


@pytest.fixture(scope="module")
def text_process():
    return exports.process(*exports.TEXT)


@pytest.fixture(scope="module")
def exported_text():
    return exports.text().folder


@pytest.fixture(scope="module")
def exported_images(image_process, tmp_path_factory):
    """Folder of an export whose state differs from the initial one."""
    state, info = perturbed_state(image_process), {"last": {"round": 0, "global_loss": float("nan")}}
    folder = tmp_path_factory.mktemp("exports") / "deep" / "images"
    with tiny.eagerly():
        statistics = image_process.statistics(state)
    path, returned = export.export(image_process, state, statistics, folder, info)
    assert returned == json.loads((path / "export.json").read_text())
    return path


@pytest.fixture(scope="module")
def exported(exported_images, exported_text):
    return exported_images, exported_text


@pytest.fixture(scope="module")
def stranger(exported, image_process, tmp_path_factory):
    """Outputs of both exports, and what the code of their cards prints, in a process without the package."""
    work_dir = tmp_path_factory.mktemp("stranger")
    raw = image_process.dataset.test.x[:7]
    arrays = {"raw": raw, "pixels": raw.astype(np.float32) / 255, "ids": token_ids(), "sentences": np.array(SENTENCES)}
    np.savez(work_dir / "given.npz", **arrays)
    copies = [shutil.copytree(folder, work_dir / name) for name, folder in zip(("images", "text"), exported)]
    (work_dir / "images" / "picture.png").write_bytes(tf.io.encode_png(raw[0]).numpy())
    script = "\n".join([STRANGER_SCRIPT, *map(code_of_card, copies)])
    files = [*copies, work_dir / "given.npz", work_dir / "out.npz"]
    command = [sys.executable, "-I", "-c", script, *map(str, files)]
    done = subprocess.run(command, cwd=work_dir, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    with np.load(work_dir / "out.npz") as outputs:
        return {**outputs, "printed": done.stdout}


def code_of_card(folder):
    code = (folder / "MODEL_CARD.md").read_text().split("```python\n")[1].split("```")[0]
    assert code.startswith("import tensorflow as tf\n")
    return f"import os; os.chdir({str(folder)!r})\n{code}"


def perturbed_state(process):
    """Return a state of round 4 whose biases and offsets differ from zero."""
    return dataclasses.replace(tiny.perturbed(process.initialize(), seed=3), round=4)


def token_ids():
    ids = np.random.default_rng(1).integers(0, 51, (3, 13)).astype(np.int32)
    ids[:, 4] = 50
    return ids


def segment_logits(process, ids):
    model = process.network(exports.state(process), statistics={})
    size = process.recipe.input.options["segment"]
    pieces = [model(ids[:, start : start + size], training=False) for start in range(0, ids.shape[1], size)]
    return np.concatenate(pieces, 1)


def test_every_value_is_stored_once(exported_images, image_process):
    variables = tf.train.load_checkpoint(str(exported_images / "variables" / "variables")).get_variable_to_shape_map()
    stored = sum(np.prod(shape) for name, shape in variables.items() if name.endswith("VARIABLE_VALUE"))
    assert stored == image_process.network(image_process.initialize()).count_params()


@pytest.mark.long
def test_pixels_give_the_logits_of_the_evaluation(stranger, image_process, eager):
    state = perturbed_state(image_process)
    statistics = image_process.statistics(state)
    evaluator = image_process.evaluator
    expected = evaluator.batches("test").build_outputs(evaluator.global_model)(
        *evaluator.global_values(state, statistics)
    )[:7]
    np.testing.assert_allclose(stranger["float/logits"], expected, atol=1e-5)
    np.testing.assert_allclose(stranger["float/probabilities"], tf.nn.softmax(expected), atol=1e-5)
    np.testing.assert_array_equal(stranger["float/class"], np.argmax(expected, 1))
    assert np.ptp(expected) > 0.1


def test_png_bytes_give_the_same_outputs_and_token_ids_are_computed_segment_by_segment(stranger, text_process):
    for name in ("logits", "probabilities", "class"):
        np.testing.assert_allclose(stranger[f"bytes/{name}"], stranger[f"float/{name}"], atol=1e-5)
        np.testing.assert_allclose(stranger[f"uint8/{name}"], stranger[f"float/{name}"], atol=1e-5)
    assert [name.decode() for name in stranger["bytes/class_name"]] == [NAMES[k] for k in stranger["float/class"]]
    assert "float/class_name" not in stranger
    np.testing.assert_allclose(stranger["ids/logits"], segment_logits(text_process, token_ids()), atol=1e-5)
    np.testing.assert_allclose(stranger["segment/logits"], stranger["ids/logits"][:, 5:10], atol=1e-5)


def test_padding_does_not_affect_sentences(stranger, text_process):
    words = text_process.dataset.codec.vocabulary
    assert list(stranger["text/lengths"]) == [3, 6, 0]
    assert stranger["text/token_ids"].tolist() == [[3, 50, 4, -1, -1, -1], [7, 0, 50, 2, 1, 9], [-1] * 6]
    assert np.argwhere(stranger["text/is_mask"]).tolist() == [[0, 1], [1, 2]]
    for row, length in enumerate(stranger["text/lengths"][:2]):
        logits = segment_logits(text_process, stranger["text/token_ids"][row : row + 1, :length])[0]
        best = np.argsort(-logits, 1)[:, :5]
        assert [
            [word.decode() for word in words_at_position]
            for words_at_position in stranger["text/topk_tokens"][row, :length]
        ] == [[words[k] for k in words_at_position] for words_at_position in best]
        chances = np.take_along_axis(tf.nn.softmax(logits).numpy(), best, 1)
        np.testing.assert_allclose(stranger["text/topk_probabilities"][row, :length], chances, atol=1e-5)
    assert set(stranger["text/topk_tokens"][0, 3:].ravel()) == {b""}
    assert np.isnan(stranger["text/topk_probabilities"][2]).all()


def test_export_json_describes_the_model(exported, image_process):
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
    assert about["last"] == {"round": 0, "global_loss": None}
    signatures, outputs = about["signatures"], {"logits", "probabilities", "class"}
    pixels = {"dtype": "float32", "shape": [None, 14, 14, 1]}
    assert signatures["serving_default"]["inputs"] == {"image": pixels}
    assert signatures["serve_bytes"]["inputs"] == {"image_bytes": {"dtype": "string", "shape": [None]}}
    assert signatures["serve_uint8"]["inputs"] == {"image": {**pixels, "dtype": "uint8"}}
    assert signatures["serve_bytes"]["outputs"]["logits"] == {"dtype": "float32", "shape": [None, 10]}
    assert signatures["serving_default"]["outputs"].keys() == outputs
    assert signatures["serve_bytes"]["outputs"].keys() == outputs | {"class_name"}
    assert about["input"]["normalised_by"] == {"mean": [0.1307], "std": [0.3081]}
    assert about["parameters"] == image_process.network(image_process.initialize()).count_params() - 2 * 8
    assert about["largest_difference_of_logits"] < 1e-5 and about["compared_test_examples"] == 100
    digests = {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file() and path.name != "export.json"
    }
    assert about["files"] == digests and "saved_model.pb" in digests
    assert about["bytes"] == sum((folder / name).stat().st_size for name in digests)
    text = json.loads((exported[1] / "export.json").read_text())
    assert "warning" not in text and "assets/vocabulary.txt" in text["files"]
    assert os.listdir(folder.parent) and not [name for name in os.listdir(folder.parent) if name.startswith(".")]


def test_metrics_equal_those_of_the_evaluation(exported, image_process, text_process, eager):
    """Measured with the exported files; perplexity uses the same masks and batches."""
    states = perturbed_state(image_process), exports.state(text_process)
    for folder, process, state, metric in zip(
        exported, (image_process, text_process), states, ("accuracy", "perplexity")
    ):
        metrics, _ = process.evaluate(state)
        expected = {name: metrics[f"global_{name}"] for name in ("loss", metric)}
        measured = json.loads((folder / "export.json").read_text())["measured"]
        assert measured.pop("on") == "the whole test set, by these files"
        assert measured == pytest.approx(expected, rel=1e-5) and len(measured) == 2


def test_card_has_metadata_of_the_hub_and_code_that_runs(exported_images, stranger):
    about = json.loads((exported_images / "export.json").read_text())
    _, metadata, text = (exported_images / "MODEL_CARD.md").read_text().split("---\n", 2)
    metadata = yaml.safe_load(metadata)
    assert (metadata["license"], metadata["library_name"]) == ("unknown", "tensorflow")
    assert metadata["pipeline_tag"] == "image-classification" and metadata["metrics"] == ["loss", "accuracy"]
    (result,) = metadata["model-index"][0]["results"]
    values = {metric["type"]: metric["value"] for metric in result["metrics"]}
    assert values == {name: about["measured"][name] for name in ("loss", "accuracy")}
    assert "| method | HeteroFL |\n| parts of the method | submodel prefix, " in text and "| test examples | " in text
    assert f"| clients | {about['training']['clients']} |" in text
    assert "Weights: not stated." in text and "| classes | 10" in text and "| level | a (width 1) |" in text
    assert "**NOT THE REAL DATA: trained on a stand-in for mnist**" in text
    assert f"accuracy {about['measured']['accuracy']:.4g}, the whole test set" in text
    assert "`serve_uint8`: image uint8 [any, 14, 14, 1] -> class int32 [any]" in text
    assert "shape=(1, 10)" in stranger["printed"] and "shape=(1, 5, 5), dtype=string" in stranger["printed"]


def test_narrow_level_is_exported(eager):
    process, version = exports.process(*exports.NARROW_IMAGES), exports.narrow_images()
    state, pixels = exports.state(process), exports.pixels(process.dataset.test.x[:3])
    expected = process.network(state, "b", version.statistics)((pixels - 0.5) / 0.25, training=False)
    logits = saved_model.load_runtime(version.folder)(image=pixels)["logits"]
    np.testing.assert_allclose(logits, expected, atol=1e-5)
    assert (version.about["level"], version.about["width"]) == ("b", 0.5)
    # There is no graph that decodes pictures of two channels.
    assert version.about["signatures"].keys() == {"serving_default", "serve_uint8"}
    metrics, _ = process.evaluate(state, levels="all")
    expected = {name: metrics[f"level_{name}_b"] for name in ("loss", "accuracy")}
    assert {name: version.about["measured"][name] for name in expected} == pytest.approx(expected, rel=1e-5)


def test_export_with_different_outputs_is_removed(text_process, tmp_path, monkeypatch):
    load_runtime = saved_model.load_runtime

    def wrong(*arguments):
        ask = load_runtime(*arguments)
        return lambda **inputs: {name: value * 1.001 for name, value in ask(**inputs).items()}

    exports.text().reuse(monkeypatch)
    monkeypatch.setattr(saved_model, "load_runtime", wrong)
    assert refusal(export.export, text_process, exports.state(text_process), {}, tmp_path / "out", {}).startswith(
        f"{tmp_path / 'out' / 'b'}: outputs differ from those of the trained model, so the export was removed"
    )
    assert os.listdir(tmp_path) == []


def test_wrong_arguments_are_rejected_and_write_nothing(image_process, tmp_path, eager):
    state = image_process.initialize()
    statistics = image_process.statistics(state)

    def refused(statistics, folder, **options):
        return refusal(export.export, image_process, state, statistics, folder, {}, **options)

    assert refused(statistics, tmp_path / "x", level="z") == (
        "`level` must be one of the recipe's levels. Received: level='z'; known: a, b, c, d, e"
    )
    assert refused({}, tmp_path / "x") == (
        "`statistics` must be those of `process.statistics(state, 'a')`. Received: none of 0_2_norm/sbn/mean"
    )
    assert os.listdir(tmp_path) == []
    levels = dataclasses.replace(image_process.recipe.levels, mix={"b": 1.0})
    assert "must not be wider than the global model, level 'b'. Received: level='a'" in refusal(levels.resolve, "a")


@pytest.fixture
def fake_saved_model(monkeypatch):
    """Write a dummy file instead of a SavedModel, for tests of folders only."""

    def write(folder, model, endpoints, tables):
        (folder / "saved_model.pb").write_bytes(b"model")
        return {"serve_text": {"inputs": {"text": {"dtype": "string", "shape": [None]}}, "outputs": {}}}

    monkeypatch.setattr(saved_model, "write", write)
    monkeypatch.setattr(saved_model, "load_runtime", lambda *_: None)
    monkeypatch.setattr(export, "compare", lambda *_: {"measured": {"on": "nothing"}})


def test_all_files_are_written_into_the_draft(text_process, tmp_path, monkeypatch, fake_saved_model):
    """This includes the temporary vocabulary file, which TensorFlow copies."""
    write, seen = saved_model.write, []

    def look(folder, *others):
        seen.append((os.listdir(tmp_path / "b"), [path.name for path in folder.rglob("vocabulary.txt")]))
        return write(folder, *others)

    monkeypatch.setattr(saved_model, "write", look)
    export.export(text_process, text_process.initialize(), {}, tmp_path, {})
    assert seen == [([f".tmp-version.{os.getpid()}"], ["vocabulary.txt"])]
    assert sorted(os.listdir(tmp_path / "b" / "1")) == ["MODEL_CARD.md", "export.json", "saved_model.pb"]


def test_full_disk_during_save_is_reported(text_process, tmp_path, monkeypatch):
    # Without signatures to trace.
    monkeypatch.setattr(positions.MaskedTextTask, "endpoints", lambda *_: ({}, ()))
    monkeypatch.setattr(
        tf.saved_model, "save", raising(tf.errors.ResourceExhaustedError(None, None, "No space\nleft on device"))
    )
    with pytest.raises(DiskProblem, match="could not write the SavedModel: No space left on device; check the"):
        export.export(text_process, text_process.initialize(), {}, tmp_path / "out", {})
    assert os.listdir(tmp_path) == []


def test_invalid_vocabulary_is_rejected_and_without_one_only_token_ids_are_accepted(tmp_path):
    with pytest.raises(InputError, match="must be different and without white space. Received: 'a b'"):
        vocabulary_tables(("<ukn>", "a b"), tmp_path)
    with pytest.raises(InputError, match="must be different and without white space. Received: 'a word twice'"):
        vocabulary_tables(("a", "b", "a"), tmp_path)
    endpoints, tables = positions.MaskedTextTask(exports.without_vocabulary(), None).endpoints(None)
    assert set(endpoints) == {"serving_default", "serve_segment"} and tables == ()


@pytest.mark.parametrize(
    ("recipe", "expected"),
    [(exports.IMAGES, ExportTask), (exports.TEXT, MaskedTextTask), (("tiny/wikitext2_lstm",), NextWordTask)],
)
def test_the_input_determines_the_task(recipe, expected):
    assert type(task_of(exports.process(*recipe), None)) is expected


LOGITS = np.asarray([[0.0, 1.0], [2.0, -20.0], [3.0, 4.0]])


def difference_of(difference, exact):
    """Compare outputs whose last logit differs, in batches of two examples and of one."""
    outputs = LOGITS + [[0, 0], [0, 0], [0, difference]]
    task = SimpleNamespace(
        process=SimpleNamespace(dataset=SimpleNamespace(test=SimpleNamespace(x=np.arange(3)))),
        request=lambda examples, signature: {"rows": examples},
        outputs_of=lambda outputs: outputs,
        measure=lambda predict, signature: {"loss": 1.0},
    )
    entry = compare(task, [LOGITS[:2], LOGITS[2:]], lambda rows: outputs[rows], "serve", "model.onnx", exact=exact)
    assert entry["measured"] == {"loss": 1.0, "on": "the whole test set, by these files"}
    assert entry["compared_test_examples"] == 3
    return entry["largest_difference_of_logits"]


@pytest.mark.parametrize("exact", [True, False])
def test_a_difference_is_a_share_of_the_largest_logit_and_nan_is_refused(exact):
    assert difference_of(1e-3, exact) == pytest.approx(1e-3 / 20)
    with pytest.raises(InputError, match="^model.onnx: outputs differ from .* Received: nan$"):
        difference_of(np.nan, exact)
    if not exact:
        assert difference_of(1.0, exact) == pytest.approx(0.05)
    else:
        assert refusal(difference_of, 1.0, exact).endswith("must be at most 0.0001 of the largest one. Received: 0.05")
