"""Definition of sweeps: expansion and names of runs, errors, and the shipped sweeps."""

import dataclasses
import re
from pathlib import Path

import cases
import pytest
from each import for_each
from paper_cells import check_cells
from refusals import refusal

from hetero_tf.recipe.recipe_files import sweeps
from hetero_tf.sweeps import definition
from hetero_tf.sweeps.definition import expand


def expanded(text):
    return expand(definition.reads(text, "s.yaml"), "s.yaml")


def names(text):
    return [run.name for run in expanded(text)]


def test_grid_is_a_product_of_values():
    runs = expanded(
        "recipe: digits\nset: {client.epochs: 9, rounds: 3}\ngrid: {levels.mix: [a, a-b], client.epochs: [1, 2]}\nseeds: 0-1\n"
    )
    assert [run.name for run in runs] == [
        f"digits-client.epochs={epochs}-levels.mix={mix}-seed={seed}"
        for mix in ("a", "a-b")
        for epochs in (1, 2)
        for seed in (0, 1)
    ]
    last = runs[-1]
    assert last.overrides == ("rounds=3", "levels.mix=a-b", "client.epochs=2", "seed=1") and last.path == "digits"
    assert (last.recipe.rounds, last.recipe.levels.names, last.recipe.client.epochs, last.recipe.seed) == (
        3,
        ("a", "b"),
        2,
        1,
    )


def test_list_entries_change_together_can_be_named_and_recipes_can_be_a_key():
    text = "recipe: digits\nlist:\n  - {levels.mix: a, seed: 3}\n  - {name: slow, optimizer.learning_rate: 0.001}\nseeds: [4]\n"
    runs = expanded(text)
    assert [run.name for run in runs] == ["digits-levels.mix=a-seed=4", "slow-seed=4"]
    assert (runs[0].recipe.seed, runs[1].recipe.optimizer.learning_rate) == (4, 0.001)
    assert names("grid: {recipe: [digits, mnist]}\n") == ["digits", "mnist"]


def test_parts_inherit_the_keys_above():
    text = (
        "recipe: digits\nset: {rounds: 3, client.epochs: 2}\nseeds: 1\n"
        "parts:\n  - grid: {levels.mix: [a]}\n  - {recipe: mnist, set: {client.epochs: 4}, seeds: [2, 3]}\n"
    )
    runs = expanded(text)
    assert [run.name for run in runs] == ["digits-levels.mix=a-seed=1", "mnist-seed=2", "mnist-seed=3"]
    assert [(run.recipe.rounds, run.recipe.client.epochs) for run in runs] == [(3, 2), (3, 4), (3, 4)]


def test_values_can_be_lists_mappings_and_tags():
    text = "recipe: digits\ngrid:\n  model.settings.channels: [[!w 8, !w 8], [!w 16, !w 8]]\n  levels.widths.b: [1/2, 0.25]\n"
    runs = expanded(text)
    assert len({run.name for run in runs}) == 4 and all("channels=" in run.name for run in runs)
    assert runs[-1].overrides == ("model.settings.channels=[!w 16, !w 8]", "levels.widths.b=0.25")
    assert [run.name for run in expanded(definition.to_yaml(definition.reads(text, "s.yaml")))] == [
        run.name for run in runs
    ]


def test_equal_runs_are_merged_and_name_conflicts_refused():
    assert names("recipe: digits\nparts: [{grid: {seed: [0, 1]}}, {grid: {seed: [1, 2]}}]\n") == [
        f"digits-seed={seed}" for seed in range(3)
    ]
    text = "recipe: digits\nlist: [{name: x, seed: 1}, {name: x, seed: 2}]\n"
    assert refusal(expanded, text) == ("s.yaml: two different runs have the name x; rename one of them in the list")


def test_sweeps_of_the_page_are_valid():
    text = (Path(__file__).resolve().parents[2] / "docs" / "sweeps.md").read_text()
    small, large = map(expanded, re.findall(r"```yaml\n(recipe: .*?)```", text, re.DOTALL))
    assert len(small) == 3 * 2 and len(large) == 2 * 2 * 2
    assert {run.name.partition("-")[0] for run in large} == {"mnist", "slow"}


def test_flags_equal_a_file():
    typed = definition.from_flags(
        "digits", ["rounds=3"], ["levels.mix=a, a-b", "levels.widths={a: 1,b: 0.5},{a: 1,b: 0.4}"], "0-1,5"
    )
    runs = expand(typed, "typed")
    text = (
        "recipe: digits\nset: {rounds: 3}\nseeds: [0, 1, 5]\n"
        "grid: {levels.mix: [a, a-b], levels.widths: [{a: 1, b: 0.5}, {a: 1, b: 0.4}]}\n"
    )
    assert len(runs) == 12 and [run.name for run in runs] == names(text)
    assert [run.recipe.source for run in runs] == [run.recipe.source for run in expanded(text)]


@pytest.mark.parametrize(("text", "sentence"), cases.of_text(__file__, "FILES"))
def test_errors_name_file_and_key(text, sentence):
    assert refusal(expanded, text.replace(" | ", "\n") + "\n").split("\n")[0] == sentence


@pytest.mark.parametrize(("words", "sentence"), cases.of_words(__file__, "FLAGS"))
def test_flag_errors_name_the_flag(words, sentence):
    varied, seeds = ([], words[1]) if words[0] == "--seeds" else (words, None)
    message = refusal(lambda: expand(definition.from_flags("digits", [], varied, seeds), "typed"))
    assert message.startswith(sentence.removesuffix("...")) and "\n" not in message


def test_missing_sweep_is_refused(tmp_path):
    assert refusal(definition.read, "heterofl_tabel7").startswith(
        "heterofl_tabel7: no such sweep; did you mean 'heterofl_table"
    )
    assert refusal(definition.read, tmp_path).endswith("expected a file. Received: a folder")


# Numbers of runs that the headers of the shipped sweeps state.
RUNS = {name: int(re.search(r"^# Runs: (\d+)", path.read_text(), re.MULTILINE)[1]) for name, path in sweeps().items()}
# Recipes of a sweep, apart from seeds, that a paper's table prints, if these are not all.
MATCHED = {
    "heterofl_narrow": 7 + 4 + 3 + 4 + 2 + 4 + 2 + 3 + 4,
    "heterofl_interpolation_mnist": 2 * 5,
    "heterofl_interpolation_cifar10": 2 * 5,
    "heterofl_interpolation_wikitext2": 2 * 5,
    "heterofl_baselines": 4 * 2,
    "fedepth_table3": 4 * 6,
    **dict.fromkeys(("fedepth_figure2", "fedepth_figure7", "mnist_mixes", "fedbuff_mnist"), 0),
    **dict.fromkeys(
        ("time_to_accuracy", "time_to_accuracy_mnist", "privacy_mnist", "digits_methods", "digits_personal"), 0
    ),
}


LARGE = [name for name, runs in RUNS.items() if runs >= 100]


@for_each(name for name in RUNS if name not in LARGE)
def test_shipped_sweeps_have_valid_recipes(name):
    check_recipes(name)


@pytest.mark.long
@for_each(LARGE)
def test_large_shipped_sweeps_have_valid_recipes(name):
    check_recipes(name)


@pytest.mark.parametrize("name", ["fedepth_table2", "fedepth_table3", "fedepth_appendix", "fedepth_figure7"])
def test_sweeps_of_means_have_five_seeds(name):
    assert {part.seeds for part in definition.read(name)} == {tuple(range(5))}


def test_figure_2_leaves_out_one_width_and_has_two_groups_of_ensembles():
    runs = {run.name: run.recipe for run in expand(definition.read("fedepth_figure2"), "x")}
    idle = {name: recipe.levels.idle for name, recipe in runs.items() if name.startswith("heterofl")}
    assert set(idle.values()) == {(), ("b",), ("c",), ("d",)} and len(idle) == 4
    ensembles = [recipe.levels for name, recipe in runs.items() if name.startswith("splitmix")]
    assert [levels.mix for levels in ensembles] == [{"a": 1, "b": 1}] * 4
    assert all(levels.members == {"a": 1 / levels.widths["a"], "b": 1} for levels in ensembles)


def test_sweeps_of_ablations_state_the_keys_that_they_change_and_networks_match_the_tables():
    for name in ("heterofl_table4", "heterofl_table5"):
        text = sweeps()[name].read_text()
        assert ("masked loss" in text.partition("\nlist")[0]) == ("client.loss" in text)
    runs = expand(definition.read("heterofl_table8"), "x")
    assert {len(run.recipe.model.layers) for run in runs} == {len(runs[0].recipe.model.layers)}
    assert all("model.settings.blocks=[1, 1, 1, 2]" in run.overrides for run in runs)


def check_recipes(name):
    # One seed is enough: the others change no other key.
    parts = [(dataclasses.replace(part, seeds=part.seeds[:1]), len(part.seeds) or 1) for part in definition.read(name)]
    runs = {run.name: (run, seeds) for part, seeds in parts for run in expand([part], name)}
    assert len({run.recipe.source for run, _ in runs.values()}) == len(runs)
    assert sum(seeds for _, seeds in runs.values()) == RUNS[name]
    assert check_cells(name, [run for run, _ in runs.values()]) == MATCHED.get(name, len(runs))
    header = sweeps()[name].read_text().partition("\n\n")[0]
    assert all(text in header for text in (f"# Run: bin/hetero_tf sweep {name}", "# Source: "))
