"""Every method recipe trains a round on tiny data, with the two most different levels, on the clock of a fleet."""

import methods
import numpy as np
import pytest

from hetero_tf import learning_process, recipe
from hetero_tf.base import registry
from hetero_tf.base.errors import InputError
from hetero_tf.models.costs import memory
from hetero_tf.models.costs.level_costs import LevelCosts
from hetero_tf.models.family import build_family
from hetero_tf.recipe.recipe_files import shipped

METHODS = sorted(name for name in shipped() if name.startswith("methods/"))
SMALL = (
    "data={name: synthetic, kind: images, examples: 120, test_examples: 40, size: 8, channels: 3}",
    "partition={name: dirichlet, clients: 4, alpha: 1.0, least: 5}",
    "model.settings.channels=[!w 2, !w 3, !w 4]",
    # Without statistics to query, which would take most of the time.
    "model.settings.norm=in",
    "round.clients=2",
    "client.epochs=1",
    # One step of each client, which runs eagerly.
    "client.batch_size=60",
    "evaluate.statistics_batch=20",
    "rounds=1",
    "fleet=uniform",
)
# Recipes whose results cannot be merged into a later version, and why.
MEMORY = "the server's slots are means of the clients' memories, which a late or discarded result changes differently"
MERGE = "late results are added up before the merge"
MERGES = dict.fromkeys(
    ("methods/fednova", "methods/qfedavg", "methods/inclusivefl_momentum", "methods/median", "methods/trimmed_mean"),
    MERGE,
)
PERSONAL = "clients exchange no values, so no result is late"
UNTRAINED = "immediate mixes untrained values of an earlier version into the global ones"
BUFFERED = {"methods/scaffold": MEMORY, "methods/depthfl": MEMORY, "methods/standalone": PERSONAL, **MERGES}
PRIVATE = "the clients that are merged depend on the work of the others"
BUFFERED |= {"methods/dp_fedavg": PRIVATE}
REJECTED = {"buffered": BUFFERED, "immediate": BUFFERED | {"methods/inclusivefl": UNTRAINED}}
REJECTED |= {policy: {"methods/dp_fedavg": PRIVATE} for policy in ("deadline", "over_selection")}


# One recipe of each kind of method: exits, stages of blocks, masks, personal units, server state, ensembles. The others differ in a plug-in that `tests/rounds/test_round_methods.py` trains as well.
QUICK = ("depthfl", "/fedepth", "fiarse", "fedbabu", "scaffold", "splitmix")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name.endswith(QUICK) else pytest.mark.long) for name in METHODS]
)
def test_round_changes_the_trained_values(name, eager):
    """Run eagerly, buffered where that is possible; `test_round_methods` has every method compiled."""
    loaded = recipe.load(name)
    if loaded.privacy is not None:
        pytest.importorskip("dp_accounting", reason="needs the extra `privacy`")
    policy = "wait" if name in BUFFERED else "{name: buffered, size: 1}"
    # Without blockwise stages, budgets say nothing about fewer blocks.
    divided = loaded.client.stages.name == "blockwise"
    ends = {level: loaded.levels.budgets[level] for level in "ad"} if divided else {}
    # FedRep needs an epoch for each of its two phases.
    epochs = ["client.epochs=2", "client.personalization.personal_epochs=1"] if name.endswith("fedrep") else []
    fewer = [f"levels.budgets={ends}", "levels.fit=null", *epochs, *methods.fewer_levels_and_blocks(loaded)]
    process = learning_process(recipe.load(name, [*SMALL, f"round.policy={policy}", *fewer]))
    before = process.initialize()
    state, row = process.next(before)
    metrics, _ = process.evaluate(state)
    assert row["non_finite"] == 0 and np.isfinite(row["loss"]) and row["round_seconds"] > 0
    assert all(np.isfinite(value) for value in metrics.values())
    assert {"global_accuracy", "local_worst_decile"} <= metrics.keys()
    table = "clients" if process.setup.layout.personal else "weights"
    assert moved(getattr(state, table), getattr(before, table))


@pytest.mark.parametrize("policy", sorted(registry.names("policies")))
def test_every_recipe_has_the_policy_or_is_rejected_with_the_reason(policy):
    options, rejected = {"name": policy} | ({"seconds": 60} if policy == "deadline" else {}), {}
    for name in filter(lambda name: name.startswith(("tiny/", "methods/")), shipped()):
        try:
            recipe.load(name, ["fleet=uniform", f"round.policy={options}"])
        except InputError as problem:
            rejected[name] = str(problem)
    expected = REJECTED.get(policy, {})
    assert rejected.keys() == expected.keys()
    assert all(reason in rejected[name] for name, reason in expected.items())


def moved(after, before):
    """Return True if any value of two (nested) dicts differs."""
    if isinstance(before, dict):
        return any(moved(after[name], before[name]) for name in before)
    return bool((np.asarray(after) != np.asarray(before)).any())


def test_scalefl_distils_after_a_quarter_of_the_rounds():
    loaded = recipe.load("methods/scalefl")
    assert loaded.client.coupling.options["from_round"] == loaded.rounds // 4 + 1


@pytest.mark.long
def test_splitmix_can_have_smaller_networks_and_leave_sizes_out(eager):
    """SplitMix (Hong et al. 2022), Figure 2: base networks of width 1/8, and some idle levels."""
    bases = (
        "levels.widths={a: 1/8, b: 1/8, c: 1/8, d: 1/8}",
        "levels.members={a: 8, b: 4, c: 2, d: 1}",
        "levels.budgets={a: 1, b: 1/2, c: 1/4, d: 1/8}",
    )
    wide = "model.settings.channels=[!w 8, !w 16, !w 16]"
    settings = (*SMALL, "model.settings.blocks=1", wide, *bases, "partition.clients=8", "levels.idle=[a, b]")
    process = learning_process(recipe.load("methods/splitmix", settings))
    before = process.initialize()
    state, row = process.next(before)
    # The first convolution: eight networks, each with one of its eight channels.
    path = next(iter(before.weights))
    assert before.weights[path].shape == (8, 3, 3, 3, 1)
    plan = process.plan(0)
    assert [process.recipe.levels.names[level] for level in plan.levels] in (
        ["c", "d"],
        ["d", "c"],
        ["c", "c"],
        ["d", "d"],
    )
    trained = {"c": 2, "d": 1}
    moved_networks = np.any(
        np.asarray(state.weights[path]) != np.asarray(before.weights[path]), axis=(1, 2, 3, 4)
    ).sum()
    most = sum(trained[process.recipe.levels.names[level]] for level in plan.levels)
    assert 1 <= moved_networks <= most < 8 and row["non_finite"] == 0


def test_method_recipes_share_all_other_settings():
    same = {}
    for name in METHODS:
        loaded = recipe.load(name)
        assert loaded.name == name.removeprefix("methods/")
        parts = (loaded.data, loaded.input, loaded.partition, loaded.schedule, loaded.rounds, loaded.round.clients)
        sizes = (loaded.client.epochs, loaded.client.batch_size, loaded.model.settings["channels"])
        same[name] = (*parts, *sizes, loaded.optimizer.learning_rate)
    assert len({repr(values) for values in same.values()}) == 1


# A mask of single entries saves no memory, and DepthFL's exits take more than its weaker clients have.
OVER = ("methods/fiarse", "methods/depthfl", "methods/inclusivefl", "methods/inclusivefl_momentum")


@pytest.mark.long
def test_levels_fit_their_budgets_unless_the_header_says_otherwise():
    """Few channels are the hardest case; equal recipes are checked once, and equal models counted once.

    `fair` lies between the two.
    """
    shape, counts = (8, 8, 3), {}
    for scenario in ("lack", "surplus"):
        seen = {}
        for name in METHODS:
            loaded = recipe.load(name, [f"levels.budgets={scenario}", "model.settings.channels=[!w 6, !w 12, !w 24]"])
            key = repr((loaded.levels, loaded.client.stages, loaded.client.coupling, loaded.model.layers))
            if key not in seen:
                counted = counts.setdefault(repr((loaded.model.layers, loaded.model.frozen)), {})
                fitted = memory.fit_levels(loaded, shape, shape, 10)
                seen[key] = memory.over_budget(LevelCosts(build_family(fitted, shape, shape, 10), 10, counted))
            assert bool(seen[key]) == (name in OVER), (scenario, name, seen[key])
            header = shipped()[name].read_text("utf-8").replace("\n#  ", "")
            assert ("OVER their budgets" in header) == bool(seen[key])
