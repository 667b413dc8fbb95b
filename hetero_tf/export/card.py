"""MODEL_CARD.md: what an exported model is, how good it is, and how to call it."""

from hetero_tf.base.console import figures

CARD = "MODEL_CARD.md"


def model_card(about: dict, calls: str, notes: list[str]) -> str:
    """Returns the text of the card.

    Args:
        about: What `export.json` holds.
        calls: Lines of Python that call the model inside the folder of the version.
        notes: What a caller must know of the inputs, a sentence each.
    """
    warning = f"**{about['warning']}**\n\n" if "warning" in about else ""
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
        f"## Signatures\n\n{signatures}\n\n## Inputs\n\n{told}\n\n## Call\n\n```python\n{calls}```\n{training}"
    )


def _training(one):
    """How a device trains the file of a format."""
    sizes = ", ".join(f"{examples} x {positions}" for examples, positions in one["training"]["batches"].values())
    return (
        f"\n## Train on a device\n\n`{one['file']}` needs ai-edge-litert and NumPy, no TensorFlow:\n\n```python\n"
        "from hetero_tf.device import Client\n\nclient = Client('.')\nclient.push(weights)  # from the server\n"
        "report = client.train(client.batches(x, y, epochs, rng), learning_rate, client.present(y), rng)\n"
        "weights = client.pull()  # to the server\n```\n\n"
        f"- A batch has one of these sizes (examples x positions): {sizes}. Others are refused, none is padded.\n"
        "- The device has the whole label axis; labels that it lacks get no gradient, and the server merges none of "
        "their rows.\n- `infer` keeps the statistics of static batch normalisation of this export.\n"
    )


def _measured(about):
    found = dict(about["measured"])
    where = found.pop("on")
    return f"{figures(found)}, {where}"


def _tensors(specs):
    def one(name, spec):
        sizes = ", ".join("any" if size is None else str(size) for size in spec["shape"])
        return f"{name} {spec['dtype']} [{sizes}]"

    return ", ".join(one(name, spec) for name, spec in specs.items())
