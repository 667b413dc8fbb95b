#!/usr/bin/env python3
"""Measures `bin/hetero_tf serve` with 1, 8 and 64 clients, next to MLServer with the same model.

    benchmarks/serving.py EXPORTS [--level a] [--requests 1000] [--mlserver VENV/bin/mlserver]

EXPORTS/<level>/<version>/ holds an image model, as `export --format onnx` writes it. Each client keeps one connection
and sends one random image at a time; each response is compared with the SavedModel's. Prints p50 and p99 of a request
in milliseconds and requests a second, then those of a plain call of the same model by TensorFlow, Keras (where EXPORTS
has `model.keras`) and OpenVINO (where it is installed) in one process without HTTP. Another version is published in the
middle of a further series. EXPORTS is not changed: a copy is served.

MLServer (https://pypi.org/project/mlserver) is a model server for the Open Inference Protocol. It needs a separate
environment. It runs `model.onnx` with ONNX Runtime in a runtime class as in its documentation, with NumPy tensors, in
the process of the server (`parallel_workers: 0`):

    python3 -m venv VENV && VENV/bin/pip install mlserver onnxruntime
"""

import argparse
import asyncio
import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import checkout
import numpy as np

CLIENTS = (1, 8, 64)
# Number of untimed requests at the start.
WARM_UP = 50
STARTUP_SECONDS = 120
HEADERS_END = b"\r\n\r\n"
RUNTIME = """
import onnxruntime
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceResponse


class Onnx(MLModel):
    async def load(self):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(self.settings.parameters.uri, options)
        self.names = [output.name for output in self.session.get_outputs()]
        return True

    async def predict(self, payload):
        inputs = {one.name: NumpyCodec.decode_input(one) for one in payload.inputs}
        outputs = zip(self.names, self.session.run(self.names, inputs))
        return InferenceResponse(
            model_name=self.name, outputs=[NumpyCodec.encode_output(name, value) for name, value in outputs]
        )
"""


def parse():
    """The arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--level", default="a")
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--mlserver", type=Path, help="path of mlserver in an environment with onnxruntime")
    return parser.parse_args()


@contextlib.contextmanager
def running(command, folder, health):
    """Starts a server and waits for its first healthy response."""
    with open(folder / "log.txt", "w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder)
    try:
        deadline = time.monotonic() + STARTUP_SECONDS
        while True:
            try:
                with urllib.request.urlopen(health, timeout=5):
                    break
            except OSError:
                if process.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit(f"{command[0]} did not start:\n{(folder / 'log.txt').read_text()}") from None
                time.sleep(0.1)
        yield
    finally:
        process.terminate()
        process.wait()


def free_port():
    """A port that is free now."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


async def post(reader, writer, path, body):
    """Sends a request over an open connection and returns status and body of the response."""
    writer.write(f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
    head = (await reader.readuntil(HEADERS_END)).lower()
    length = int(head.partition(b"content-length:")[2].split(b"\r\n")[0])
    return int(head.split()[1]), await reader.readexactly(length)


async def load(port, path, bodies, clients, requests, between=None):
    """Sends requests by several clients at once.

    Returns:
        Milliseconds of each request, total seconds, and `(index of the body, status, response)` of each.
    """
    milliseconds, responses, remaining = [], [], iter(range(requests))

    async def client():
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for number in remaining:
            if between is not None and number == requests // 2:
                await asyncio.to_thread(between)
            index = number % len(bodies)
            began = time.perf_counter()
            responses.append((index, *await post(reader, writer, path, bodies[index])))
            milliseconds.append(1000 * (time.perf_counter() - began))
        writer.close()

    began = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(clients)))
    return milliseconds, time.perf_counter() - began, responses


def measure(name, port, path, bodies, logits_of, expected, requests):
    """Prints a row for each number of clients."""
    asyncio.run(load(port, path, bodies, 1, WARM_UP))
    for clients in CLIENTS:
        milliseconds, seconds, responses = asyncio.run(load(port, path, bodies, clients, requests))
        p50, p99 = np.percentile(milliseconds, [50, 99])
        right = count_right(responses, logits_of, expected)
        print(f"| {name} | {clients} | {p50:.1f} | {p99:.1f} | {requests / seconds:.0f} | {right} of {requests} |")


def count_right(responses, logits_of, expected):
    """Number of responses with status 200 and the SavedModel's logits."""
    return sum(
        status == 200 and np.allclose(logits_of(json.loads(body)), expected[index], atol=1e-4)
        for index, status, body in responses
    )


def serve_here(arguments, source, scratch, images, expected):
    """Measures `bin/hetero_tf serve`, also while the same model is published as version 2."""
    level_folder, port = scratch / "models" / arguments.level, free_port()
    shutil.copytree(source, level_folder / "1")
    start = [sys.executable, str(checkout.ROOT / "bin" / "start.py"), "serve", "--out", str(scratch / "models")]
    bodies = [json.dumps({"instances": [image.tolist()]}).encode() for image in images]
    path = f"/v1/models/{arguments.level}:predict"

    def logits_of(response):
        return response["predictions"][0]["logits"]

    def publish():
        shutil.copytree(source, level_folder / ".draft")
        os.rename(level_folder / ".draft", level_folder / "2")
        time.sleep(5)

    with running([*start, "--port", str(port)], scratch, f"http://127.0.0.1:{port}/readyz"):
        measure("hetero_tf serve", port, path, bodies, logits_of, expected, arguments.requests)
        *_, responses = asyncio.run(load(port, path, bodies, 8, arguments.requests, publish))
        right = count_right(responses, logits_of, expected)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models/{arguments.level}") as response:
            versions = [one["version"] for one in json.load(response)["model_version_status"]]
    return f"while version 2 is published: {right} of {arguments.requests} right; versions then: {', '.join(versions)}"


def serve_by_mlserver(arguments, source, scratch, images, expected):
    """Measures MLServer with `model.onnx`."""
    http, grpc, metrics = free_port(), free_port(), free_port()
    (scratch / "runtime.py").write_text(RUNTIME)
    model = {
        "name": "a",
        "implementation": "runtime.Onnx",
        "parameters": {"uri": str((source / "model.onnx").resolve())},
    }
    (scratch / "model-settings.json").write_text(json.dumps(model))
    settings = {"http_port": http, "grpc_port": grpc, "metrics_port": metrics, "parallel_workers": 0, "debug": False}
    (scratch / "settings.json").write_text(json.dumps(settings))
    bodies = [
        json.dumps(
            {
                "inputs": [
                    {"name": "image", "shape": [1, *image.shape], "datatype": "FP32", "data": image.ravel().tolist()}
                ]
            }
        ).encode()
        for image in images
    ]

    def logits_of(response):
        return next(one["data"] for one in response["outputs"] if one["name"] == "logits")

    ready = f"http://127.0.0.1:{http}/v2/health/ready"
    with running([str(arguments.mlserver.absolute()), "start", "."], scratch, ready):
        measure("MLServer", http, "/v2/models/a/infer", bodies, logits_of, expected, arguments.requests)


def timed(call, images):
    """Milliseconds of single calls, after some untimed calls."""
    for image in images[:5]:
        call(image[None])
    milliseconds = []
    for number in range(300):
        began = time.perf_counter()
        call(images[number % len(images)][None])
        milliseconds.append(1000 * (time.perf_counter() - began))
    return milliseconds


def calls_without_http(source, serve):
    """`{name: function of a batch}` of the same model in this process."""
    import tensorflow as tf

    calls = {"TensorFlow, SavedModel": lambda image: serve(image=tf.constant(image))["logits"].numpy()}
    if (source / "model.keras").exists():
        import hetero_tf

        model = hetero_tf.load_model(source / "model.keras")
        calls["Keras, model(x)"] = lambda image: np.asarray(model(image, training=False))
        calls["Keras, model.predict(x)"] = lambda image: model.predict(image, verbose=0)
    with contextlib.suppress(ImportError):
        import openvino

        core = openvino.Core()
        compiled = core.compile_model(core.read_model(source), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
        calls["OpenVINO"] = lambda image: compiled({"image": image})["logits"]
    return calls


def main():
    """Measures the newest version of a level."""
    arguments = parse()
    source = max((arguments.folder / arguments.level).iterdir(), key=lambda path: int(path.name))
    spec = json.loads((source / "export.json").read_text("utf-8"))["input"]
    shape = (50, *spec["fields"][0]["shape"])
    images = np.random.default_rng(0).random(shape).astype(np.float32)
    import tensorflow as tf

    serve = tf.saved_model.load(str(source)).signatures["serving_default"]
    expected = serve(image=tf.constant(images))["logits"].numpy()
    print("| server | clients | p50 ms | p99 ms | requests/s | right |\n| --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as here, tempfile.TemporaryDirectory() as there:
        published = serve_here(arguments, source, Path(here), images, expected)
        if arguments.mlserver is not None:
            serve_by_mlserver(arguments, source, Path(there), images, expected)
    print(f"\n{published}\n\n| without HTTP | p50 ms | p99 ms |\n| --- | --- | --- |")
    for name, call in calls_without_http(source, serve).items():
        p50, p99 = np.percentile(timed(call, images), [50, 99])
        print(f"| {name} | {p50:.1f} | {p99:.1f} |")


if __name__ == "__main__":
    main()
