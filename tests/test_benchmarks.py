"""The benchmark scripts run and print what BUILD.md says they print; nothing here is timed."""

import argparse
import json
import subprocess
import sys
from pathlib import Path

import programs
import pytest
from programs import ROOT

from hetero_tf import recipe


def printed(script, *arguments):
    """What a benchmark script prints as JSON about the recipe tiny/digits."""
    command = [sys.executable, f"benchmarks/{script}.py", "--recipe", "tiny/digits", *arguments, "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_round_benchmark_prints_one_json_line():
    found = printed("round", "--levels=a-c", "--repeats=1", "--evaluate")
    assert found["traces"] == 1 and found["levels"] == "a-c" and found["steps"] > 0
    assert 0 < found["share_of_peak"] < 1
    assert found["examples_per_s"] > 0 and found["ms_per_step"] > 0 and found["peak_rss_mb"] > 100
    assert found["at_once"] == {"a": 1, "c": 1} and found["precision"] == "float32"
    assert all(found[name] > 0 for name in ("set_up_s", "trace_s", "plan_ms", "statistics_s", "evaluate_first_s"))
    assert 0 < found["cut_and_merge_ms"] < 1000 * found["first_round_s"]


@pytest.mark.long
def test_operations_of_a_step_add_up_to_about_its_time():
    found = printed("operations", "--levels=c")
    names = [row["operation"] for row in found["operations"]]
    assert any("Conv2D" in name for name in names) and len(names) == len(set(names))
    assert sum(row["ms_per_step"] for row in found["operations"]) == found["in_operations"] > 0
    convolutions = [row["calls_per_step"] for row in found["operations"] if row["operation"].endswith("BackpropInput")]
    assert 0 < sum(convolutions) <= 2


@pytest.mark.long
def test_scaling_benchmark_prints_a_row_for_each_possible_combination():
    # Three clients cannot have five active ones, so one combination of two is left.
    numbers = ("--population", "3", "30", "--active", "5", "--examples=4", "--repeats=1")
    found = printed("scaling", *numbers, "--levels", "c", "--set=client.epochs=2")
    assert (found["recipe"], found["examples"]) == ("tiny/digits", 4)
    (row,) = found["rows"]
    assert (row["population"], row["active"], row["levels"]) == (30, 5, "c")
    # Four examples are one batch of five at most, in each of two epochs.
    assert row["steps"] == 5 * 2
    assert 0 < row["round_s"] < row["first_round_s"]
    assert abs(row["ms_per_step"] * row["steps"] / 1000 - row["round_s"]) < 1e-9
    assert row["plan_ms"] > 0 and row["set_up_s"] > 0 and row["rss_mb"] > 100


def test_the_comparison_of_methods_asks_for_recipes_that_load():
    benchmark = programs.script("benchmarks/methods.py")
    assert len(benchmark.methods()) >= 17
    for data in benchmark.DATA:
        args = argparse.Namespace(data=data, set=["rounds=7"], data_dir="somewhere", jobs=2)
        for method in benchmark.methods():
            line = benchmark.command(args, method, 3, Path("folder"))
            overrides = [part.removeprefix("--set=") for part in line if part.startswith("--set=")]
            (file,) = (part.removeprefix("--recipe=") for part in line if part.startswith("--recipe="))
            loaded = recipe.load(file, overrides)
            assert (loaded.name, loaded.seed, loaded.rounds) == (method, 3, 7)
            assert loaded.model.initial_weights == ("fedavg-3" if method == "lg_fedavg" else None)
            assert {"--run_dir=folder", "--data_dir=somewhere"} <= set(line)


TORCH_LOOP = ROOT / "benchmarks" / "torch_loop.py"


def test_the_yardstick_says_how_to_install_torch_where_it_is_missing():
    # An entry of None makes the import fail, also where somebody has PyTorch.
    hide = "import runpy, sys; sys.modules['torch'] = None; runpy.run_path(sys.argv[1], run_name='__main__')"
    done = programs.python(hide, TORCH_LOOP)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "torch_loop.py needs PyTorch, which is not installed here; put it into an environment of its own: "
        "python3 -m venv torch_env && torch_env/bin/pip install torch numpy, then "
        "torch_env/bin/python benchmarks/torch_loop.py\n"
    )


def test_the_yardstick_compiles_and_nothing_of_the_project_asks_for_torch():
    compile(TORCH_LOOP.read_text(encoding="utf-8"), str(TORCH_LOOP), "exec")
    assert "torch" not in (ROOT / "setup.py").read_text(encoding="utf-8")
