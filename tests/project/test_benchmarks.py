"""The benchmark scripts run and print the documented values; nothing is timed. Those that train are long tests."""

import itertools
import json
import re
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import programs
import pytest
from each import for_each
from programs import ROOT

from hetero_tf.planning.privacy_account import Sampling, calibrate


def printed(script, *arguments):
    """The JSON output of a benchmark script for the recipe tiny/digits."""
    words = ["--recipe", "tiny/digits", *arguments, "--json"]
    run = programs.shared().run(*words, script=f"benchmarks/{script}.py", cwd=ROOT)
    assert run.code == 0, run.err
    return json.loads(run.out)


# Arguments of the benchmarks of tiny/digits, values of their line, and its numbers, which are positive.
BENCHMARKS = {
    "round": (
        ("--levels=a-c", "--repeats=1", "--evaluate", "--live", "--command", "--policies"),
        {"traces": 1, "levels": "a-c", "at_once": {"a": 1, "c": 1}, "precision": "float32"},
        "steps share_of_peak examples_per_s ms_per_step peak_rss_mib set_up_s trace_s plan_ms statistics_s "
        "evaluate_first_s cut_and_merge_ms",
    ),
    "operations": (("--levels=c",), {}, "in_operations"),
    # Three clients cannot have five active ones, so one combination of two is left.
    "scaling": (
        ("--population", "3", "30", "--active", "5", "--examples=4", "--repeats=1", "--levels", "c"),
        {"recipe": "tiny/digits", "examples": 4},
        "",
    ),
    "device": (("--levels", "c", "--steps=4"), {"recipe": "tiny_digits", "level": "c"}, "parameters file_bytes ms_per_step peak_rss_mib"),
}  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("script", BENCHMARKS)
def test_a_benchmark_prints_one_json_line(script):
    if script == "device":
        pytest.importorskip("ai_edge_litert")
    arguments, values, numbers = BENCHMARKS[script]
    result = printed(script, *arguments)
    assert values.items() <= result.items() and all(result[name] > 0 for name in numbers.split())
    if script == "round":
        assert len(result["of_wait"]) == 6 and all(ratio > 0 for ratio in result["of_wait"].values())
        assert result["command_ratio"] > 0
    if script == "operations":
        assert sum(row["ms_per_step"] for row in result["operations"]) == result["in_operations"]
    if script == "scaling":
        (row,) = result["rows"]
        assert (row["population"], row["active"], row["levels"], row["steps"]) == (30, 5, "c", 5)
    if script == "device":
        assert result["loss_difference"] < 1e-4 and result["weights_difference"] < 1e-3


@pytest.mark.long
def test_convolutions_benchmark_compares_all_forms(monkeypatch, capsys):
    benchmark = programs.script("benchmarks/convolutions.py")
    monkeypatch.setattr(sys, "argv", ["convolutions.py", "--shapes=8x32x32", "--seconds=0", "--json"])
    benchmark.main()
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["form"], row["used"]) for row in rows] == [("convolution", False), ("taps", False), ("winograd", True)]
    assert all(row["ms"] > 0 and 0 < row["error"] < 1e-5 for row in rows) and rows[0]["ratio"] == 1


@pytest.mark.long
def test_new_recipes_benchmark_trains_an_unedited_recipe(monkeypatch, capsys, tmp_path):
    benchmark = programs.script("benchmarks/new_recipes.py")

    def write(file, folder):
        rows = [(index % 9, index % 7, "xy"[index % 9 > 4]) for index in range(90)]
        return benchmark.write_csv(folder / "rows.csv", [("a", "b", "class"), *rows])

    trials = {"rows": benchmark.Trial("hetero_tf", "", write), "lacking": benchmark.Trial("no_such_package", "", write)}
    monkeypatch.setattr(benchmark, "TRIALS", trials)
    monkeypatch.setattr(sys, "argv", ["new_recipes.py", str(tmp_path), "--json"])
    assert benchmark.main() == 0
    output = capsys.readouterr()
    row = json.loads(output.out)
    assert (row["data"], row["rows"], row["task"], row["metric"]) == ("rows", 90, "classification", "accuracy")
    assert row["beats"] and row["score"] > row["baseline"] > 50 and row["columns"] == "3"
    assert output.err == "lacking: skipped, no_such_package is not installed\n"


@pytest.mark.long
def test_first_round_benchmark_prints_the_costs_of_a_recipe():
    command = [sys.executable, "benchmarks/first_round.py", "tiny/digits", "--set=levels.mix=a", "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    costs = json.loads(done.stdout)["recipes"]["tiny/digits"]
    assert costs["all_s"] == pytest.approx(costs["build_s"] + costs["trace_s"] + costs["first_call_s"])
    assert min(costs.values()) > 0 and 1000 < costs["nodes"] < 10_000 and 100 < costs["peak_mib"] < 2500


@pytest.mark.long
def test_exported_rounds_have_all_arguments_and_share_large_ones(tmp_path):
    benchmark = programs.script("benchmarks/device_round.py")
    words = [tmp_path, "--recipes=tiny/digits", "--levels", "a", "c"]
    done = subprocess.run([sys.executable, "benchmarks/device_round.py", "export-all", *words], cwd=ROOT)
    assert done.returncode == 0
    abouts = [json.loads((tmp_path / f"tiny_digits-{level}/about.json").read_text()) for level in "ac"]
    assert [(about["levels"], about["clients"], about["steps"]) for about in abouts] == [("a", 3, 9), ("c", 3, 9)]
    arguments = benchmark.read_arguments(tmp_path / "tiny_digits-a", abouts[0]["draws"], abouts[0]["shared"])
    assert arguments[1].shape == (1500, 8, 8, 1) and len(abouts[0]["draws"]) == 1
    value = np.arange(20_000)
    names = {benchmark.write_once(tmp_path / "arrays", each) for each in (value, value.copy(), value + 1)}
    assert len(names) == 2
    shared = dict.fromkeys([str(len(arguments))], benchmark.write_once(tmp_path / "arrays", value))
    more = benchmark.read_arguments(tmp_path / "tiny_digits-a", abouts[0]["draws"], shared)
    assert (more[-1] == value).all()


def test_the_table_of_devices_stops_in_time_and_continues(tmp_path, monkeypatch, capsys):
    benchmark = programs.script("benchmarks/device_round.py")
    for name, level in itertools.product(("mnist", "tiny"), "abe"):
        (tmp_path / f"{name}-{level}").mkdir()
        about = {"recipe": name, "levels": level, "clients": 2, "steps": 12}
        (tmp_path / f"{name}-{level}" / "about.json").write_text(json.dumps(about))
    commands, broken = [], {"tiny-e"}

    def measure(command, seconds):
        if seconds is None:
            return "card"
        words = list(map(str, command[1:]))
        commands.append(" ".join(words[words.index("--json") :]).replace(f"{tmp_path}/", ""))
        if broken & {words[-1].rpartition("/")[2]}:
            return {"error": "exit code -6: abort"}
        return {"ms_per_step": 2.0} if "--way" in words else {"ms_per_step": 1.0, "kernels_per_step": 85, "jax": "1"}

    monkeypatch.setattr(benchmark, "measure", measure)
    monkeypatch.setattr(benchmark.importlib.util, "find_spec", lambda name: name)
    args = SimpleNamespace(folder=tmp_path, results=None, repeats=5, minutes=0)
    assert benchmark.table(args) == 0 and not commands
    assert "Not measured: mnist-a hetero_tf, mnist-a stack, mnist-e hetero_tf," in capsys.readouterr().out
    args.minutes = 5
    assert benchmark.table(args) == 0
    first, output = len(commands), capsys.readouterr().out
    assert commands[0] == "--json --repeats 5 mnist-a"
    peer = "--json --tf32 --model mnist --levels a --way stack --repeats 5 --clients 2 --steps 6 --device cuda"
    assert commands[1] == peer and sum("loop" in each for each in commands) == 2
    assert "| mnist a | 1 | 2 | 2 | 0.50 | 85 | card | JAX 1 |" in output
    assert "tiny-e hetero_tf: exit code -6: abort" in output and "Not measured: tiny-e hetero_tf (failed)" in output
    broken.clear()
    assert benchmark.table(args) == 0 and commands[first:] == ["--json --repeats 5 tiny-e"]
    assert "All cells were measured." in capsys.readouterr().out


def test_a_cell_ends_with_its_values_an_error_or_its_time():
    measure = programs.script("benchmarks/device_round.py").measure
    for code, expected in (
        ("print('x'); print('{\"a\": 1}')", {"a": 1}),
        ("raise SystemExit('no card')", {"error": "exit code 1: no card"}),
        ("pass", {"error": "exit code 0: no message"}),
        ("import time; time.sleep(600)", None),
    ):
        assert measure([sys.executable, "-c", code], 30 if expected else 0.5) == expected


# The module that each benchmark of another framework needs, what it reports without it, and the packages to install.
PEERS = {
    "torch_loop": ("torch", "PyTorch, which is not installed; install it", "torch", "torch numpy"),
    "flower_rounds": ("flwr", "Flower, Ray and PyTorch; install them", "torch", "torch numpy 'flwr[simulation]'"),
    "fedjax_rounds": (
        *("fedjax", "FedJAX, which is not installed; install it", "jax"),
        "fedjax 'jax<0.4.26' 'jaxlib<0.4.26' 'scipy<1.13' 'numpy<2' 'dm-haiku<0.0.13'",
    ),
}


@for_each(PEERS)
def test_a_benchmark_of_another_framework_reports_how_to_install_it(name):
    module, needed, env, packages = PEERS[name]
    # An entry of None makes the import fail even if the module is installed.
    hide = f"import runpy, sys; sys.modules[{module!r}] = None; runpy.run_path(sys.argv[1], run_name='__main__')"
    done = programs.python(hide, ROOT / "benchmarks" / f"{name}.py")
    install = f"python3 -m venv {env}_env && {env}_env/bin/pip install {packages}, then {env}_env/bin/python"
    message = f"{name}.py needs {needed} in a separate environment: {install} benchmarks/{name}.py\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", message)


def test_shards_of_the_authors_split_are_all_examples_of_a_label(tmp_path):
    """Without PyTorch: its draws are numbers of shards, and the cohorts of a file."""
    draws = programs.script("benchmarks/torch_draws.py")
    labels = np.repeat(np.arange(10), draws.TRAIN)
    shards = [draws.shard_ids(labels, 3, shard) for shard in range(draws.SHARDS)]
    assert [len(ids) for ids in shards] == [draws.shard_size(draws.TRAIN[3], shard) for shard in range(draws.SHARDS)]
    assert sorted(np.concatenate(shards)) == np.flatnonzero(labels == 3).tolist()
    np.savez(tmp_path / "draws.npz", cohorts=[[4, 2], [0, 1]])
    assert draws.choose(SimpleNamespace(round=1), 2, None, path=str(tmp_path / "draws.npz")).tolist() == [0, 1]


@pytest.mark.long
def test_one_client_costs_what_describe_says():
    import tiny

    module = programs.script("benchmarks/scaling_plan.py")
    process = tiny.shared(tiny.DENSE)
    client = module.one_client(process)
    shares = process.recipe.levels.divided(1)
    assert client.up == pytest.approx(
        sum(shares[name] * cost.bytes_up for name, cost in zip("abc", process.client_costs))
    )
    size = sum(value.numpy().nbytes for value in process.initialize().weights.values())
    assert client.model == 3 * size and client.table == 0 and min(client.merge, client.plan) > 0


@pytest.mark.long
def test_images_on_disk_and_in_memory_give_the_same_numbers():
    command = [sys.executable, "benchmarks/on_disk.py", "--examples", "2000", "--size=8", "--rounds=1"]
    results = []
    for more in ([], ["--in_memory"]):
        done = subprocess.run([*command, *more], cwd=ROOT, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr
        results.append(json.loads(done.stdout))
    assert all(one["traces"] == 1 and one["peak_rss_mib"] > 100 for one in results)
    same = ("examples", "gib", "loss", "global_loss", "sha256")
    assert [results[0][name] for name in same] == [results[1][name] for name in same]


def results_table(head):
    """The header and the rows of a table of RESULTS whose first line begins with `head`."""
    text = (ROOT / "benchmarks" / "RESULTS.md").read_text("utf-8")
    first, _, *rows = (head + text.split(head)[1].partition("\n\n")[0]).splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in (first, *rows)]


def test_results_have_the_tables_of_the_packed_runs():
    text = (ROOT / "benchmarks" / "RESULTS.md").read_text("utf-8")
    tables = programs.script("benchmarks/paper_tables.py")
    assert f"{len(tables.narrow_runs())} of its 48 runs" in text
    assert [name for name in tables.TABLES if f"\n\n{tables.table(name)}\n\n" not in text] == []


@pytest.mark.long
def test_cells_of_the_papers_that_were_run_are_those_of_the_rows():
    pictures, packed = (programs.script(f"benchmarks/{name}.py") for name in ("pictures", "packed"))
    _, *table = results_table("| table or figure | setting |")
    names = ["MNIST IID", "MNIST two labels", "CIFAR-10 IID", "CIFAR-10 two labels", "WikiText-2"]
    sizes = pictures.SIZES | {"CIFAR-10 two labels": ("", "heterofl_table8", "global_accuracy")}
    cells = [packed.mixes_of(sizes[name][1], name, sizes[name][2]) for name in names]
    for number, setting in ((4, "MNIST IID"), (4, "CIFAR-10 IID"), (5, "MNIST two labels")):
        settings = [f"{setting}; norm {norm}" for norm in pictures.NORMS]
        norms = packed.cells_of(f"heterofl_table{number}", settings, "global_accuracy")
        cells.append({key: cell for key, cell in norms.items() if key[1] == "e"})
    counts = [(len(each), sum(bool(runs) for _, runs in each.values())) for each in cells]
    counts.append((9, sum(run.keys["levels.assignment"] == "fixed" for run in packed.narrow_runs())))
    assert [(int(row[2].split()[0]), int(row[3])) for row in table[: len(counts)]] == counts
    assert {row[3] for row in table[len(counts) :] if row[0] != "FeDepth 1"} == {"0"}


@pytest.mark.long
def test_results_of_private_runs_are_those_of_their_rows():
    """Of each level, mean and range over seeds and the ratio to the runs without privacy; and no budget is exceeded."""
    packed, (_, *table) = programs.script("benchmarks/packed.py"), results_table("| runs | epsilon | noise |")
    assert programs.script("benchmarks/paper_tables.py").privacy_table() in (ROOT / "benchmarks/RESULTS.md").read_text()
    runs = packed.packed_rows("privacy_mnist")
    assert len(runs) == 3 * len(table)
    for name, budget, noise, *cells in table:
        names = (name, re.sub("epsilon_.|clip_only|open.*", "open", name))
        for level, text, ratio in zip("abc", cells[::2], cells[1::2]):
            values, others = (packed.last_by_seed(runs, each, f"level_accuracy_{level}") for each in names)
            if values:
                assert text == f"{np.mean(values):.1f} ({min(values):.1f} to {max(values):.1f})", name
                assert ratio == f"{np.mean(values) / np.mean(others):.3f}", name
            assert (text == "-") == (not values)
        if budget != "-":
            pytest.importorskip("dp_accounting", reason="needs the extra `privacy`, dp-accounting")
            assert max(packed.last_by_seed(runs, name, "epsilon")) <= float(budget)
            assert f"{calibrate(Sampling(1000, 100, 'poisson'), float(budget), 1e-4, 100):.3f}" == noise
