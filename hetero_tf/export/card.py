"""MODEL_CARD.md: what an exported model is, how good it is, and how to call it."""

import json
from math import prod

from hetero_tf.base.console import figures

CARD = "MODEL_CARD.md"
ADDRESS = "http://127.0.0.1:8501/v1/models"
# Requests with more numbers are too long for a command line.
MOST_NUMBERS = 64
SENTENCES = {"text": "the <mask> of the year", "sequences": "this is a sentence", "next_word": "the end of the"}


def model_card(about: dict, calls: str, notes: list[str]) -> str:
    """Returns the text of the card.

    Args:
        about: What `export.json` holds.
        calls: Lines of Python that call the model inside the folder of the version.
        notes: What a caller must know of the inputs, a sentence each.
    """
    warned = [one["warning"] for one in (about, *about["formats"].values()) if "warning" in one]
    warning = "".join(f"**{sentence}**\n\n" for sentence in warned)
    rows = [
        ("recipe", about["recipe"]),
        ("level", f"{about['level']} (width {about['width']:g})"),
        ("round", f"{about['round']}" + (f", the {about['state']} state" if "state" in about else "")),
        ("data", about["data"]["name"]),
        ("parameters", f"{about['parameters']:,}"),
        ("measured", _measured(about)),
    ]
    signatures = "\n".join(
        f"- `{name}`: {_tensors(signature['inputs'])} -> {_tensors(signature['outputs'])}"
        for name, signature in about["signatures"].items()
    )
    rows += [
        (f"`{one['file']}`", f"{name}, signature {one['signature']}, {one['bytes']:,} bytes; {_measured(one)}")
        for name, one in about["formats"].items()
    ]
    table = "\n".join(f"| {name} | {value} |" for name, value in rows)
    told = "\n".join(f"- {note}" for note in notes)
    training = "".join(_training(one) for one in about["formats"].values() if "training" in one)
    return (
        f"# {about['recipe']}, level {about['level']}\n\n{warning}| | |\n| --- | --- |\n{table}\n\n"
        f"## Signatures\n\n{signatures}\n\n## Inputs\n\n{told}\n\n## Call\n\n```python\n{calls}```\n\n"
        "A server with the REST API of TensorFlow Serving, such as `hetero_tf serve`, answers at\n\n```sh\n"
        f"{_curl_lines(about)}```\n{training}"
    )


def _curl_lines(about):
    """A command for each signature whose request is short."""
    url = f"{ADDRESS}/{about['level']}"
    lines = [_curl_line(name, spec["inputs"], about["input"], url) for name, spec in about["signatures"].items()]
    return "".join(line for line in lines if line) or f"curl {url}/metadata\n"


def _curl_line(signature, inputs, about_input, url):
    """A command that sends one example; None if it is too long."""
    ((name, spec),) = inputs.items()
    if name == "image_bytes":
        begin, end = f'{{"signature_name": "{signature}", "instances": [{{"b64": "', '"}]}'
        picture = f"printf '{begin}'; base64 < picture.png | tr -d '\\n'; printf '{end}'"
        return f"({picture}) | curl --data-binary @- {url}:predict\n"
    shape = [1 if size is None else size for size in spec["shape"]]
    if prod(shape) > MOST_NUMBERS:
        return None
    example = SENTENCES.get(about_input.get("kind"), "") if spec["dtype"] == "string" else _zeros(shape[1:])
    body = json.dumps({"signature_name": signature, "instances": [example]})
    return f"curl -d '{body}' {url}:predict\n"


def _zeros(shape):
    return [_zeros(shape[1:]) for _ in range(shape[0])] if shape else 0


def _training(one):
    """How a device trains the file of a format."""
    sizes = ", ".join(f"{examples} x {positions}" for examples, positions in one["training"]["batches"].values())
    return (
        f"\n## Train on a device\n\n`{one['file']}` needs ai-edge-litert and NumPy, no TensorFlow:\n\n```python\n"
        "from hetero_tf.devices.on_device import Client\n\nclient = Client('.')\n"
        "client.push(weights, statistics)  # from the server\n"
        "report = client.train(client.batches(x, y, epochs, rng), learning_rate, client.present(y), rng)\n"
        "weights = client.pull()  # to the server\n```\n\n"
        f"- A batch has one of these sizes (examples x positions): {sizes}. Others are refused, none is padded.\n"
        "- The device has the whole label axis; labels that it lacks get no gradient, and the server merges none of "
        "their rows.\n- `infer` normalizes by the pushed statistics; `client.statistics` measures new ones.\n"
    )


def _measured(about):
    found = dict(about["measured"])
    where = found.pop("on")
    return f"{figures(found)}, {where}" if found else where


def _tensors(specs):
    def one(name, spec):
        sizes = ", ".join("any" if size is None else str(size) for size in spec["shape"])
        return f"{name} {spec['dtype']} [{sizes}]"

    return ", ".join(one(name, spec) for name, spec in specs.items())
