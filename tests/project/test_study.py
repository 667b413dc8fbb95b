"""The study on labels that follow devices: its recipes are valid, and its rates and tables follow from the runs."""

import hashlib
import math
import re
from dataclasses import replace
from pathlib import Path

import programs
import pytest
from programs import ROOT

from hetero_tf.sweeps.bench_rows import Row, SeedResult, compute_bands, read_row, write_row
from hetero_tf.sweeps.definition import expand, read

METHODS = 15


@pytest.fixture
def study():
    return programs.script("benchmarks/study.py")


def test_rates_are_means_over_the_seeds_of_finished_runs(study, write_run, tmp_path, capsys):
    best = {(0.0, 0.03): 60.0, (0.0, 0.1): 80.0, (1.0, 0.1): 85.0, (1.0, 0.3): 90.0}
    for (share, rate), value in best.items():
        keys = [
            f"optimizer.learning_rate={rate}",
            f"partition={{name: labels, clients: 4, per_client: 2, draw: consecutive, shuffled: {share}}}",
        ]
        for seed in range(3):
            values = [value + seed] if (rate, seed) == (0.3, 2) else [value + seed, value + seed, 1.0, 1.0]
            path = write_run(f"{rate}-{share}-{seed}", values, "name=heterofl", "rounds=4", f"seed={seed}", *keys)
            metrics = Path(path) / "metrics.jsonl"
            metrics.write_text(metrics.read_text().replace("global_accuracy", "validation_accuracy"))
    study.print_rates(tmp_path)
    assert capsys.readouterr().out.splitlines()[2:] == [
        "| heterofl | 0 | 0.03: 61.0, 0.1: 81.0 | 0.1 <- edge |",
        "| heterofl | 1 | 0.1: 86.0, 0.3: 90.5 | 0.3 <- edge |",
    ]


def test_differences_are_paired_by_seed(study, tmp_path):
    def row(method, share, values):
        metrics = [(seed, {"global_accuracy": value}) for seed, value in values.items()]
        runs = tuple(SeedResult(seed, 1, "", best, best, {}, {}) for seed, best in metrics)
        name, digest = f"{method}-partition.shuffled={share}", hashlib.sha256(b"").hexdigest()
        write_row(Row(1, "study", name, "", digest, {}, compute_bands(runs), runs), tmp_path / f"{name}.json")

    for share, plus in ((0.0, 0.0), (0.5, 1.0), (1.0, 2.0)):
        row("fedavg_narrow", share, {10: 50 + plus, 11: 60 + plus})
        row("heterofl", share, {10: 55 + plus, 11: 66 + plus})
    text = study.tables(study.results(tmp_path))
    assert "| fedavg_narrow | 55.0 ± 7.1 | 56.0 ± 7.1 | 57.0 ± 7.1 | **-2.0 (-2.0 to -2.0)** |" in text
    # The mean of 5 and 6 with the 97.5 % quantile of Student's t for one degree of freedom, 12.706, times 0.5.
    assert "| heterofl | +5.5 (-0.9 to +11.9) |" in text
    study.draw(study.results(tmp_path), tmp_path / "figure.png")
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("path", sorted((ROOT / "benchmarks" / "study").glob("*.yaml")), ids=lambda path: path.stem)
def test_sweeps_of_the_study_have_the_stated_numbers_of_runs(path):
    parts = read(path)
    # A recipe of each method is enough: rates and seeds change nothing that could be invalid.
    first = [{name: values[:1] for name, values in part.grid.items()} for part in parts]
    runs = expand([replace(part, grid=grid, seeds=part.seeds[:1]) for part, grid in zip(parts, first)], path.name)
    assert len(runs) >= METHODS and all(run.recipe.partition.name == "labels" for run in runs)
    count = sum(len(part.list) * len(part.seeds) * math.prod(map(len, part.grid.values())) for part in parts)
    assert f"# Runs: {count}. " in path.read_text()


ROWS = sorted((ROOT / "benchmarks" / "rows").glob("digits_*/*.json"))
METRICS = ("global_accuracy", "level_accuracy_c", "local_accuracy", "local_worst_decile")


def test_the_tables_of_methods_have_the_values_of_their_rows():
    """Cells after the rate: a mean over the seeds, most with the values by seed in brackets."""
    results = (ROOT / "benchmarks" / "RESULTS.md").read_text()
    tables = results[results.index("### Methods on the splits") : results.index("### Merges of adapters")]
    cells = {}
    for row in map(read_row, ROWS):
        values = [[run.best[name] for run in row.runs] for name in METRICS if name in row.runs[0].best]
        texts = [(f"{sum(each) / len(each):.1f}", " ".join(f"{value:.1f}" for value in each)) for each in values]
        rate = row.name.rpartition("=")[2].removeprefix("0").removesuffix(".0")
        cells[row.name] = {rate, *(text for mean, each in texts for text in (mean, f"{mean} ({each})"))}
    cell = re.compile(r"\| (?:worst tenth |level c |local )?([\d.]+(?: \(.*?\))?) (?=\|)")
    lines = map(cell.findall, tables.splitlines())
    matches = [[name for name, texts in cells.items() if texts.issuperset(line)] for line in lines if len(line) > 1]
    assert all(matches) and {name for names in matches for name in names} == cells.keys()
    assert programs.script("benchmarks/study.py").differences({path.parent for path in ROWS}) in tables


def test_the_page_on_labels_and_devices_has_the_tables_of_its_rows():
    study, page = programs.script("benchmarks/study.py"), (ROOT / "docs/guides/labels_and_devices.md").read_text()
    tables = study.tables(study.results(ROOT / "benchmarks/rows/labels_devices"))
    assert all(each in page for each in tables.split("\n\n"))


@pytest.mark.long
def test_a_row_of_the_results_is_reproduced():
    """Bit for bit on a processor like that of the row, and within its band on others."""
    (path,) = (path for path in ROWS if path.name.startswith("depth_fedavg"))
    run = programs.command("bench", "verify", path)
    assert run.returncode == 0, run.stdout + run.stderr
    assert re.search(r"seed 0: (equal, bit for bit|not equal, but all values are within the band)\n", run.stdout)
