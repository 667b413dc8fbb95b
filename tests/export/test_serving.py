"""Exports served over HTTP: outputs of the SavedModel, errors as 4xx, new versions without interruption."""

import base64
import json
import logging
import re
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from importlib import util

import exports
import numpy as np
import programs
import pytest
import tables
import tensorflow as tf
import tiny
from refusals import refusal
from servers import fetch, start_server

from hetero_tf import export
from hetero_tf.export import saved_model
from hetero_tf.export.serve import run


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """An export of images as two levels, and an export of text as another level."""
    folder = tmp_path_factory.mktemp("exports")
    images, text = exports.images().folder, exports.text().folder
    for level, version in {"a": images, "e": images, "b": text}.items():
        shutil.copytree(version, folder / level / "1")
    return folder


@pytest.fixture(scope="module")
def address(folder):
    return start_server(folder)[0]


def png(pixels):
    return base64.b64encode(tf.io.encode_png(pixels).numpy()).decode()


def test_rows_and_columns_give_the_outputs_of_the_saved_model(address, folder):
    raw = np.random.default_rng(0).integers(0, 256, (3, 8, 8, 1), np.uint8)
    pixels = exports.pixels(raw)
    expected = saved_model.load_runtime(folder / "e" / "1")(image=pixels)
    for request in ({"instances": pixels.tolist()}, {"instances": [{"image": one} for one in pixels.tolist()]}):
        status, body = fetch(f"{address}/v1/models/e:predict", request)
        assert status == 200
        np.testing.assert_allclose([row["logits"] for row in body["predictions"]], expected["logits"], rtol=1e-5)
        assert [row["class"] for row in body["predictions"]] == expected["class"].tolist()
    for request in (pixels.tolist(), {"image": pixels.tolist()}):
        status, body = fetch(f"{address}/v1/models/e:predict", {"inputs": request})
        assert status == 200 and body["outputs"]["class"] == expected["class"].tolist()
    for signature, request in (("serve_bytes", [{"b64": png(one)} for one in raw]), ("serve_uint8", raw.tolist())):
        status, body = fetch(f"{address}/v1/models/e:predict", {"signature_name": signature, "instances": request})
        assert [row["class"] for row in body["predictions"]] == expected["class"].tolist(), body
    assert fetch(f"{address}/v1/models/e/versions/1:predict", {"instances": []}) == (200, {"predictions": []})


def test_server_leaves_the_logging_of_the_program_alone(folder, tmp_path):
    class Handler(logging.NullHandler):
        closed = False

        def close(self):
            self.closed = True
            super().close()

    handler = Handler()
    shutil.copytree(folder / "e", tmp_path / "e")
    address, _ = start_server(tmp_path)
    assert fetch(f"{address}/v1/models/e")[0] == 200 and not handler.closed
    handler.close()


IMAGE = "image must be float32 [any, 8, 8, 1]"
BOMB = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(4) + b"IHDR" + b"\x00\x00\x2e\xe0" * 2 + bytes(20)).decode()
REFUSED = {
    "another rank": ({"instances": [[1.0, 2.0]]}, f"{IMAGE}. Received: [1, 2]"),
    "a scalar": ({"instances": [1.0]}, f"{IMAGE}. Received: [1]"),
    "ragged": ({"instances": [[[1.0]], [1.0]]}, f"{IMAGE}: lists on the same level must have the same length"),
    "words for numbers": ({"instances": ["x"]}, f"{IMAGE}: numbers are expected"),
    "an unknown input": ({"instances": [{"img": 1}]}, "instances must name image. Received: img"),
    "objects and values": ({"instances": [{"image": 1}, 2]}, "instances must name image. Received: nothing"),
    "no list": ({"instances": 3}, "instances must be a list"),
    "an unknown key": ({"instances": [], "foo": 1}, "Received: foo, instances"),
    "an unknown signature": ({"signature_name": "x", "instances": []}, "unknown signature_name; known: serve_bytes, serve_default"),
    "a list": ([1], "the body must be a JSON object with instances or inputs"),
    "no text": (b"\xff\xfe", "the body is not JSON: "),
    "empty": (b"", "the body is not JSON: Expecting value"),
    "very deep": (b"[" * 100_000, "the body is not JSON: maximum recursion depth exceeded"),
    "deep": (b'{"instances": ' + b"[" * 900 + b"]" * 900 + b"}", f"{IMAGE}: "),
    "deep texts": (
        b'{"signature_name": "serve_bytes", "instances": ' + b"[" * 900 + b"]" * 900 + b"}",
        "image_bytes must be string [any]: ",
    ),
    "pixels too large": (
        {"signature_name": "serve_uint8", "instances": [[[[256]]]]},
        "image must be uint8 [any, 8, 8, 1]: numbers from 0 to 255 are expected",
    ),
    "a key that is not Unicode": (b'{"\\ud800": []}', "optionally signature_name. Received: \\ud800"),
    "a text that is not Unicode": (
        b'{"signature_name": "serve_bytes", "instances": ["\\ud800"]}',
        "image_bytes must be string [any]: 'utf-8' codec can't encode",
    ),
    "not a number": (b'{"instances": [NaN]}', f"{IMAGE}: numbers up to 3.40282e+38 are expected"),
    "no finite number": (b'{"instances": [[[[1e999]]]]}', f"{IMAGE}: numbers up to 3.40282e+38 are expected"),
    "thousands of digits": (
        b'{"instances": [' + b"9" * 5000 + b"]}",
        "the body is not JSON: Exceeds the limit (4300 digits) for integer string conversion",
    ),
    "hundreds of digits": (b'{"instances": [' + b"9" * 500 + b"]}", f"{IMAGE}: Python int too large"),
    "texts of different lengths": ({"instances": ["x" * 10_000, *"abc"]}, f"{IMAGE}: numbers are expected"),
    "no base64": ({"signature_name": "serve_bytes", "instances": [{"b64": "*"}]}, "image_bytes must be string [any]: "),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_invalid_request_gets_one_message(address, name):
    request, message = REFUSED[name]
    status, body = fetch(f"{address}/v1/models/a:predict", request)
    assert status == 400 and message.replace("serve_default", "serve_uint8") in body["error"], body
    assert "\n" not in body["error"] and "node" not in body["error"]


def test_unknown_paths_large_bodies_and_invalid_pictures(address, folder):
    for path in ("/v1/models/z:predict", "/v1/models/a/versions/9:predict"):
        status, body = fetch(address + path, {"instances": []})
        assert status == 404 and body["error"].endswith("is not served; levels: a, b, e")
    digits = fetch(f"{address}/v1/models/a/versions/{'9' * 5000}:predict", {"instances": []})
    assert digits[0] == 404 and "a version must be a whole number of at most 18 digits" in digits[1]["error"]
    # Version 0 means the newest one, as in OpenVINO Model Server.
    assert fetch(f"{address}/v1/models/a/versions/0:predict", {"instances": []}) == (200, {"predictions": []})
    assert fetch(f"{address}/v1/models/a/versions/0") == fetch(f"{address}/v1/models/a/versions/1")
    assert fetch(f"{address}/nothing")[0] == 404 and fetch(f"{address}/v1/models/a:predict")[0] == 404
    assert fetch(f"{address}/v1/models", {})[0] == 405
    assert fetch(f"{address}/v1/models/a:predict", b" " * (32 * 2**20 + 1))[0] == 413
    good = png(np.zeros((9, 9, 1), np.uint8))
    instances = [{"b64": data} for data in (BOMB, "", good[:60], good)]
    request = {"signature_name": "serve_bytes", "instances": instances}
    status, body = fetch(f"{address}/v1/models/a:predict", request)
    assert status == 200 and [row["class"] < 0 for row in body["predictions"]] == [True, True, True, False]
    assert body["predictions"][0]["logits"] == [None] * 10


def test_status_metadata_and_summary(address, folder):
    status, body = fetch(f"{address}/v1/models/a")
    assert body["model_version_status"][0]["state"] == "AVAILABLE" and status == 200
    signatures = fetch(f"{address}/v1/models/a/metadata")[1]["metadata"]["signature_def"]["signature_def"]
    image = signatures["serving_default"]["inputs"]["image"]
    sizes = [one["size"] for one in image["tensor_shape"]["dim"]]
    assert (image["dtype"], sizes) == ("DT_FLOAT", ["-1", "8", "8", "1"])
    summaries = fetch(f"{address}/v1/models")[1]
    about = json.loads((folder / "e" / "1" / "export.json").read_text())
    assert summaries["e"]["measured"] == about["measured"] and summaries["b"]["input"]["kind"] == "text"
    assert (summaries["e"]["task"], summaries["e"]["method"]["submodel"]) == ("classification", "prefix")
    assert summaries["e"]["units"] == {"accuracy": "%"} and summaries["e"]["data"]["name"]


def test_example_of_each_level_gets_a_prediction(address):
    for level, is_valid in (("a", lambda row: row["class"] >= 0), ("b", lambda row: any(row["is_mask"]))):
        request = fetch(f"{address}/v1/models/{level}/example")[1]
        status, body = fetch(f"{address}/v1/models/{level}:predict", request)
        assert status == 200 and is_valid(body["predictions"][0])
    assert fetch(f"{address}/v1/models/z/example")[0] == 404


def test_openapi_describes_every_path_of_the_api(address):
    api = fetch(f"{address}/openapi.json")[1]
    operation = api["paths"]["/v1/models/{level}:predict"]["post"]
    assert operation["parameters"][0]["schema"]["enum"] == ["a", "b", "e"]
    assert operation["summary"] == "Return predictions of a version."
    names = operation["requestBody"]["content"]["application/json"]["schema"]["properties"]["signature_name"]["enum"]
    assert {"serve_bytes", "serve_text", "serving_default"} <= set(names)
    paths = [path.format(level="a", number=1) for path, methods in api["paths"].items() if "get" in methods]
    assert len(paths) == 10 and {fetch(address + path)[0] for path in paths} == {200}


def test_curl_lines_of_a_model_card_work(address, folder):
    card = (folder / "b" / "1" / "MODEL_CARD.md").read_text()
    ((body, path),) = re.findall(r"^curl -d '(.*)' http://127\.0\.0\.1:8501(.*)$", card, re.MULTILINE)
    assert fetch(address + path, body.encode())[0] == 200
    card = (folder / "e" / "1" / "MODEL_CARD.md").read_text()
    begin, end = re.search(
        r"\(printf '(.*)'; base64 < picture\.png \| tr -d '\\n'; printf '(.*)'\) \| curl", card
    ).groups()
    body = begin + png(np.zeros((9, 9, 1), np.uint8)) + end
    assert fetch(f"{address}/v1/models/e:predict", body.encode())[0] == 200


@pytest.mark.long
def test_new_version_replaces_old_one_without_failed_requests(tmp_path):
    process = tables.process()
    stored = exports.narrow_table().folder
    shutil.copytree(stored, tmp_path / "b" / "1")
    address, messages = start_server(tmp_path)
    row = process.dataset.test.x[:1]
    request = json.dumps({"signature_name": "serve_numbers", "inputs": row.tolist()}).encode()
    first = saved_model.load_runtime(stored, "serve_numbers")(features=row)["logits"]
    stop, responses = threading.Event(), []

    def send_requests():
        while not stop.is_set():
            responses.append(fetch(f"{address}/v1/models/b:predict", request))

    with ThreadPoolExecutor(3) as pool:
        futures = [pool.submit(send_requests) for _ in range(3)]
        export.export(process, tiny.perturbed(process.initialize(), seed=1), {}, tmp_path, {}, "b")
        assert messages.get(timeout=60).startswith("serving level b, version 2: ")
        responses.append(fetch(f"{address}/v1/models/b:predict", request))
        stop.set()
        for one in futures:
            one.result()
    second = saved_model.load_runtime(tmp_path / "b" / "2", "serve_numbers")(features=row)["logits"]
    assert {status for status, _ in responses} == {200} and len(responses) > 3

    def is_of(body, logits):
        return np.allclose(body["outputs"]["logits"], logits, rtol=1e-4, atol=1e-6)

    assert all(is_of(body, first) or is_of(body, second) for _, body in responses)
    assert not np.allclose(first, second) and is_of(responses[0][1], first) and is_of(responses[-1][1], second)


def test_server_that_cannot_start_gives_one_message(address, folder, tmp_path, monkeypatch):
    def refused(folder, port=0):
        return refusal(
            run.run, folder, run.ServerOptions("127.0.0.1", port, 1), print, "bin/hetero_tf export --run_dir r"
        )

    assert (
        refused(tmp_path)
        == f"{tmp_path}: contains no exports to serve; create some with: bin/hetero_tf export --run_dir r"
    )
    port = int(address.rpartition(":")[2])
    assert refused(folder, port).startswith(f"--host 127.0.0.1 --port {port}: is in use; ")
    find = util.find_spec
    monkeypatch.setattr(util, "find_spec", lambda name: None if name == "uvicorn" else find(name))
    assert refused(folder) == "serve needs uvicorn, which is not installed; pip install 'hetero_tf[serve]'"


@pytest.mark.long
def test_command_serves_until_a_signal(folder):
    served = programs.shared().start("serve", "--out", folder, "--port", "0")
    assert served.until(lambda: "Serving at http://127.0.0.1:" in served.out), served.err
    address = served.out.split("Serving at ")[1].split("/ ")[0]
    assert fetch(f"{address}/readyz")[0] == 200
    served.kill(2)
    assert served.wait() == 130 and "stopped by SIGINT" in served.err
    assert programs.shared().run("serve").err == (
        "hetero_tf: --run_dir is missing; name a run with exports, or set --out to a folder of exports\n"
    )
