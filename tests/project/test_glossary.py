"""recipes/GLOSSARY.md explains every word that heads a line or a column of the output."""

import re
from pathlib import Path

import programs
import pytest

from hetero_tf.base.metrics import all_metrics, format_short
from hetero_tf.reports import summaries
from hetero_tf.reports.summaries import Moment
from hetero_tf.reports.tables import to_table
from hetero_tf.runs.history import gather, grouped
from hetero_tf.runs.published import PublishedValue

GLOSSARY = Path(__file__).resolve().parents[2] / "recipes" / "GLOSSARY.md"
TEXT = GLOSSARY.read_text("utf-8")
ROWS = re.findall(r"^\| (.+?) \| (.+) \|$", TEXT, re.MULTILINE)
TERMS = {
    term.strip("` ").lower() for words, _ in ROWS for term in re.split(r", | \(|\)", words.replace("`", "")) if term
}
TERMS |= {term.strip().lower() for words, _ in ROWS for term in words.replace("`", "").split(", ")}
# `explain` and docs/reference/metrics.md have the metrics.
TERMS |= set(all_metrics())


def heads(table):
    """The heads of the columns of an aligned table."""
    return re.split(r"\s{2,}", table.splitlines()[0].strip())


@pytest.mark.long
def test_every_word_of_a_run_is_explained(tmp_path):
    programs.recipe_file(tmp_path)
    run = programs.shared().run("--recipe", "small.yaml", "--run_dir", "run", "--verbose", cwd=tmp_path)
    assert run.code == 0, run.err
    begins = set(re.findall(r"^([a-z]+):", run.out, re.MULTILINE))
    (phases,) = re.findall(r"^ready in [\d.]+ s: (.*)$", run.out, re.MULTILINE)
    (line,) = re.findall(r"^round 4/4  (.*)$", run.out, re.MULTILINE)
    short = format_short("validation_accuracy", 95.6)
    names = {part.split()[0] for part in re.split(r"\s{2,}", line) if re.match(r"[a-z_]+ [\d.]", part)}
    names |= set(short.partition(" 95.6 %")[0].split())
    assert {"data", "engine", "last", "next"} <= begins and {"loss", "global_accuracy"} <= names
    words = begins | names | {re.sub(r" [\d.]+ s$", "", phase) for phase in phases.split(", ")}
    assert sorted(words - TERMS) == []
    assert {"together", "one client at a time", "threads", "kernel threads", "examples/s", "tokens/s"} <= TERMS


def test_every_column_of_compare_is_explained(write_run):
    more = {"sizes": {"a": 9}, "seconds": 1.0, "device_seconds": 60}
    runs, _ = gather([write_run(name, [10.0], f"name={name}", **more) for name in ("one", "two")])
    value = PublishedValue("x/y", "global_accuracy", 1.0, "paper", "setting", {"name": "one"})
    rows = summaries.compare(grouped(runs), [], [5.0], [Moment("1", 1), Moment("3h", seconds=3.0)], [value])
    columns = {head.replace("global_accuracy", "METRIC") for head in to_table(rows, []).heads}
    for pattern, text in (("at 1$", "at ROUND"), ("at 3h$", "at TIME"), ("to 5:", "to VALUE:")):
        columns = {re.sub(pattern, text, head) for head in columns}
    # "METRIC to VALUE: MB" is the column "to VALUE: MB" of a metric.
    words = {head if re.search(" (at|last|best)", head) else head.removeprefix("METRIC ") for head in columns}
    assert len(words) > 12 and sorted({word.lower() for word in words} - TERMS) == []


@pytest.mark.long
@pytest.mark.parametrize("overrides", [[], ["levels.budgets={a: 1, b: 1/2}", "client.stages=blockwise"]])
def test_every_column_of_describe_is_explained(tmp_path, overrides):
    programs.recipe_file(tmp_path)
    sets = [f"--set={override}" for override in overrides]
    run = programs.shared().run("describe", "--recipe", "small.yaml", "--all", *sets, cwd=tmp_path)
    assert run.code == 0, run.err
    tables = [block for block in run.out.split("\n\n") if re.search(r"\S\s{2,}\S", block.splitlines()[0])]
    assert len(tables) >= (4 if overrides else 3)
    words = {head.lower() for table in tables for head in heads(table)}
    words |= {re.split(r"\s{2,}", line)[0] for line in tables[-2].splitlines()[1:]}
    words = {re.sub(r"split over \d+ clients", "split over clients", word) for word in words} - {"a", "b"}
    assert sorted(words - TERMS) == []
