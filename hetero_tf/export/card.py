"""MODEL_CARD.md: description, metrics and usage of an exported model."""

import contextlib
import json
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import yaml

from hetero_tf.base.console import format_metrics
from hetero_tf.base.errors import InputError
from hetero_tf.base.formatting import escape_markdown, join_shell, quote_shell
from hetero_tf.base.metrics import find_metric
from hetero_tf.data.codecs import Field, build_fields
from hetero_tf.data.fields import input_names

SENTENCES = {"text": "the <mask> of the year", "next_word": "the end of the"}


def example_request(about: Mapping) -> dict[str, Any]:
    """Return the body of a predict request with one example.

    Returns:
        {"signature_name", "instances": [example]}: a picture of a ring, a tone, a sentence, a row with the means of the
        training examples, or waves around these means.
    """
    signatures = about["signatures"]
    fields: tuple[Field, ...] = ()
    with contextlib.suppress(InputError, KeyError, TypeError):
        fields = build_fields(about["input"]["fields"])
    if not fields or not {fields[0].codec.ITEMS, "serving_default"} & signatures.keys():
        raise InputError("an example is known for exports of hetero_tf only")
    signature = fields[0].codec.ITEMS
    if signature not in signatures:
        shapes = {name: spec["shape"][1:] for name, spec in signatures["serving_default"]["inputs"].items()}
        values: dict[str, Any] = {
            name: np.zeros([size or 1 for size in shape], int).tolist() for name, shape in shapes.items()
        }
        values |= {name: field.codec.example() for name, field in zip(input_names(fields), fields) if name in values}
        return {"signature_name": "serving_default", "instances": [_unwrap(values)]}
    examples = [field.codec.example() for field in fields]
    if about["input"]["kind"] in SENTENCES:
        examples = [SENTENCES[about["input"]["kind"]]]
    values = dict(zip(input_names(fields), examples))
    if about["input"]["kind"] == "arrays":
        # The layers of a model may read several numbers from one text.
        values = {
            name: np.full(spec["shape"][1:], "text").tolist() if spec.get("dtype") == "string" else values[name]
            for name, spec in signatures[signature]["inputs"].items()
        }
    return {"signature_name": signature, "instances": [_unwrap(values)]}


def _unwrap(values):
    return values if len(values) > 1 else next(iter(values.values()))


CARD = "MODEL_CARD.md"
ADDRESS = "http://127.0.0.1:8501/v1/models"
# Characters of a request that is short enough for a command line.
MAX_BODY = 1000
# Characters of a value in Python; zeros replace a longer one.
MAX_ARGUMENT = 200
# Class names in the table.
MAX_CLASSES = 20
LICENSE = "Weights: not stated. The license of the data may restrict them. Code of hetero_tf: Apache-2.0."
# Names of a file by the input for its bytes.
FILES = {"audio_bytes": "clip.wav", "image_bytes": "picture.png"}


def model_card(about: dict, notes: list[str]) -> str:
    """Return the text of the card."""
    warnings = [entry["warning"] for entry in (about, *about["formats"].values()) if "warning" in entry]
    warning = "".join(f"**{escape_markdown(sentence)}**\n\n" for sentence in warnings)
    rows = [
        ("recipe", escape_markdown(about["recipe"])),
        ("level", f"{about['level']} (width {about['width']:g})"),
        ("round", f"{about['round']}" + (f", the {about['state']} state" if "state" in about else "")),
        ("data", escape_markdown(about["data"]["name"])),
        ("test examples", f"{about['test_examples']:,}" if about.get("test_examples") else "not counted"),
        ("classes", _classes(about)),
        ("method", escape_markdown(about["method_name"])),
        ("parts of the method", ", ".join(f"{key} {name}" for key, name in about["method"].items())),
        *((name, str(value)) for name, value in about["training"].items()),
        ("parameters", f"{about['parameters']:,}"),
        ("measured", _measured(about)),
    ]
    signatures = "\n".join(
        f"- `{name}`: {_tensors(signature['inputs'])} -> {_tensors(signature['outputs'])}"
        for name, signature in about["signatures"].items()
    )
    rows += [
        (f"`{entry['file']}`", f"{name}, signature {entry['signature']}, {entry['bytes']:,} bytes; {_measured(entry)}")
        for name, entry in about["formats"].items()
    ]
    table = "\n".join(f"| {name} | {value} |" for name, value in rows)
    note_lines = "\n".join(f"- {note}" for note in notes)
    training = "".join(_training(entry) for entry in about["formats"].values() if "training" in entry)
    return (
        f"{front_matter(about)}# {escape_markdown(about['recipe'])}, level {about['level']}\n\n{warning}"
        f"| | |\n| --- | --- |\n{table}\n\n{_run_metrics(about)}## License\n\n{LICENSE}\n\n"
        f"## Signatures\n\n{signatures}\n\n## Inputs\n\n{note_lines}\n\n## Call\n\n"
        f"```python\n{_python_lines(about)}```\n\n"
        "With a server that has the REST API of TensorFlow Serving, such as `hetero_tf serve`:\n\n```sh\n"
        f"{_curl_line(about)}```\n{training}"
    )


def _classes(about):
    names = [escape_markdown(name) for name in about["class_names"] or ()]
    shown = ", ".join(names[:MAX_CLASSES]) + (", ..." if len(names) > MAX_CLASSES else "")
    return f"{about['classes']}: {shown}" if names else str(about["classes"])


def _run_metrics(about):
    """Return the metrics of the exported round in the run, with those of the clients and of the other levels."""
    row = about.get(about.get("state", ""), {})
    rows = [
        f"| `{name}` | {value:.4g} | {metric.meaning} |"
        for name, value in row.items()
        if name != "round" and value is not None and (metric := find_metric(name)) and metric.targets
    ]
    if not rows:
        return ""
    return "\n".join(
        ["## Metrics of the run", "", "| metric | value | meaning |", "| --- | ---: | --- |", *rows, "", ""]
    )


def _python_lines(about):
    """Return Python that calls the model inside the folder of its version with an example."""
    request = example_request(about)
    inputs, (values,) = about["signatures"][request["signature_name"]]["inputs"], request["instances"]
    values = values if len(inputs) > 1 else dict.fromkeys(inputs, values)
    arguments = ", ".join(f"{name}={_argument(name, spec, values[name])}" for name, spec in inputs.items())
    return (
        f'import tensorflow as tf\nserve = tf.saved_model.load(".").signatures["{request["signature_name"]}"]\n'
        f"print(serve({arguments}))\n"
    )


def _argument(name, spec, value):
    if name in FILES:
        return f'tf.constant([open("{FILES[name]}", "rb").read()])'
    text = f"tf.constant([{value!r}], tf.{spec['dtype']})"
    return text if len(text) <= MAX_ARGUMENT else f"tf.zeros({[1, *spec['shape'][1:]]}, tf.{spec['dtype']})"


def _curl_line(about):
    """Return a curl command that sends an example, or asks for the inputs if the example is long."""
    url = f"{ADDRESS}/{about['level']}"
    request = example_request(about)
    inputs = about["signatures"][request["signature_name"]]["inputs"]
    file = next((FILES[name] for name in inputs if name in FILES), None)
    if file is not None:
        begin, end = f'{{"signature_name": "{request["signature_name"]}", "instances": [{{"b64": "', '"}]}'
        content = f"printf {quote_shell(begin)}; base64 < {file} | tr -d '\\n'; printf {quote_shell(end)}"
        return f"({content}) | {join_shell(['curl', '--data-binary', '@-', f'{url}:predict'])}\n"
    body = json.dumps(request)
    if len(body) > MAX_BODY:
        return f"{join_shell(['curl', f'{url}/metadata'])}\n"
    return f"{join_shell(['curl', '-d', body, f'{url}:predict'])}\n"


def _training(entry):
    sizes = ", ".join(f"{examples} x {positions}" for examples, positions in entry["training"]["batches"].values())
    return (
        f"\n## Train on a device\n\n`{entry['file']}` needs ai-edge-litert and NumPy, no TensorFlow:\n\n```python\n"
        "from hetero_tf.devices.on_device import LiteRTTrainer\n\ntrainer = LiteRTTrainer('.')\n"
        "trainer.push(weights, statistics)  # from the server\n"
        "report = trainer.train(trainer.batches(x, y, epochs, rng), learning_rate, trainer.present(y), rng)\n"
        "weights = trainer.pull()  # to the server\n```\n\n"
        f"- A batch has one of these sizes (examples x positions): {sizes}. Other sizes are rejected; batches are not "
        "padded.\n- The device has the whole label axis; classes without local examples get no gradient, and the "
        "server does not merge their rows.\n"
        "- `infer` normalizes with the pushed statistics; `trainer.statistics` measures new ones.\n"
    )


def _measured(about):
    metrics = dict(about["measured"])
    source = metrics.pop("on")
    return f"{format_metrics(metrics)}, {source}" if metrics else source


def _tensors(specs):
    def format_spec(name, spec):
        sizes = ", ".join("any" if size is None else str(size) for size in spec["shape"])
        return f"{escape_markdown(name)} {spec['dtype']} [{sizes}]"

    return ", ".join(format_spec(name, spec) for name, spec in specs.items())


def front_matter(about: dict) -> str:
    """Return the YAML block of a card, with the delimiters."""
    pipelines = build_fields(about["input"]["fields"])[0].codec.PIPELINES
    pipeline = pipelines.get(about["task"]) or pipelines.get(about["input"]["kind"])
    measured = {name: value for name, value in about["measured"].items() if name != "on" and value is not None}
    name = about["data"]["name"]
    metrics = [{"type": key, "value": float(value), "name": f"test {key}"} for key, value in measured.items()]
    dataset = {"name": name, "type": re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-"), "split": "test"}
    metadata = {
        # The weights have no license unless their owner states one.
        "license": "unknown",
        "library_name": "tensorflow",
        "tags": ["federated-learning", "hetero_tf", about["method_name"]],
        **({"pipeline_tag": pipeline} if pipeline else {}),
        "metrics": list(measured),
        "model-index": [
            {
                "name": f"{about['recipe']}-{about['level']}",
                "results": [{"task": {"type": pipeline or about["task"]}, "dataset": dataset, "metrics": metrics}],
            }
        ],
    }
    if not measured:
        del metadata["metrics"], metadata["model-index"]
    return f"---\n{yaml.safe_dump(metadata, sort_keys=False, allow_unicode=True)}---\n\n"
