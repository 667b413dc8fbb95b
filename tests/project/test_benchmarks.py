"""The benchmark scripts run and print the documented values; nothing is timed. Those that train are long tests."""

import itertools
import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import programs
import pytest
from each import for_each
from programs import ROOT

from hetero_tf import recipe
from hetero_tf.planning.privacy_account import Sampling, calibrate
from hetero_tf.sweeps.definition import SweepRun


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


def compared(*words):
    benchmark = programs.script("benchmarks/methods.py")
    return benchmark, benchmark.parse(["folder", *words])


@for_each(itertools.product(("mnist", "cifar10", "cifar10_unequal"), ("published", "controlled")))
def test_the_comparison_of_methods_uses_valid_recipes(case):
    data, mode = case
    benchmark, args = compared("--data", data, "--mode", mode, "--rounds=8", "--data_dir=somewhere", "--jobs=2")
    assert len(benchmark.methods()) >= 20 and "--data_dir=somewhere" in benchmark.program(args).flags
    shared = set()
    for method in benchmark.methods():
        run = benchmark.planned(args, method, 3, {method: 0.3})
        loaded = run.recipe
        assert (loaded.name, loaded.seed, loaded.rounds, loaded.optimizer.learning_rate) == (method, 3, 8, 0.3)
        assert benchmark.folder_of(args).of(run) == Path(f"folder/{data}/{mode}/{method}-rate0.3-3")
        shared.add((loaded.client.loss.name, loaded.round.label_rows, loaded.partition.options.get("held_out")))
    assert (len(shared) == 1) == (mode == "controlled")
    assert mode == "published" or shared == {("cross_entropy", "all", 0.1)}


def test_unshared_settings_follow_the_number_of_rounds():
    benchmark, args = compared("--rounds", "40")
    loaded = benchmark.planned(args, "scalefl", 0, {}).recipe
    assert loaded.client.coupling.options["from_round"] == 11
    loaded = benchmark.planned(args, "depthfl", 0, {}, pilot=True).recipe
    assert (loaded.client.coupling.options["ramp"], loaded.rounds, loaded.schedule.options["rounds"]) == (7, 13, 13)
    assert (loaded.evaluate.every, loaded.evaluate.levels) == (13, "global")
    assert benchmark.unshared_settings("fedepth_mkd", 40) == ("levels.budgets=surplus",)


def test_lg_fedavg_starts_from_the_run_of_fedavg_with_the_same_seed():
    benchmark, args = compared("--methods", "heterofl", "lg_fedavg")
    assert benchmark.ordered(args) == ["fedavg", "heterofl", "lg_fedavg"]
    rates = {"fedavg": 0.1, "lg_fedavg": 0.03}
    loaded = benchmark.planned(args, "lg_fedavg", 2, rates).recipe
    first = benchmark.folder_of(args).of(benchmark.planned(args, "fedavg", 2, rates))
    assert loaded.model.initial_weights == str(first)


def test_a_repeated_method_is_the_noise_floor():
    benchmark, args = compared("--noise", "fedavg", "--mode", "published")

    def row(mean, **over):
        values = dict.fromkeys((*benchmark.METRICS, "bytes", "train_flops"), {"mean": mean, "spread": 0.5, "of": 3})
        return {"rate": 0.1, "seeds": 3, "over": over, "values": values}

    rows = {"fedavg": row(40.0), "fedavg again": row(43.0), "fedepth": row(50.0), "splitmix": row(45.0)}
    rows["depthfl"] = row(60.0, a="167.3", d="240.0")
    floor = "noise floor: fedavg twice, under other seeds, differs by 3.0 in Global; means of 3 seeds"
    assert benchmark.noise_floor(args, rows).startswith(floor)
    lines = benchmark.table(args, rows).splitlines()
    names = ["depthfl", "fedavg", "fedavg again", "fedepth", "splitmix"]
    assert [line.split(" | ")[0] for line in lines[2:]] == [f"| {name}" for name in names]
    assert "| 50.0 ± 0.5 |" in lines[5] and "| within |" in lines[5] and "| a 167 %, d 240 % |" in lines[2]


@pytest.mark.long
def test_a_row_has_the_levels_over_their_budgets(tmp_path):
    benchmark, args = compared()
    args.folder, path = tmp_path / "runs", str(programs.recipe_file(tmp_path))
    overrides = ("levels.budgets={a: 1, b: 0.1}", "rounds=1")
    (folder,) = benchmark.do(args, [SweepRun("run", path, overrides, recipe.load(path, overrides))])
    row = benchmark.row_of([folder], 0.1)
    assert row["over"].keys() == {"b"} and 400 < float(row["over"]["b"]) < 600 and row["seeds"] == 1


@pytest.mark.long
@pytest.mark.parametrize(("data", "rounds", "shape"), [("mnist", "18", (28, 28, 1)), ("cifar10", "12", (32, 32, 3))])
def test_shares_of_budgets_in_the_results_are_those_of_the_settings(data, rounds, shape):
    from hetero_tf.models.costs import memory  # here, as it imports TensorFlow
    from hetero_tf.models.costs.level_costs import LevelCosts
    from hetero_tf.models.family import build_family

    benchmark, args = compared("--data", data, "--rounds", rounds)
    tables = (ROOT / "benchmarks" / "RESULTS.md").read_text("utf-8").split("| method | rate |")[1:]
    rows = [line.split(" | ") for line in tables[data != "mnist"].partition("\n\n")[0].splitlines()]
    assert len(rows) == {"mnist": 25, "cifar10": 7}[data]
    for row in rows[2:]:
        loaded = benchmark.planned(args, row[0].removeprefix("| ").partition(",")[0], 0, {}).recipe
        fitted = memory.fit_levels(loaded, shape, shape, 10)
        over = memory.over_budget(LevelCosts(build_family(fitted, shape, shape, 10), 10))
        expected = ", ".join(f"{level} {100 * share:.0f} %" for level, share in over.items()) or "within"
        assert row[rows[0].index("of budget") + 2] == expected, row


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


def test_rows_of_large_populations_are_consistent():
    module = programs.script("benchmarks/scaling_plan.py")
    client = module.OneClient(down=2e6, up=1e6, table=100.0, index=50.0, merge=1e-3, plan=1e-4, model=4e6)
    lines = module.table({"x": client}, gigabits=8, workers=4, memory=1e10)
    by_size = {line[1:3]: dict(zip(module.COLUMNS, line)) for line in lines}
    assert (10_000, 100_000) not in by_size and len(by_size) == 8
    large = by_size[1_000_000, 100_000]
    assert large["traffic GB"] == pytest.approx(300) and large["link s"] == pytest.approx(300)
    assert large["memory GB"] == pytest.approx(0.154) and large["merge s"] == pytest.approx(100)
    # A quarter of link and merge, and the sums around the ring twice.
    assert large["tree s"] == pytest.approx(100 + 8e-3) and large["first"] == "link"
    assert by_size[100_000_000, 10]["first"] == "memory"
    text = module.to_text(lines).splitlines()
    assert len(text) == 10 and len(set(map(len, text))) == 1 and "| 100,000,000 |" in text[-1]


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


def test_the_methods_tables_say_how_many_rates_are_at_an_edge_of_the_grid():
    benchmark, text = compared()[0], (ROOT / "benchmarks" / "RESULTS.md").read_text("utf-8")
    counts = []
    for head in ("| method | rate | Global | Local", "| method | rate | Global = Local"):
        rates = [float(row[1]) for row in results_table(head)[1:] if "other seeds" not in row[0]]
        counts.append((sum(rate in (min(benchmark.RATES), max(benchmark.RATES)) for rate in rates), len(rates)))
    (mnist, methods), (cifar10, others) = counts
    stated = f"{mnist} of the {methods} methods of the MNIST table and {cifar10} of the {others} of the CIFAR-10 table"
    assert stated in " ".join(text.split())
    # The row whose loss and merge are not those of its paper is not called by the name of the method alone.
    assert {"client.loss=cross_entropy", "round.label_rows=all"} <= set(benchmark.CONTROLLED)
    assert "| heterofl |" not in text and f"| {benchmark.LABELS['heterofl']} | .1 |" in text


def test_results_have_no_value_at_a_device_time_after_the_end_of_all_runs():
    heads, *rows = results_table("| method | round.policy | end of the runs, s |")
    assert len(rows) == 18
    for row in rows:
        first, last = map(int, row[2].split(" to "))
        for head, seconds in (("after 1 min", 60), ("after 2 min", 120)):
            cell = row[heads.index(head)]
            assert (cell == "ended") == (last < seconds) and cell.endswith("*") == (first < seconds < last), row


def test_results_of_the_narrow_sweep_are_those_of_its_rows():
    """Best value, its round and last value of each packed run of one seed."""
    text = (ROOT / "benchmarks" / "RESULTS.md").read_text("utf-8").replace("*", "")
    runs = programs.script("benchmarks/pictures.py").packed_rows("heterofl_narrow")
    assert len(runs) == 32 and "32 runs" in text
    for name, rows in runs.items():
        metric = "global_perplexity" if name.startswith("wikitext2") else "global_accuracy"
        values = [(row[metric], row["round"]) for row in rows if metric in row]
        best, at = min(values) if metric == "global_perplexity" else max(values, key=lambda pair: (pair[0], -pair[1]))
        lines = [line for line in text.splitlines() if f"| {best:.2f} ({at}) |" in line]
        assert "-seed=" in name or any(f"| {values[-1][0]:.2f} " in line for line in lines), name


def test_cells_of_the_papers_that_were_run_are_those_of_the_rows():
    pictures, (_, *table) = programs.script("benchmarks/pictures.py"), results_table("| table or figure | setting |")
    names = ["MNIST IID", "MNIST two labels", "CIFAR-10 IID", "CIFAR-10 two labels", "WikiText-2"]
    sizes = pictures.SIZES | {"CIFAR-10 two labels": ("", "heterofl_table8", "global_accuracy")}
    cells = [pictures.mixes_of(sizes[name][1], name, sizes[name][2]) for name in names]
    for number, setting in ((4, "MNIST IID"), (5, "MNIST two labels")):
        settings = [f"{setting}; norm {norm}" for norm in pictures.NORMS]
        norms = pictures.cells_of(f"heterofl_table{number}", settings, "global_accuracy")
        cells.append({key: cell for key, cell in norms.items() if key[1] == "e"})
    counts = [(len(each), sum(bool(runs) for _, runs in each.values())) for each in cells]
    assert [(int(row[2].split()[0]), int(row[3])) for row in table[: len(cells)]] == counts
    assert {row[3] for row in table[len(cells) :]} == {"0"}


def test_results_of_private_runs_are_those_of_their_rows():
    """Of each level, mean and range over seeds and the ratio to the runs without privacy; and no budget is exceeded."""
    pictures, (_, *table) = programs.script("benchmarks/pictures.py"), results_table("| runs | epsilon | noise |")
    runs = pictures.packed_rows("privacy_mnist")
    assert len(runs) == 3 * len(table)
    for name, budget, noise, *cells in table:
        names = (name, re.sub("epsilon_.|clip_only|open.*", "open", name))
        for level, text, ratio in zip("abc", cells[::2], cells[1::2]):
            values, others = (pictures.last_by_seed(runs, each, f"level_accuracy_{level}") for each in names)
            if values:
                assert text == f"{np.mean(values):.1f} ({min(values):.1f} to {max(values):.1f})", name
                assert ratio == f"{np.mean(values) / np.mean(others):.3f}", name
            assert (text == "-") == (not values)
        if budget != "-":
            pytest.importorskip("dp_accounting", reason="needs the extra `privacy`, dp-accounting")
            assert max(pictures.last_by_seed(runs, name, "epsilon")) <= float(budget)
            assert f"{calibrate(Sampling(1000, 100, 'poisson'), float(budget), 1e-4, 100):.3f}" == noise
