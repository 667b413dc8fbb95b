"""benchmarks/check_results.py: its claims are on the pages, and it compares them with measured values."""

import json
import sys

import programs
from each import for_each
from programs import ROOT

benchmark = programs.script("benchmarks/check_results.py")


@for_each(benchmark.FIGURES)
def test_a_claim_is_once_on_its_page(name):
    assert benchmark.claimed(benchmark.FIGURES[name]) > 0


def test_commands_use_files_of_the_checkout():
    parts = {part for figure in benchmark.FIGURES.values() for command in figure.commands for part in command}
    files = {part for part in parts if part.startswith("benchmarks/")}
    assert len(benchmark.FIGURES) >= 10 and len(files) > 3 and all((ROOT / file).exists() for file in files)


def test_values_are_compared_commands_run_once_and_failures_are_reported(monkeypatch, capsys, tmp_path):
    (tmp_path / "page.md").write_text("It reaches 1,097.5 points.\n")
    monkeypatch.setattr(benchmark.checkout, "ROOT", tmp_path)

    def figure(*codes, band=1):
        commands = tuple(("-c", code) for code in codes)
        return benchmark.Figure("page.md", r"reaches ([\d,.]+) points", commands, lambda value: value["points"], band)

    write = "open('{folder}/value', 'a').write('1')"
    read = "print('{\"points\": %s}' % (1097.4 + len(open('{folder}/value').read())))"
    figures = {
        "near": figure(write, read),
        "far": figure(write, read, band=0.5),
        "silent": figure("raise SystemExit(3)"),
        "failed": figure("raise SystemExit('hetero_tf: no data\\ndata: x\\n  ^')"),
    }
    monkeypatch.setattr(benchmark, "FIGURES", figures)
    monkeypatch.setattr(sys, "argv", ["check_results.py"])
    assert benchmark.main() == 1
    header, *lines = capsys.readouterr().out.splitlines()
    assert header.split() == ["figure", "claimed", "measured", "band", "within", "seconds"]
    near, far, silent, reason, failed, error = lines
    assert near.split()[:5] == ["near", "1,097.5", "1,098.4", "1", "yes"]
    assert far.split()[:5] == ["far", "1,097.5", "1,098.4", "0.5", "no"]
    assert (silent.split()[2], reason) == (failed.split()[2], "    no output") == ("failed", "    no output")
    assert error == "    hetero_tf: no data"
    monkeypatch.setattr(sys, "argv", ["check_results.py", "--only", "near", "--json"])
    assert benchmark.main() == 0
    row = json.loads(capsys.readouterr().out)
    assert (row["figure"], row["measured"], row["within"]) == ("near", 1098.4, True)
