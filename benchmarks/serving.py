#!/usr/bin/env python3
"""Sends requests to `bin/hetero_tf serve` over several connections while a new version is published.

    benchmarks/serving.py EXPORTS [--level a] [--requests 1000] [--connections 4]

EXPORTS/<level>/<version>/ holds an image model, as `export` writes it. Each request has one random image, and each
answer is compared with the SavedModel's. Prints how many answers were right, wrong or refused, and p50 and p99 of a
request in milliseconds, beside those of a plain call of the same model by TensorFlow, Keras (where EXPORTS has
`model.keras`) and OpenVINO (where it is installed) in one process without HTTP. EXPORTS is not changed: what is served
lies in a folder beside it, which goes at the end.
"""

import argparse
import http.client
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import checkout
import numpy as np

PUBLISHED_AFTER = 0.4


def parse():
    """The arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--level", default="a")
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--connections", type=int, default=4)
    return parser.parse_args()


def started(folder):
    """`(process, host:port)` of a server of a folder."""
    command = [sys.executable, str(checkout.ROOT / "bin" / "start.py"), "serve", "--out", str(folder), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    for line in process.stdout:
        print(line.rstrip())
        if "serving at http://" in line:
            threading.Thread(target=lambda: [print(line.rstrip()) for line in process.stdout], daemon=True).start()
            return process, line.split("http://")[1].split("/")[0]
    raise SystemExit("the server did not start")


def percentiles(seconds):
    """p50 and p99 in milliseconds."""
    return "p50 {:.1f} ms, p99 {:.1f} ms".format(*np.percentile(1000 * np.array(seconds), [50, 99]))


def publish(source, level_folder):
    """The same model as the next version, copied beside and renamed in."""
    draft = level_folder / ".draft"
    shutil.copytree(source, draft)
    os.rename(draft, level_folder / "2")


def storm(address, level, images, wanted, arguments, source, level_folder):
    """Sends all requests, publishes a version on the way, and prints what came back."""
    done, lock, told = [], threading.Lock(), {"right": 0, "wrong": 0, "refused": 0}
    begin = threading.Barrier(arguments.connections + 1)

    def connection(number):
        link = http.client.HTTPConnection(address, timeout=60)
        begin.wait()
        for index in range(number, arguments.requests, arguments.connections):
            image = images[index % len(images)]
            body = json.dumps({"instances": [image.tolist()]})
            began = time.perf_counter()
            link.request("POST", f"/v1/models/{level}:predict", body, {"Content-Type": "application/json"})
            answer = link.getresponse()
            found = json.loads(answer.read())
            seconds = time.perf_counter() - began
            if answer.status != 200:
                what = "refused"
            else:
                logits = found["predictions"][0]["logits"]
                what = "right" if np.allclose(logits, wanted[index % len(images)], atol=1e-4) else "wrong"
            with lock:
                done.append(seconds)
                told[what] += 1

    with ThreadPoolExecutor(arguments.connections) as pool:
        jobs = [pool.submit(connection, number) for number in range(arguments.connections)]
        begin.wait()
        began = time.perf_counter()
        while len(done) < PUBLISHED_AFTER * arguments.requests and not all(job.done() for job in jobs):
            time.sleep(0.001)
        publish(source, level_folder)
        for job in jobs:
            job.result()
    took = time.perf_counter() - began
    print(f"{len(done)} requests over {arguments.connections} connections in {took:.1f} s: {told}")
    print(f"| served | {percentiles(done)} |")


def timed(ask, images):
    """Seconds of single calls, after some that are not counted."""
    for image in images[:5]:
        ask(image[None])
    seconds = []
    for number in range(300):
        began = time.perf_counter()
        ask(images[number % len(images)][None])
        seconds.append(time.perf_counter() - began)
    return seconds


def main():
    """Serves a copy of the newest version."""
    arguments = parse()
    source = max((arguments.folder / arguments.level).iterdir(), key=lambda path: int(path.name))
    spec = json.loads((source / "export.json").read_text("utf-8"))["input"]
    shape = (50, spec["height"], spec["width"], spec["channels"])
    images = np.random.default_rng(0).random(shape).astype(np.float32)
    import tensorflow as tf

    serve = tf.saved_model.load(str(source)).signatures["serving_default"]
    wanted = serve(image=tf.constant(images))["logits"].numpy()
    with tempfile.TemporaryDirectory(dir=arguments.folder.parent) as scratch:
        level_folder = Path(scratch, arguments.level)
        shutil.copytree(source, level_folder / "1")
        process, address = started(Path(scratch))
        try:
            storm(address, arguments.level, images, wanted, arguments, source, level_folder)
            time.sleep(3)
            link = http.client.HTTPConnection(address, timeout=60)
            link.request("GET", f"/v1/models/{arguments.level}")
            served = json.loads(link.getresponse().read())["model_version_status"]
            print("versions in the end:", ", ".join(one["version"] for one in served))
        finally:
            process.terminate()
            process.wait()
    calls = {"TensorFlow, SavedModel": lambda image: serve(image=tf.constant(image))["logits"].numpy()}
    if (source / "model.keras").exists():
        import hetero_tf

        model = hetero_tf.load_model(source / "model.keras")
        calls["Keras, model(x)"] = lambda image: np.asarray(model(image, training=False))
        calls["Keras, model.predict(x)"] = lambda image: model.predict(image, verbose=0)
    try:
        import openvino

        core = openvino.Core()
        compiled = core.compile_model(core.read_model(source), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
        calls["OpenVINO"] = lambda image: compiled({"image": image})["logits"]
    except ImportError:
        print("openvino is not installed, so its row is missing")
    for name, ask in calls.items():
        print(f"| {name} | {percentiles(timed(ask, images))} |")


if __name__ == "__main__":
    main()
