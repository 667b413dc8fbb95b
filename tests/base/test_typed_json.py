"""Values of JSON become dataclasses, or the error names the file and the key."""

import dataclasses
from typing import Annotated, Any, Literal

import pytest
from refusals import refusal

from hetero_tf.base.constraints import Range, Text
from hetero_tf.base.typed_json import Natural, NonNegative, from_json


@dataclasses.dataclass(frozen=True)
class Part:
    name: Annotated[str, Text(pattern="[a-z]+")]
    shape: tuple[Natural, ...] = ()


@dataclasses.dataclass(frozen=True)
class Whole:
    parts: list[Part]
    kind: Literal["a", 1]
    share: Annotated[float, Range(above=0, below=1)] | None
    values: dict[str, int | float | None]
    pair: tuple[int, str]
    flag: bool = False
    free: Any = None

    def __post_init__(self):
        if len(self.parts) > 2:
            raise ValueError("there are more than two parts")


GOOD = {
    "parts": [{"name": "x", "shape": [2, 3], "other": 5}, ["y"]],
    "kind": "a",
    "share": 0.5,
    "values": {"m": 1, "n": 1.5, "o": None},
    "pair": [1, "b"],
    "free": [{}],
}


def test_values_become_nested_objects():
    whole = from_json(Whole, GOOD, "f")
    assert whole.parts == [Part("x", (2, 3)), Part("y")] and whole.pair == (1, "b") and whole.free == [{}]
    assert repr(whole.values) == "{'m': 1, 'n': 1.5, 'o': None}" and whole.flag is False
    assert from_json(Whole, {**GOOD, "share": None, "kind": 1}, "f").share is None
    assert repr(from_json(NonNegative, 3, "f")) == "3.0"


WRONG = {
    "parts must be a list. Received: 5": {"parts": 5},
    "parts[1].name is missing": {"parts": [{"name": "x"}, {}]},
    "parts[0] must be a mapping. Received: 'x'": {"parts": ["x"]},
    "parts[0].name must be text like [a-z]+. Received: 'X'": {"parts": [{"name": "X"}]},
    "parts[0].shape[1] must be a number from 0. Received: -1": {"parts": [["x", [1, -1]]]},
    "parts[0].shape[0] must be a whole number. Received: True": {"parts": [["x", [True]]]},
    "parts[0].shape[0] must be a whole number. Received: 1.0": {"parts": [["x", [1.0]]]},
    "there are more than two parts": {"parts": [["x"]] * 3},
    "kind must be 'a', 1. Received: True": {"kind": True},
    "share must be a number above 0 below 1. Received: 1": {"share": 1},
    "share must be a number. Received: '0.5'": {"share": "0.5"},
    "share must be a number of at most 64 bits. Received: nan": {"share": float("nan")},
    "values must be a mapping. Received: [1]": {"values": [1]},
    "values.m must be a number. Received: []": {"values": {"m": []}},
    "pair must be a list of 2 items. Received: [1]": {"pair": [1]},
    "pair[1] must be text. Received: None": {"pair": [1, None]},
    "flag must be true or false. Received: 0": {"flag": 0},
}


@pytest.mark.parametrize("sentence", WRONG)
def test_errors_name_file_and_key(sentence):
    assert refusal(from_json, Whole, {**GOOD, **WRONG[sentence]}, "f", "; delete it") == f"f: {sentence}; delete it"


def test_hostile_values_and_names_are_shortened():
    for value in (10**400, -(10**400), 10**9000, "x" * 10**6, [[]] * 10**5):
        message = refusal(from_json, Whole, {**GOOD, "values": {"k\n" * 1000: value}}, "f")
        assert message.startswith("f: values.'k") and len(message) < 250 and "\n" not in message
