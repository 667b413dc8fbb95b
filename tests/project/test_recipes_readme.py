"""recipes/README.md lists every recipe, its example loads, and headers of recipes are complete."""

import functools
import re
from collections import Counter
from pathlib import Path

from each import for_each

from hetero_tf import recipe
from hetero_tf.recipe.geometry import walk
from hetero_tf.recipe.recipe_files import shipped
from hetero_tf.runs.history import keys_of_recipe, method_name
from hetero_tf.runs.published import matching_values, read_published

README = Path(__file__).parents[2] / "recipes" / "README.md"
TEXT = README.read_text("utf-8")
NAMES = sorted(shipped())
load = functools.cache(recipe.load)


def test_the_example_loads():
    (example,) = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)
    assert recipe.loads(example).name == "my_digits"


def test_every_recipe_and_sweep_is_in_a_table():
    """Apart from the tiny versions; a recipe is a link to its file."""
    methods = (README.parent.parent / "docs" / "methods.md").read_text("utf-8")
    linked = set(re.findall(r"\]\(([\w/]+)\.yaml\)", TEXT + methods.replace("../recipes/", "")))
    assert linked == {name for name in NAMES if not name.startswith("tiny/")}
    named = TEXT.replace("`..._", "`heterofl_interpolation_")
    assert all(f"`{path.stem}`" in named for path in (README.parent / "sweeps").glob("*.yaml"))


def header(name):
    text = shipped()[name].read_text("utf-8")
    return text[: re.search("\n(base|name):", text).start()]


def overrides_of(comment):
    """The overrides in a comment, grouped by command; a command may continue on the next line."""
    word = r"--set ((?:'[^']*'|[^\s;)'])+)"
    chains = re.finditer(rf"(?:{word}\s*)+", re.sub(r"\n# *", " ", comment))
    return [[value.rstrip(",").replace("'", "") for value in re.findall(word, chain[0])] for chain in chains]


@for_each(NAMES)
def test_a_header_states_source_cost_expectation_command_and_overrides_which_change_the_recipe(name):
    comment = header(name)
    chains = overrides_of(comment)
    assert chains and sum(map(len, chains)) == comment.count("--set ")
    useful = re.search(r"Useful: --set (\S+)", comment).group(1).replace("'", "")
    for overrides in (*chains, [useful]):
        assert load(name, tuple(overrides)).source != load(name).source, overrides
    for other in re.findall(r"recipes/([\w/]+)\.yaml", comment):
        assert other in NAMES
    assert all(line.startswith("# ") for line in comment.splitlines())
    run = f"Run: bin/hetero_tf --recipe recipes/{name}.yaml"
    for word in ("Source: ", "Cost: ", "Expect: ", run, "Useful: --set "):
        assert word in comment


@for_each([name for name in NAMES if name.startswith("methods/")])
def test_a_header_quotes_published_results_and_the_override_of_the_other_split(name):
    comment, loaded = re.sub(r"\n# *", " ", header(name)), load(name)
    assert "unbalanced Dirichlet(0.3)" in comment and loaded.partition.name == "dirichlet"
    assert (loaded.partition.options["alpha"], loaded.data.loader.options["dataset"]) == (0.3, "cifar10")
    assert comment.startswith(f"# {method_name(keys_of_recipe(loaded))}")
    unequal = re.search(r"Table 3 has ([\d.]+) %", comment)
    equal = re.search(r"Table 2, [^.]*\(--set (\S+)\), has ([\d.]+) %", comment)
    for quoted, override in ((unequal, ()), (equal, ("partition.name=dirichlet_equal",))):
        # FeDepth holds out a part of the examples; a private recipe must not, and no table has it.
        held_out = [] if loaded.privacy else ["partition.held_out=0.2"]
        keys = keys_of_recipe(recipe.load(name, [*held_out, *override]))
        values = [value.value for value in matching_values(read_published(), keys)]
        assert len(values) == (quoted is not None) and (equal is not None or "not in FeDepth's tables" in comment)
        assert all(abs(float(quoted[len(override) + 1]) - value) < 0.0501 for value in values)
    assert equal is None or equal[1] == "partition.name=dirichlet_equal"


@for_each([name for name in NAMES if "/" not in name])
def test_every_recipe_has_a_tiny_twin_of_the_same_structure(name):
    big, tiny = load(name), load(f"tiny/{name}")
    kinds = [list(dict.fromkeys(spec.kind for spec in got.model.layers)) for got in (big, tiny)]
    assert kinds[0] == kinds[1], "the same layers in the same order"
    for part in ("submodel", "server"):
        assert getattr(tiny.round, part).name == getattr(big.round, part).name
    assert (tiny.partition.name, tiny.input.name) == (big.partition.name, big.input.name)
    assert (tiny.levels.widths, tiny.levels.mix) == (big.levels.widths, big.levels.mix)
    assert tiny.rounds == 2 and tiny.data.loader.name in ("synthetic", "shapes", "digits", "pydoc")
    assert tiny.name == f"tiny_{big.name}"


# Hyper-parameters set by the authors' code (github.com/diaoenmao/HeteroFL..., commit cc40f3e).
PUBLISHED = {
    "mnist": (200, 5, 10, 50, 0.01, (100,)),
    "mnist_noniid": (400, 5, 10, 50, 0.01, (200,)),
    "cifar10": (400, 5, 10, 50, 0.1, (150, 250)),
    "cifar10_noniid": (800, 5, 10, 50, 0.1, (300, 500)),
    "wikitext2": (200, 1, 100, 10, 0.1, (50, 100)),
}


@for_each(PUBLISHED)
def test_hyper_parameters_are_the_published_ones(name):
    got = load(name)
    client, rate = got.client, got.optimizer.learning_rate
    values = (got.rounds, client.epochs, client.batch_size, got.evaluate.batch_size, rate, got.schedule.options["at"])
    assert values == PUBLISHED[name]
    options = {"momentum": 0.9, "weight_decay": 5.0e-4, "nesterov": False}
    assert (got.optimizer.method.options, got.optimizer.clip_norm) == (options, 1.0)
    assert got.schedule.options["factor"] == 0.1
    assert (got.partition.options["clients"], got.round.clients) == (100, 10)


# Of the public code of LG-FedAvg (github.com/pliang279/LG-FedAvg, commit 7af0568): parameters, those that are shared,
# batch size, learning rate, loss.
LIANG = {
    "mnist_mlp": (633_226, 633_226, 10, 0.1, "softmax_twice"),
    "mnist_mlp_lg": (633_226, 99_978, 10, 0.05, "softmax_twice"),
    "cifar10_cnn": (64_102, 64_102, 50, 0.1, "cross_entropy"),
    "cifar10_cnn_lg": (64_102, 2_872, 50, 0.1, "cross_entropy"),
}


@for_each(LIANG)
def test_networks_and_values_of_lg_fedavg_are_the_published_ones(name):
    got = load(name)
    shape = (28, 28, 1) if "mnist" in name else (32, 32, 3)
    sizes = Counter()
    for step in walk(got.model, shape, 1.0, 10):
        # A layer with a kernel has a bias.
        sizes[step.spec.unit] += step.weights and step.weights + step.outputs[-1]
    shared = sum(size for unit, size in sizes.items() if unit not in got.round.personal)
    client, optimizer = got.client, got.optimizer
    assert (sizes.total(), shared, client.batch_size, optimizer.learning_rate, client.loss.name) == LIANG[name]
    assert (client.epochs, optimizer.clip_norm, got.schedule.name) == (1, None, "constant")
    assert optimizer.method.options == {"momentum": 0.5, "weight_decay": 0.0, "nesterov": False}
    assert (got.round.clients, got.round.weighting, got.round.label_rows) == (10, "uniform", "all")
    options = {"clients": 100, "per_client": 2, "keep_duplicates": True, "draw": "random"}
    options |= {"shuffled": 0.0, "held_out": 0.0}
    assert got.partition.options == options
