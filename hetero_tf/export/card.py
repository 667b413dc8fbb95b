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
    return (
        f"# {about['recipe']}, level {about['level']}\n\n{warning}| | |\n| --- | --- |\n{table}\n\n"
        f"## Signatures\n\n{signatures}\n\n## Inputs\n\n{told}\n\n## Call\n\n```python\n{calls}```\n"
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
