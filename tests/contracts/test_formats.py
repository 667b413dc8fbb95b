"""Every export format: files are written with the SavedModel and give the same logits."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import exports
import numpy as np
import pytest
import tables
from programs import ROOT
from refusals import raising, refusal

import hetero_tf
from hetero_tf import export
from hetero_tf.export import formats, saved_model
from hetero_tf.export.card import model_card


@pytest.fixture(scope="module", params=["images", "table", pytest.param("text", marks=pytest.mark.long)])
def exported(request):
    """`(process, folder, contents of export.json)` of a narrow level with every format."""
    process, version = narrow(request.param)
    return process, version.folder, version.about


def narrow(kind):
    if kind == "table":
        return tables.process(), exports.narrow_table()
    # `test_on_device.py` trains files of images and of text.
    if kind == "images":
        return exports.process(*exports.NARROW_IMAGES), exports.narrow_images()
    process = exports.process(*exports.TEXT)
    return process, exports.versions(process, ("b",), exports.formats_without("litert_train"))["b"]


def of(exported, name):
    """The entry of a format in `export.json`; skips the test if there is none."""
    if name not in exported[2]["formats"]:
        pytest.skip(f"the export has no {name}")
    return exported[2]["formats"][name]


def requests(process):
    """Requests of other sizes than those of the conversion."""
    if process.dataset.codec.KIND == "images":
        pixels = exports.pixels(process.dataset.test.x)
        return [{"image": pixels[:count]} for count in (1, 3, 7)]
    if process.dataset.codec.KIND == "table":
        return [{"features": process.dataset.test.x[:count]} for count in (1, 3, 7)]
    words = process.dataset.test.x
    return [{"token_ids": words[:rows, :length]} for rows, length in ((1, 1), (3, 5), (2, 4), (1, 5))]


@pytest.mark.parametrize("name", formats.names())
def test_a_format_predicts_what_the_saved_model_predicts(exported, name):
    process, folder, about = exported
    kind, file_info = formats.find(name), of(exported, name)
    predict, signature = kind.load_runtime(folder / kind.FILE), saved_model.load_runtime(folder, file_info["signature"])
    for request in requests(process):
        actual, expected = predict(**request)["logits"], signature(**request)["logits"]
        assert actual.shape == expected.shape and np.isfinite(actual).all() and np.ptp(expected) > 0
        if kind.EXACT:
            np.testing.assert_allclose(actual, expected, atol=1e-4 * max(1, np.abs(expected).max()))
    assert {"logits"} <= set(predict(**request)) <= set(signature(**request))
    assert file_info["bytes"] == os.path.getsize(folder / file_info["file"]) and file_info["file"] in about["files"]
    loss = about["measured"]["loss"]
    assert file_info["measured"]["loss"] == pytest.approx(loss, rel=1e-4 if kind.EXACT else 0.05)
    assert (
        f"| `{file_info['file']}` | {name}, signature {file_info['signature']}, {file_info['bytes']:,} bytes; loss"
        in (folder / "MODEL_CARD.md").read_text("utf-8")
    )


def test_a_model_repository_has_the_card_and_is_loaded(exported, tmp_path):
    process, folder, _ = exported
    repository, request = tmp_path / "new" / "repository", requests(process)[-1]
    (repository / ".git").mkdir(parents=True)
    for _ in range(2):
        export.check_repository(repository)
        export.write_repository(folder, repository)
    assert (repository / "README.md").read_bytes() == (folder / "MODEL_CARD.md").read_bytes()
    written = {path.relative_to(folder) for path in folder.rglob("*")}
    assert {path.relative_to(repository) for path in repository.rglob("*")} - written == {
        Path(name) for name in (".git", ".gitattributes", "README.md")
    }
    value = next(iter(request.values()))
    expected = saved_model.load_runtime(folder, of(exported, "keras")["signature"])(**request)["logits"]
    np.testing.assert_allclose(hetero_tf.load_model(repository)(value), expected, atol=1e-4)
    (tmp_path / "notes.txt").touch()
    assert refusal(export.check_repository, tmp_path).startswith(f"{tmp_path}: holds other things (new); name a new")


@pytest.mark.parametrize("name", ["savedmodel", *(name for name in formats.names() if name != "keras")])
def test_an_empty_batch_gives_empty_logits(exported, name):
    """Kernels give wrong shapes for an empty batch. A Keras file contains only the model and does not handle it."""
    process, folder, about = exported
    if name == "savedmodel":
        signature = "serve_numbers" if process.dataset.codec.KIND == "table" else "serving_default"
        predict = saved_model.load_runtime(folder, signature)
    else:
        predict = formats.find(name).load_runtime(folder / of(exported, name)["file"])
    empty = {key: value[:0] for key, value in requests(process)[1].items()}
    shape = (0, 5, about["classes"]) if "token_ids" in empty else (0, about["classes"])
    assert predict(**empty)["logits"].shape == shape


def test_an_onnx_file_names_its_axes_and_origin(exported):
    onnx, (process, folder, about) = pytest.importorskip("onnx"), exported
    file = onnx.load(folder / "model.onnx")
    props = {prop.key: prop.value for prop in file.metadata_props}
    assert (props["recipe"], props["level"]) == (process.recipe.name, "b")
    assert props["weights_sha256"] == about["weights_sha256"] and props["classes"] == str(about["classes"])
    for value in (*file.graph.input, *file.graph.output):
        assert value.type.tensor_type.shape.dim[0].dim_param == "batch"
    assert about["formats"]["onnx"]["compared_test_examples"] == about["compared_test_examples"]


def test_large_and_inexact_files_give_a_warning():
    entry = {"file": "m", "bytes": 9, "float_bytes": 10, "largest_difference_of_logits": 0.05}
    assert export.warning_of({**entry, "measured": {"accuracy": 80.0}}, {"accuracy": 80.5}) is None
    worse = {**entry, "bytes": 11, "measured": {"accuracy": 70.0}, "largest_difference_of_logits": 0.2}
    assert export.warning_of(worse, {"accuracy": 80.0}) == (
        "m: it has 11 bytes, the float file 10; its accuracy is 70.00 %, in floats 80.00 %; its logits differ by 0.2 of "
        "the largest one, more than 0.1; prefer the format litert"
    )


def test_the_card_begins_with_the_warnings_of_the_formats(exported):
    _, folder, about = exported

    def head(card):
        return card.partition("| | |")[0]

    warned = [entry["warning"] for entry in about["formats"].values() if "warning" in entry]
    written = head((folder / "MODEL_CARD.md").read_text("utf-8"))
    assert written.count("**") == 2 * len(warned) and all(f"**{sentence}**" in written for sentence in warned)
    worse = {name: {**entry, "warning": f"{name} is larger"} for name, entry in about["formats"].items()}
    every = head(model_card({**about, "formats": worse}, []))
    assert every.count("**") == 2 * len(worse) and all(f"**{name} is larger**\n\n" in every for name in worse)


def test_eight_bit_weights_change_the_logits(exported):
    process, folder, about = exported
    kind = formats.find("litert_int8")
    of(exported, "litert_int8")
    request = requests(process)[1]
    actual, expected = kind.load_runtime(folder / kind.FILE)(**request), saved_model.load_runtime(folder)(**request)
    assert np.abs(actual["logits"] - expected["logits"]).max() > 0


def refused_onnx(tmp_path, monkeypatch):
    """The error of an export of images to ONNX, which leaves no files."""
    process, version = narrow("images")
    version.reuse(monkeypatch)
    arguments = (process, exports.state(process), version.statistics, tmp_path / "out", {}, "b")
    message = refusal(export.export, *arguments, others=("onnx",))
    assert os.listdir(tmp_path) == []
    return message


def test_a_missing_converter_is_reported_before_anything_is_written(tmp_path, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "tf2onnx" else find(name))
    message = refused_onnx(tmp_path, monkeypatch)
    assert message == "--format onnx: needs tf2onnx, which is not installed; pip install 'hetero_tf[onnx]'"
    assert refusal(formats.find, "onx").startswith("--format onx: no such format; did you mean 'onnx'?")


def test_a_failed_conversion_is_reported_and_leaves_no_files(tmp_path, monkeypatch):
    monkeypatch.setattr(formats.find("onnx"), "convert", raising(RuntimeError("operation Foo\nis unknown")))
    message = refused_onnx(tmp_path, monkeypatch)
    assert message.startswith("--format onnx: the model cannot be converted: ") and "operation Foo" in message


@pytest.mark.parametrize(
    "ended, expected",
    [
        ((-6, ""), "the process aborted; export another level or format"),
        ((1, "INFO: x\nValueError: odd\n"), "'ValueError: odd'"),
    ],
)
def test_a_file_that_crashes_its_interpreter_is_refused(tmp_path, monkeypatch, ended, expected):
    """The exporting process continues, because a separate process runs the file."""
    litert = formats.find("litert")
    code, stderr = ended
    monkeypatch.setattr(
        litert.subprocess, "run", lambda command, **_: subprocess.CompletedProcess(command, code, "", stderr)
    )
    message = refusal(litert.write, b"file", tmp_path / "model.tflite", {"serving_default": {"image": np.zeros(1)}})
    assert message.startswith("model.tflite: LiteRT cannot run the converted model: ") and expected in message


def test_openvino_reads_the_folder_without_changes(exported):
    openvino = pytest.importorskip("openvino")
    process, folder, _ = exported
    # Without the hint it computes in bfloat16 where the processor can.
    core, exact = openvino.Core(), {"INFERENCE_PRECISION_HINT": "f32"}
    compiled, ask = core.compile_model(core.read_model(folder), "CPU", exact), saved_model.load_runtime(folder)
    for request in requests(process):
        np.testing.assert_allclose(compiled(request)["logits"], ask(**request)["logits"], atol=1e-4)


@pytest.mark.long
@pytest.mark.parametrize("exported", ["images", "text"], indirect=True)
def test_every_file_gives_the_same_logits_in_a_separate_process(exported):
    _, folder, about = exported
    command = [sys.executable, "benchmarks/exports.py", str(folder.parents[1]), "--json"]
    printed = subprocess.run(command, check=True, cwd=ROOT, capture_output=True, text=True).stdout
    rows = {row["format"]: row for row in map(json.loads, printed.splitlines())}
    assert {"savedmodel", *about["formats"]} <= rows.keys()
    for name, row in rows.items():
        if name == "openvino" and "loading" in row["failed"]:
            continue
        exact = name in ("savedmodel", "openvino") or formats.find(name).EXACT
        assert row["gap"] <= (1e-4 if exact else 1) and row["ms"] > 0, row
        assert row["failed"].keys() <= ({"batch 0"} if name == "keras" else set()), row
