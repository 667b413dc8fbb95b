"""A trace gives each client the device of its row; errors name the file, the line and the column."""

import math

import numpy as np
import pytest
import tiny
from refusals import refusal

from hetero_tf.planning.fleets.device_table import memory_bytes, read_trace
from hetero_tf.planning.fleets.devices import devices_of, is_available
from hetero_tf.recipe.schema import Fleet

HEADER = "gflops,memory,down_mbit,hours\n"


@pytest.fixture
def write(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def write_trace(text):
        read_trace.cache_clear()
        (tmp_path / "t.csv").write_text(text)
        return Fleet(trace="t.csv")

    return write_trace


def devices(fleet, count):
    return devices_of(fleet, 0, np.arange(count), clients=count)


def test_each_client_has_the_device_of_its_row(write):
    fleet = write(HEADER + "20,400 MiB,8,\n2,,,22-7;12-13.5\n20,400 MiB,8,\n")
    several = devices(fleet, 3)
    assert several.kind.tolist() == [0, 1, 0]
    assert several.speed.tolist() == [2e10, 2e9, 2e10]
    assert several.memory.tolist() == [400 * 2**20, math.inf, 400 * 2**20]
    assert several.down.tolist() == [1e6, math.inf, 1e6]
    assert several.dropout.tolist() == [0, 0, 0]
    assert is_available(fleet, 0, np.arange(3), 8 * 3600, clients=3).tolist() == [True, False, True]


@pytest.mark.parametrize(
    ("text", "expected"), [("400 MiB", 400 * 2**20), ("1.5GiB", 1.5 * 2**30), ("2 GiB", 2**31), (None, math.inf)]
)
def test_memory_is_in_mebibytes_also_in_the_older_spelling(text, expected):
    assert memory_bytes(text) == expected


def test_clients_may_be_in_any_order(write):
    assert devices(write("seconds_per_step,client\n1,2\n2,0\n3,1\n"), 3).seconds_per_step.tolist() == [2, 3, 1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "t.csv: cannot be parsed as CSV: No columns to parse from file"),
        (HEADER, "t.csv: must have a row for each client from 0 to 0; client 0 is missing"),
        ("gflop\n1\n", "t.csv:1: gflop: unknown column; did you mean 'gflops'?"),
        ("share\n1\n", "t.csv:1: share: unknown column; known: charging, client, down_mbit, "),
        ("gflops,gflops\n1,1\n", "t.csv:1: gflops.1: unknown column; did you mean 'gflops'?"),
        (HEADER + "1,,,\n2,,,,\n", "t.csv: cannot be parsed as CSV: Error tokenizing data. C error: Expected 4 fields in"),
        (HEADER + "1,,,\n0,,,\n", "t.csv:3: gflops: too small; must be a number above 0 "),
        (HEADER + "1,,,\nnan,,,\n", "t.csv:3: gflops: wrong type; must be a number above 0 "),
        (HEADER + "1_0,,,\n", "t.csv:2: gflops: wrong type; must be a number above 0 "),
        (HEADER + "1,4 KB,,\n", "t.csv:2: memory: not allowed; must be "),
        (HEADER + "1,,,22-25\n", "t.csv:2: hours: must be times of two different hours from 0 to 24, such as 22-7;12"),
        (HEADER + "1,,,x\n", "t.csv:2: hours: must be times of two different hours from 0 to 24, such as 22-7;12"),
        (HEADER + ",400 MiB,,\n", "t.csv:2: local steps need a time; fill in seconds_per_step, gflops or both"),
        ("gflops,client\n1,0\n1,2\n", "t.csv: must have a row for each client from 0 to 1; client 1 is missing"),
    ],
)  # fmt: skip
def test_errors(write, text, message):
    assert refusal(devices, write(text), 1).startswith(message)


def test_a_missing_file(write):
    assert refusal(devices, Fleet(trace="no.csv"), 1).startswith("no.csv: could not read: No such file")


def test_a_recipe_needs_a_row_for_each_client(write):
    write("gflops\n1\n1\n")
    key = "--set fleet={trace: t.csv}: fleet.trace: "
    assert refusal(tiny.process, tiny.DENSE, "fleet={trace: t.csv}") == (
        f"{key}t.csv has rows for 2 clients, but 4 are registered; add rows. Received: 't.csv'"
    )
    write("gflop\n1\n")
    assert refusal(tiny.process, tiny.DENSE, "fleet={trace: t.csv}").startswith(f"{key}t.csv:1: gflop: unknown column")
