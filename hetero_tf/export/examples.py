"""A predict request with one example, made of the statistics in `export.json`; it contains no data of clients."""

import base64
from collections.abc import Mapping
from math import prod

import numpy as np
import tensorflow as tf

from hetero_tf.base.errors import InputError
from hetero_tf.data.dates import DATE_EXAMPLES

# Signatures for items as users have them, then the one of every model.
SIGNATURES = ("serve_bytes", "serve_text", "serve_rows", "serving_default")
SENTENCES = {"text": "the <mask> of the year", "sequences": "this is a sentence", "next_word": "the end of the"}
# Shortest side of an example picture in pixels, so that it is recognizable on a screen.
MIN_PICTURE = 64


def example_request(about: Mapping) -> dict:
    """Return the body of a predict request with one example.

    Args:
        about: Contents of `export.json`.

    Returns:
        {"signature_name", "instances": [example]}: a picture of a ring, a tone, a sentence, a row with the means of the
        training examples, or waves around these means.

    Raises:
        InputError: No signature is known.
    """
    signatures, spec = about["signatures"], about["input"]
    name = next((name for name in SIGNATURES if name in signatures), None)
    if name is None:
        raise InputError(
            f"an example is known for the signatures {', '.join(SIGNATURES)} only. "
            f"Received: {', '.join(sorted(signatures)) or 'no signatures'}"
        )
    inputs = {key: value["shape"][1:] for key, value in signatures[name]["inputs"].items()}
    if name == "serve_bytes":
        file = _tone(spec) if "audio_bytes" in inputs else _ring(spec)
        example: object = {"b64": base64.b64encode(file.numpy()).decode()}
    elif name == "serve_text":
        example = SENTENCES[spec["kind"]]
    elif name == "serve_rows":
        example = example_row(spec)
    else:
        arrays = {key: _typical_numbers(shape, spec.get("normalised_by")) for key, shape in inputs.items()}
        example = arrays if len(arrays) > 1 else next(iter(arrays.values()))
    return {"signature_name": name, "instances": [example]}


def example_row(spec: Mapping) -> list[str]:
    """Return valid texts of the columns of a table: a category, a date, or the mean.

    Args:
        spec: "input" of `export.json`.
    """
    texts, position, means = [], 0, spec["normalised_by"].get("mean") or ()
    for column in spec["columns"]:
        mean = [np.format_float_positional(float(f"{value:.3g}"), trim="-") for value in means[position : position + 1]]
        fill, date = column.get("fill"), column.get("date")
        values = [*column["categories"][:1], date and (fill or DATE_EXAMPLES[date]), *mean, fill, "0"]
        texts.append(next(value for value in values if value is not None))
        position += len(column["features"])
    return texts


def _typical_numbers(shape, normalised_by):
    """Return the means of the last axis; with more axes, waves of one standard deviation around them; else zeros."""
    sizes = [1 if size is None else size for size in shape]
    mean, std = (np.asarray((normalised_by or {}).get(name) or 0.0) for name in ("mean", "std"))
    if mean.shape not in ((1,), tuple(sizes[-1:])):
        return np.zeros(sizes, int).tolist()
    # Different phases, so that the lines of the channels differ in a figure.
    phases = np.add.outer(np.arange(prod(sizes[:-1])) / 2, np.arange(sizes[-1]))
    values = (mean + std * (np.sin(phases) if len(sizes) > 1 else 0 * phases)).reshape(sizes)
    return np.vectorize(lambda value: float(f"{value:.4g}"))(values).tolist()


def _ring(spec):
    """Return a PNG file of a light ring."""
    scale = -(-MIN_PICTURE // min(spec["height"], spec["width"]))
    height, width = spec["height"] * scale, spec["width"] * scale
    rows, columns = np.mgrid[:height, :width]
    distance = np.hypot((rows + 0.5) / height - 0.5, (columns + 0.5) / width - 0.5)
    is_ring = np.abs(distance - 0.28) < 0.07
    return tf.io.encode_png(np.repeat(is_ring[..., None] * np.uint8(255), spec["channels"], 2))


def _tone(spec):
    """Return a WAV file of a tone of 440 Hz."""
    seconds = np.arange(spec["shape"][0], dtype=np.float32) / spec["rate"]
    return tf.audio.encode_wav(0.5 * np.sin(2 * np.pi * 440 * seconds)[:, None], spec["rate"])
