"""Metadata at the beginning of a model card, in the format of the Hugging Face Hub."""

import re

import yaml

# Pipeline of the Hub by the kind of the input and the task; an input alone covers its other tasks.
PIPELINES = {
    ("images", "segmentation"): "image-segmentation",
    ("images", "classification"): "image-classification",
    ("images", "binary"): "image-classification",
    ("audio", "classification"): "audio-classification",
    ("sequences", "classification"): "text-classification",
    ("table", "classification"): "tabular-classification",
    ("table", "binary"): "tabular-classification",
    ("table", "regression"): "tabular-regression",
    ("series", "regression"): "time-series-forecasting",
    ("text", None): "fill-mask",
    ("next_word", None): "text-generation",
}


def front_matter(about: dict) -> str:
    """Return the YAML block of a card, with the delimiters.

    Args:
        about: Contents of `export.json`.
    """
    kind, task = about["input"].get("kind"), about["task"]
    pipeline = PIPELINES.get((kind, task), PIPELINES.get((kind, None)))
    measured = {name: value for name, value in about["measured"].items() if name != "on" and value is not None}
    metadata = {
        # The weights have no license unless their owner states one.
        "license": "unknown",
        "library_name": "tensorflow",
        "tags": ["federated-learning", "hetero_tf", about["method"]["submodel"]],
        **({"pipeline_tag": pipeline} if pipeline else {}),
        "metrics": list(measured),
        "model-index": [
            {"name": f"{about['recipe']}-{about['level']}", "results": [_result(about, pipeline, measured)]}
        ],
    }
    if not measured:
        del metadata["metrics"], metadata["model-index"]
    return f"---\n{yaml.safe_dump(metadata, sort_keys=False, allow_unicode=True)}---\n\n"


def _result(about, pipeline, measured):
    name = about["data"]["name"]
    return {
        "task": {"type": pipeline or about["task"]},
        "dataset": {"name": name, "type": re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-"), "split": "test"},
        "metrics": [
            {"type": metric, "value": float(value), "name": f"test {metric}"} for metric, value in measured.items()
        ],
    }
