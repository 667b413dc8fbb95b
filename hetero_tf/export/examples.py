"""A predict request with one example, made of the fields in `export.json`; it contains no data of clients."""

import contextlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from hetero_tf.base.errors import InputError
from hetero_tf.data.codecs import Field, build_fields
from hetero_tf.data.fields import input_names

SENTENCES = {"text": "the <mask> of the year", "next_word": "the end of the"}


def example_request(about: Mapping) -> dict[str, Any]:
    """Return the body of a predict request with one example.

    Args:
        about: Contents of `export.json`.

    Returns:
        {"signature_name", "instances": [example]}: a picture of a ring, a tone, a sentence, a row with the means of the
        training examples, or waves around these means.

    Raises:
        InputError: The fields are not those of an export.
    """
    signatures = about["signatures"]
    fields: tuple[Field, ...] = ()
    with contextlib.suppress(KeyError, TypeError, ValueError):
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
    return {"signature_name": signature, "instances": [_unwrap(dict(zip(input_names(fields), examples)))]}


def _unwrap(values):
    return values if len(values) > 1 else next(iter(values.values()))
