"""Published values: the cells of the papers, the runs that match them, and the runs that do not."""

import csv
from collections import Counter
from pathlib import Path

import programs
import pytest

from hetero_tf.recipe import load
from hetero_tf.runs import published
from hetero_tf.runs.history import MIX, keys_of_recipe, read
from hetero_tf.runs.run_folder import RunFolder

VALUES = published.read_published()
PAPERS = programs.script("benchmarks/papers.py")
BLOCKS = "model.settings.blocks=[1, 1, 1, 2]"


def rows_of(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def matches(recipe, *overrides):
    keys = keys_of_recipe(load(recipe, overrides))
    return {(value.table, value.metric): value.value for value in published.matching_values(VALUES, keys)}


def test_all_result_cells_are_known():
    cells = Counter(tuple(cell["tables"].split())[-1] for cell in rows_of(published.CELLS))
    papers = {"heterofl_table4": 34, "heterofl_table5": 100, "heterofl_table7": 102, "heterofl_table8": 102}
    papers |= {"heterofl_table9": 31, "fedepth_table2": 120, "fedepth_table3": 24, "fedepth_appendix": 34}
    assert cells == papers | {"flower-heterofl": 56, "lg-fedavg": 1} and sum(papers.values()) == 547
    assert Counter(value.table for value in VALUES)["heterofl_table1"] == 12 * 3 + 9
    # The paper does not state the split of times and fairness, which therefore have no run.
    assert {value.setting for value in VALUES if not value.runs} == {"CIFAR-10; 100 clients"}
    assert {value.metric for value in VALUES if not value.runs} == {"training_seconds", "local_std"}


def test_the_file_of_runs_is_that_of_its_script():
    """Texts of all runs, and fingerprints of one run for each recipe; the next test computes all."""
    stored = rows_of(published.RUNS)
    cells = dict.fromkeys((cell["setting"], cell["row"]) for cell in rows_of(published.CELLS))
    texts = [(*cell, note, PAPERS.shlex.join(run)) for cell in cells for note, run in PAPERS.runs_of(*cell)]
    assert [tuple(run.values())[:4] for run in stored] == texts, "run: python benchmarks/papers.py"
    for run in {run["run"].partition(" ")[0]: run for run in stored}.values():
        recipe, *overrides = PAPERS.shlex.split(run["run"])
        assert published.fingerprint(keys_of_recipe(load(recipe, overrides))) == run["fingerprint"]


def test_runs_over_the_budgets_of_their_cell_say_so():
    """DepthFL's cells are of runs within the budgets; the note of its runs is part of the printed setting."""
    notes = {run["note"] for run in rows_of(published.RUNS) if run["run"].startswith("methods/depthfl")}
    assert notes and all("1.7 to 3.2 times its budgets" in note for note in notes)
    keys = keys_of_recipe(load("methods/depthfl", ["partition.held_out=0.2"]))
    (value,) = published.matching_values(VALUES, keys)
    assert value.setting.startswith("CIFAR-10; alpha_u(0.3); Fair; 1.7 to 3.2 times its budgets")


@pytest.mark.long
def test_all_fingerprints_are_those_of_the_script():
    assert published.RUNS.read_text() == PAPERS.table_of_runs()


@pytest.mark.parametrize(
    ("recipe", "overrides"),
    [
        ("mnist", ["levels.mix=a-e"]),
        ("cifar10_noniid", [BLOCKS, "levels.mix=b"]),
        ("wikitext2", ["levels.mix=d-e", "rounds=100", "schedule.at=[25, 50]"]),
        ("methods/fedepth", ["partition.name=dirichlet_equal", "partition.held_out=0.2", "levels.budgets=lack"]),
    ],
)
def test_a_change_of_any_deciding_key_ends_the_match(recipe, overrides):
    keys = keys_of_recipe(load(recipe, overrides))
    expected, defaults = published.matching_values(VALUES, keys), published.defaults_of(keys)
    single = {"levels.assignment"} if "-" not in keys[MIX] else set()
    assert expected and keys.keys() >= published.IGNORED_KEYS
    for key in (*keys, "data.stand_in_for"):
        changed = published.matching_values(VALUES, keys | {key: ("another", keys.get(key))})
        assert changed == (expected if key in published.IGNORED_KEYS | single else []), key
        removed = published.matching_values(VALUES, {name: keys[name] for name in keys if name != key or key == MIX})
        has_default = key not in keys or keys[key] == defaults.get(key, key)
        ignored = key in published.IGNORED_KEYS | single | {MIX} or has_default
        assert removed == (expected if ignored else []), key


def test_former_confusions_are_gone():
    fair, lack = ("partition.name=dirichlet_equal", "partition.held_out=0.2"), "levels.budgets=lack"
    table2 = ("fedepth_table2", "global_accuracy")
    assert matches("methods/fedepth", *fair) == {table2: 60.62}
    assert matches("methods/fedepth", *fair, lack) == {table2: 58.63}
    assert matches("methods/fedepth_branches", *fair, lack) == {table2: 57.56}
    assert matches("methods/fedepth", *fair, "rounds=60") == {} == matches("methods/fedepth", fair[0])
    for row in ("methods/heterofl", "methods/slimmable"):
        assert matches(row, *fair) == {table2: 56.35}
    both = matches("mnist_noniid", "levels.mix=e")
    assert both["heterofl_table5", "global_accuracy"] == 94.2 and both["heterofl_table1", "global_accuracy"] == 92.84
    assert matches("mnist", "model.settings.scaler=false") == {("heterofl_table4", "global_accuracy"): 99.0}
    assert matches("cifar10") == matches("digits") == matches("mnist", "levels.assignment=fixed") == {}
    # A single level matches under each assignment.
    assert matches("mnist", "levels.mix=b", "levels.assignment=fixed") == matches("mnist", "levels.mix=b") != {}


def in_order(values, recipes):
    keys = {name: keys_of_recipe(load(recipe, words)) for name, (recipe, *words) in recipes.items()}
    return published.in_order_of_table(values, keys)


def test_values_of_runs_are_in_the_order_of_the_table_that_prints_most_of_them():
    ordered = in_order(VALUES, {"e": ("mnist", "levels.mix=e"), "other": ("digits",), "text": ("wikitext2",),
                                "a": ("mnist_noniid", "levels.mix=a")})  # fmt: skip
    assert list(ordered) == ["a", "e", "other", "text"] and ordered["other"] == []
    a = [("heterofl_table1/a", 99.85), ("heterofl_table1/a", 98.92)]
    assert [(value.name, value.value) for value in ordered["a"]] == a
    assert ordered["text"][0].setting == "WikiText-2; 200 rounds as in the authors' code"
    # Values of papers precede those of ports. Flower's port prints both runs, and each table of the paper one of them.
    recipes = {"mnist": ("mnist", "levels.mix=d"), "cifar10": ("cifar10", "levels.mix=d", BLOCKS)}
    assert [value.value for value in in_order(VALUES, recipes)["mnist"]] == [99.17]
    ports = [value for value in VALUES if value.table in published.PORTS]
    assert [value.value for value in in_order(ports, recipes)["mnist"]] == [99.07]


def test_missing_cells_are_listed_for_half_covered_and_named_tables():
    mixes = ("a", "a-e", "a-b-c-d-e", "b", "b-e", "b-c-d-e", "c", "c-e", "c-d-e", "d", "d-e")
    keys = [keys_of_recipe(load("wikitext2", [f"levels.mix={mix}"])) for mix in mixes]
    assert published.missing_cells(VALUES, keys) == ["heterofl_table3: 11 of 12 cells; missing: WikiText-2: e"]
    assert published.missing_cells(VALUES, keys[:1], ["lg-fedavg"]) == [
        "lg-fedavg: 0 of 1 cells; missing: MNIST two labels: LG-FedAvg"
    ]


def test_train_ends_with_the_value_of_its_run_unless_a_fallback_replaced_the_data(write_run):
    folder = RunFolder(Path(write_run("one", [98.5])))
    folder.recipe.write_text(load("mnist", ["levels.mix=e"]).source)
    source = "HeteroFL (Diao et al. 2021, arXiv 2010.01264)"
    lines = [
        f"published: global_accuracy 98.66 ({source}, Table 1, Table 7: MNIST IID)",
        f"published: global_accuracy 98.7 ({source}, Table 4: MNIST IID; norm sbn)",
        "published: global_accuracy 98.46 (Flower's port of HeteroFL (baselines/heterofl, README): MNIST IID)",
    ]
    assert published.describe_values_of(folder.path) == lines
    folder.data.write_text('{"stand_in_for": null}')
    assert published.describe_values_of(folder.path) == lines
    folder.data.write_text('{"stand_in_for": "mnist"}')
    assert published.describe_values_of(folder.path) == []
    assert read(folder.path).keys["data.stand_in_for"] == "mnist"
