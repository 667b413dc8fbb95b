"""Requests that servers do not validate: the graph rejects them before they abort the process or exhaust its memory."""

import json
import shutil
import struct
import subprocess
import sys
import zlib

import exports
import hostile_requests
import numpy as np
import pytest
import tensorflow as tf

from hetero_tf.base import graph_limits, picture_decoding
from hetero_tf.export.task import ExportTask

VERSIONS = {"images": exports.images, "text": exports.text}


def png(width, height, body=b""):
    """Return a grey PNG file with the given size and compressed rows `body`."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


def pictures(*contents):
    return np.array([*contents, b""], object)[:-1]


def pixels(*values):
    return np.stack([np.full((8, 8, 1), value, np.float32) for value in values])


JPEG = tf.io.encode_jpeg(np.zeros((7000, 5000, 1), np.uint8)).numpy()
BMP = b"BM" + bytes(16) + struct.pack("<ii", 10**5, -(10**5)) + bytes(28)
# Signature, request, and expected outputs or part of the expected error.
REQUESTS = {
    "images": [
        ("serving_default", np.zeros((8, 8), np.float32), "[8,8] is not compatible with expected shape [?,8,8,1]"),
        ("serving_default", np.zeros((1, 8, 8, 1, 1), np.float32), "is not compatible with expected shape"),
        ("serving_default", np.zeros((1, 9, 8, 1), np.float32), "is not compatible with expected shape"),
        ("serving_default", np.float32(0), "[] is not compatible with expected shape"),
        ("serving_default", np.zeros((0, 8, 8, 1), np.float32), {"class": "[]"}),
        ("serving_default", np.zeros((10**6, 8, 8, 1), np.float32), "at most 524288 images. Received:] [1000000]"),
        ("serving_default", pixels(np.nan, np.inf), {"class": "[-1, -1]", "logits": str([[np.nan] * 10] * 2)}),
        ("serve_bytes", pictures(), {"class": "[]", "class_name": "[]"}),
        ("serve_bytes", pictures(b"x").reshape(1, 1), "is not compatible with expected shape [?]"),
        ("serve_bytes", pictures(png(2**31 - 1, 2**31 - 1)), {"class": "[-1]", "class_name": "[b'']"}),
        ("serve_bytes", pictures(png(12000, 12000), JPEG, BMP), {"class": "[-1, -1, -1]"}),
        ("serve_bytes", pictures(b"GIF89a" + bytes(40), b"", b"B"), {"class": "[-1, -1, -1]"}),
        ("serve_bytes", pictures(png(8, 8)[:18], png(8, 8)[:9], b"BM\xff"), {"class": "[-1, -1, -1]"}),
        ("serve_bytes", pictures(png(8, 8)[:30], JPEG[:20], JPEG[:3000]), {"class": "[-1, -1, -1]"}),
        ("serve_bytes", pictures(png(0, 8), png(8, 0), b"BM" + bytes(60)), {"class": "[-1, -1, -1]"}),
    ],
    "text": [
        ("serving_default", np.zeros(5, np.int32), "[5] is not compatible with expected shape [?,?]"),
        ("serving_default", np.zeros((1, 5, 2), np.int32), "is not compatible with expected shape"),
        ("serving_default", np.zeros((0, 5), np.int32), {"logits": "[]"}),
        ("serving_default", np.zeros((7, 10**4), np.int32), "at most 65536 words"),
        ("serving_default", np.array([[51], [-1]], np.int32), {"logits": str([[[np.nan] * 50]] * 2)}),
        ("serve_text", pictures(b"a").reshape(1, 1), "is not compatible with expected shape [?]"),
        ("serve_text", pictures(), {"topk_tokens": "[]", "lengths": "[]"}),
        ("serve_text", pictures(b"a " * 70_000), "[texts and words of the longest] [1 70000]"),
        ("serve_text", pictures(b"a " * 400, *[b""] * 200), "[texts and words of the longest] [201 400]"),
        ("serve_text", pictures(b"\xff\xfe <mask>"), {"token_ids": "[[0, 50]]", "lengths": "[2]"}),
    ],
}


@pytest.fixture(scope="module")
def signatures():
    """The signatures of an export of images."""
    loaded = tf.saved_model.load(str(exports.images().folder))
    # The signatures do not keep the variables alive.
    yield loaded.signatures
    del loaded


LONG = {"text": pytest.mark.long}


@pytest.fixture(scope="module", params=[pytest.param(name, marks=LONG.get(name, ())) for name in VERSIONS])
def requests_and_responses(request, tmp_path_factory):
    """`(requests, responses)` of an export whose placeholders accept any shape, so that the graph must reject them."""
    folder, requests = tmp_path_factory.mktemp("export"), REQUESTS[request.param]
    model = shutil.copytree(VERSIONS[request.param]().folder, folder / "model")
    hostile_requests.loosen(model)
    np.savez(folder / "cases.npz", **{f"{n} {name}": value for n, (name, value, _) in enumerate(requests)})
    command = [sys.executable, hostile_requests.__file__, str(model), str(folder / "cases.npz")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return requests, [json.loads(line) for line in done.stdout.splitlines()]


def test_invalid_request_neither_aborts_the_server_nor_gets_valid_outputs(requests_and_responses):
    requests, responses = requests_and_responses
    for (name, value, expected), actual in zip(requests, responses, strict=True):
        if isinstance(expected, dict):
            assert expected.items() <= actual.items(), (name, value)
        else:
            assert isinstance(actual, str) and expected in actual, (name, value, actual)


def test_damaged_picture_does_not_change_other_outputs(signatures):
    rng, serve = np.random.default_rng(0), signatures["serve_bytes"]
    pixels = rng.integers(0, 256, (40, 40, 3), np.uint8)
    bmp = b"BM" + struct.pack("<IHHIIiiHHIIiiII", 4854, 0, 0, 54, 40, 40, 40, 1, 24, 0, 4800, 0, 0, 0, 0)
    formats = [tf.io.encode_png(pixels).numpy(), tf.io.encode_jpeg(pixels).numpy(), bmp + pixels.tobytes()]
    for good in formats:
        truncated = [good[: len(good) * twentieths // 20] for twentieths in range(20)]
        flips = [
            (at := rng.integers(len(good))) and good[:at] + bytes([good[at] ^ 255]) + good[at + 1 :] for _ in truncated
        ]
        outputs = serve(tf.constant([good, *truncated, *flips, good]))
        intact = serve(tf.constant([good] * (len(truncated) + len(flips) + 2)))
        for name in ("logits", "class"):
            np.testing.assert_array_equal(outputs[name][0], intact[name][0])
            np.testing.assert_array_equal(outputs[name][-1], intact[name][-1])
        assert outputs["class"][1:21].numpy().tolist() == [-1] * 20
        assert np.isnan(outputs["logits"][1:21]).all()


def test_picture_at_the_size_limit_is_decoded():
    rows = zlib.compress(bytes(8193 * 4096), 1)
    pixels = picture_decoding.decode(tf.constant(png(8192, 4096, rows)), (8, 8, 1))
    assert picture_decoding.LARGEST_PICTURE == 8192 * 4096 and not np.any(pixels)
    process = exports.process(*exports.IMAGES)
    export_limits = ExportTask(process, process.family.predictor("a")).limits
    assert export_limits == {"images": 524288, "pixels_of_a_picture": 2**25}
    assert graph_limits.max_words(33_279) == 2**28 // 33_279
