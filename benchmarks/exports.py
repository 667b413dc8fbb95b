#!/usr/bin/env python3
"""Runs every exported file in a separate process without this package, and compares the logits.

    bin/hetero_tf export --run_dir RUN --level all --format keras,onnx,litert,litert_int8 --out EXPORTS
    benchmarks/exports.py EXPORTS

Prints per level and format: bytes, the metric of the file on the whole test set (from `export.json`), the largest
difference of logits from the SavedModel's over random requests (as a share of the largest logit), the batches and
lengths that fail, and milliseconds of a request of one example. Files of other runtimes accept at most one segment of
text; this program cuts longer texts like the SavedModel does.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import checkout  # noqa: F401  finds the libraries
import numpy as np

BATCHES, LENGTHS = (0, 1, 7, 64), (1, 63, 64, 65, 130)
# Code that loads the file in each runtime, without hetero_tf; `predict(array) -> logits`.
LOADERS = {
    "savedmodel": """
import tensorflow as tf
serve = tf.saved_model.load(path).signatures["serving_default"]
predict = lambda inputs: serve(**{name: tf.constant(inputs)})["logits"].numpy()
""",
    "openvino": """
import openvino
core = openvino.Core()
# Its fused attention is wrong where a segment has 16 to 63 words.
exact = {"INFERENCE_PRECISION_HINT": "f32", "SNIPPETS_MODE": "DISABLE"}
compiled = core.compile_model(core.read_model(path), "CPU", exact)
predict = lambda inputs: compiled({name: inputs})["logits"]
""",
    "onnx": """
import onnxruntime
session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
predict = lambda inputs: session.run(["logits"], {name: inputs})[0]
""",
    "litert": """
from ai_edge_litert.interpreter import Interpreter
interpreter = Interpreter(model_path=path)
runner = interpreter.get_signature_runner("infer" if "infer" in interpreter.get_signature_list() else None)
predict = lambda inputs: np.array(runner(**{name: inputs})["logits"])
""",
}
LOADERS |= dict.fromkeys(("litert_int8", "litert_train"), LOADERS["litert"])
# Other formats, such as Keras with its layers, are loaded by this package.
PACKAGE_LOADER = """
from pathlib import Path
from hetero_tf.export import formats
runtime = formats.find("KIND").load_runtime(Path(path))
predict = lambda inputs: runtime(**{name: inputs})["logits"]
"""
RUN_MODEL = """
import json, sys, time
import numpy as np
path, name, segment, requests, out = sys.argv[1:6]
if "hetero_tf" not in sys.argv[6:]:
    sys.modules["hetero_tf"] = None
LOADER
segment, logits_by_request, report = int(segment), {}, {}
def cut(inputs):
    if not segment or inputs.shape[1] <= segment:
        return predict(inputs)
    parts = [predict(inputs[:, start : start + segment]) for start in range(0, inputs.shape[1], segment)]
    return np.concatenate(parts, 1)
for key, inputs in np.load(requests).items():
    try:
        logits_by_request[key] = cut(inputs)
    except Exception as error:
        report[key] = type(error).__name__
one = np.load(requests)["one"]
seconds = []
for _ in range(30):
    began = time.perf_counter(); cut(one); seconds.append(time.perf_counter() - began)
report["ms"] = 1000 * sorted(seconds)[len(seconds) // 2]
np.savez(out, **logits_by_request)
print(json.dumps(report))
"""


def parse():
    """The arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="EXPORTS of EXPORTS/<level>/<version>/")
    parser.add_argument("--json", action="store_true", help="one JSON line per file instead of a table")
    return parser.parse_args()


def requests(about):
    """Random requests, `{key: array}`, and the name of the input, as `export.json` describes them."""
    rng, spec = np.random.default_rng(0), about["input"]
    ((name, spec_of_input),) = about["signatures"]["serving_default"]["inputs"].items()
    if spec_of_input["dtype"] == "float32":
        made = {f"batch {count}": rng.random((count, *spec_of_input["shape"][1:]), np.float32) for count in BATCHES}
        return {**made, "one": made["batch 1"]}, name
    words, segment = spec.get("words") or 2, spec.get("segment") or spec["fields"][0]["length"]
    # A model that reads full rows has one length.
    lengths = LENGTHS if spec_of_input["shape"][1] is None else ()
    made = {f"length {length}": rng.integers(0, words, (1, length), np.int32) for length in lengths}
    made |= {f"batch {count}": rng.integers(0, words, (count, segment), np.int32) for count in BATCHES}
    return {**made, "one": made["batch 1"]}, name


def run_file(kind, path, name, segment, requests_file, scratch):
    """`({key: logits}, {key: error, "ms": of one request})` of a file."""
    out = scratch / f"{kind}.npz"
    allowed = [] if kind in LOADERS else ["hetero_tf"]
    arguments = [str(path), name, str(segment), str(requests_file), str(out), *allowed]
    code = RUN_MODEL.replace("LOADER", LOADERS.get(kind, PACKAGE_LOADER.replace("KIND", kind)))
    environment = {**os.environ, "PYTHONPATH": str(checkout.ROOT) if allowed else ""}
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, env=environment)
    if done.returncode:
        return {}, {"loading": (done.stderr.strip().splitlines() or ["?"])[-1][:200]}
    with np.load(out) as outputs:
        return dict(outputs), json.loads(done.stdout.splitlines()[-1])


def largest_gap(outputs, expected):
    """The largest difference of logits as a share of the largest one, over the requests in both results."""
    gaps = [
        np.abs(outputs[key] - expected[key]).max() / max(1, np.abs(expected[key]).max())
        for key in outputs.keys() & expected.keys()
        if expected[key].size
    ]
    return max(map(float, gaps), default=float("nan"))


def rows(version):
    """One row for each file of a version."""
    about = json.loads((version / "export.json").read_text("utf-8"))
    request_arrays, name = requests(about)
    cut = about["input"].get("segment", 0)
    other_bytes = sum(file_info["bytes"] for file_info in about["formats"].values())
    saved = {**about, "bytes": about["bytes"] - other_bytes}
    files = {"savedmodel": (".", 0, saved), "openvino": (".", 0, saved)}
    files |= {kind: (file_info["file"], cut, file_info) for kind, file_info in about["formats"].items()}
    with tempfile.TemporaryDirectory() as scratch:
        np.savez(Path(scratch, "requests.npz"), **request_arrays)
        expected = None
        for kind, (file, segment, file_info) in files.items():
            request = Path(scratch, "requests.npz")
            outputs, report = run_file(kind, version / file, name, segment, request, Path(scratch))
            expected = outputs if expected is None else expected
            gap = about["largest_difference_of_logits"] if kind == "savedmodel" else largest_gap(outputs, expected)
            measured = {key: value for key, value in file_info["measured"].items() if key != "on"}
            yield {
                "level": about["level"],
                "format": kind,
                "bytes": file_info["bytes"],
                "measured": {} if kind == "openvino" else measured,
                "gap": gap,
                "ms": report.pop("ms", float("nan")),
                "answered": sorted(outputs.keys() - {"one"}),
                "failed": report,
            }


def main():
    """Prints a row for each file."""
    arguments = parse()
    levels = [path for path in sorted(arguments.folder.iterdir()) if path.is_dir()]
    if not arguments.json:
        print("| level | format | bytes | test set | largest difference | ms for one | answered | failed |")
        print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for level in levels:
        newest = max((path for path in level.iterdir() if path.name.isdigit()), key=lambda path: int(path.name))
        for row in rows(newest):
            if arguments.json:
                print(json.dumps(row), flush=True)
                continue
            metric = ", ".join(f"{name} {value:.4g}" for name, value in row["measured"].items())
            failed = ", ".join(f"{key}: {what}" for key, what in row["failed"].items()) or "-"
            print(
                f"| {row['level']} | {row['format']} | {row['bytes']:,} | {metric or '-'} | {row['gap']:.1e} | "
                f"{row['ms']:.2f} | {len(row['answered'])} | {failed} |",
                flush=True,
            )


if __name__ == "__main__":
    began = time.perf_counter()
    main()
    print(f"\n{time.perf_counter() - began:.0f} s", file=sys.stderr)
