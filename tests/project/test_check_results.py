"""benchmarks/check_results.py: its claims are on the pages, and it compares them with measured values."""

import json
import sys

import programs
import pytest
from each import for_each
from programs import ROOT

benchmark = programs.script("benchmarks/check_results.py")


def prints(code):
    """A command that runs Python code."""
    return ("-c", code)


def run(monkeypatch, capsys, figures, *arguments):
    """The exit status and the output for a page with the sentence `It reaches 1,097.5 points.`"""
    monkeypatch.setattr(benchmark, "FIGURES", figures)
    monkeypatch.setattr(sys, "argv", ["check_results.py", *arguments])
    return benchmark.main(), capsys.readouterr().out


@pytest.fixture
def figure(monkeypatch, tmp_path):
    """A function that makes a `Figure` of a page, with commands and a band."""
    (tmp_path / "page.md").write_text("It reaches 1,097.5 points.\n")
    monkeypatch.setattr(benchmark.checkout, "ROOT", tmp_path)
    claim = r"reaches ([\d,.]+) points"
    return lambda *commands, band=1: benchmark.Figure("page.md", claim, commands, lambda value: value["points"], band)


@for_each(benchmark.FIGURES)
def test_a_claim_is_once_on_its_page(name):
    assert benchmark.claimed(benchmark.FIGURES[name]) > 0


def test_commands_use_files_of_the_checkout():
    parts = {part for figure in benchmark.FIGURES.values() for command in figure.commands for part in command}
    files = {part for part in parts if part.startswith("benchmarks/")}
    assert len(benchmark.FIGURES) >= 10 and len(files) > 3 and all((ROOT / file).exists() for file in files)


def test_values_are_compared_with_their_band(monkeypatch, capsys, figure):
    result = prints("print('{\"points\": 1098.4}')")
    status, output = run(monkeypatch, capsys, {"near": figure(result), "far": figure(result, band=0.5)})
    header, near, far = output.splitlines()
    assert header.split() == ["figure", "claimed", "measured", "band", "within", "seconds"] and status == 1
    assert near.split()[:5] == ["near", "1,097.5", "1,098.4", "1", "yes"]
    assert far.split()[:5] == ["far", "1,097.5", "1,098.4", "0.5", "no"]


def test_commands_share_a_folder_and_run_once(monkeypatch, capsys, figure):
    write = prints("import sys; open('{folder}/value', 'a').write('1')")
    read = prints("import json; print(json.dumps({'points': 1096.5 + len(open('{folder}/value').read())}))")
    status, output = run(monkeypatch, capsys, {"one": figure(write, read), "two": figure(write, read)}, "--json")
    rows = [json.loads(line) for line in output.splitlines()]
    assert status == 0 and [(row["figure"], row["measured"], row["within"]) for row in rows] == [
        ("one", 1097.5, True),
        ("two", 1097.5, True),
    ]


def test_a_failed_command_is_outside_and_the_others_run(monkeypatch, capsys, figure):
    figures = {
        "silent": figure(prints("raise SystemExit(3)")),
        "failed": figure(prints("raise SystemExit('hetero_tf: no data\\ndata: x\\n  ^')")),
        "good": figure(prints("print('{\"points\": 1097}')")),
    }
    status, output = run(monkeypatch, capsys, figures, "--json")
    silent, failed, good = map(json.loads, output.splitlines())
    assert (silent["within"], silent["error"]) == (False, "no output")
    assert status == 1 and (failed["measured"], failed["error"], good["within"]) == (None, "hetero_tf: no data", True)
    assert "  failed " in benchmark.shown(failed) and benchmark.shown(failed).endswith("\n    hetero_tf: no data")
