"""Both engines compared with the plain loop of `oracle`, their selection, and the parallelism of clients."""

import dataclasses
import functools
import re
from types import SimpleNamespace

import numpy as np
import oracle
import pytest
import tensorflow as tf
import tiny
from tensorflow.python.framework import op_def_registry

from hetero_tf.base.constraints import Plugin
from hetero_tf.data.inputs import batch_shapes
from hetero_tf.planning.plan import Plan
from hetero_tf.recipe.schema import Levels
from hetero_tf.rounds import engine
from hetero_tf.rounds.round import build_round

# The loop is compared with the graph that runs of users have.
OPTIMIZE_GRAPHS = True
ENGINES = ("sequential", "stacked")
COHORTS = ("drawn", "everyone")
TOLERANCE = {"float64": 1e-10, "float32": 1e-5}
# One block less than the recipes of `tiny`.
BLOCK = re.compile("    - (PreActivation|Transformer)Block: .*\n")
SHORT = {f"SHORT_{name}": BLOCK.sub("", getattr(tiny, name)) for name in ("DROPOUT_IMAGES", "TEXT")}
# Recipe, sub-model, precision, other overrides. Every sub-model meets models with and without convolutions, in both precisions.
CASES = [
    ("SHORT_DROPOUT_IMAGES", "prefix", "float64", ("levels.mix=c", "client.epochs=1")),
    ("SHORT_TEXT", "random", "float64", ("levels.mix=c",)),
    ("DROPOUT_IMAGES", "prefix", "float64", ()),
    ("IMAGES", "rolling", "float32", ()),
    ("DROPOUT_TEXT", "prefix", "float64", ()),
    ("TEXT", "random", "float64", ()),
    ("DENSE", "prefix", "float32", ()),
    ("DENSE", "random", "float64", ()),
    ("DENSE", "rolling", "float64", ("client.loss=cross_entropy", "optimizer.clip_norm=null", "levels.mix=a-c")),
]
# One of each kind of data; the others, and clients one by one but for one case, are long.
QUICK = (("SHORT_DROPOUT_IMAGES", "prefix"), ("SHORT_TEXT", "random"), ("DENSE", "rolling"))
BOTH_ENGINES = (("DROPOUT_IMAGES", "prefix"), ("TEXT", "random"), ("DENSE", "rolling"))


def case_param(case, name):
    quick = case[:2] in QUICK and (name == "stacked" or case[0] == "DENSE")
    marks = [] if quick else [pytest.mark.long]
    return pytest.param(case, name, id="-".join([*case[:3], *case[3], name]), marks=marks)


RUNS = [case_param(case, name) for case in CASES for name in ENGINES if name == "stacked" or case[:2] in BOTH_ENGINES]
PIXELS = ("DROPOUT_IMAGES", "prefix", "float64", ("client.epochs=1",))
CUT = ("TEXT", "random", "float64", ())
WHOLE = ("TEXT", "random", "float64", ("client.label_cut=false",))
# Without a stacked form in the package.
ODD = tiny.DENSE.replace(
    "GlobalAveragePooling2D,",
    "Conv2D: {filters: !w 8, kernel_size: 3}, ReLU, DepthwiseConv2D: {kernel_size: 3}, GlobalAveragePooling2D,",
)


@functools.cache
def build_process(case, name, **options):
    """The process of a case; the fifth client has no examples."""
    base, submodel, precision, overrides = case
    settings = (f"round.submodel={submodel}", f"precision={precision}", f"engine={name}", *overrides)
    return tiny.shared(SHORT.get(base) or getattr(tiny, base, base), *settings, idle=True, **options)


def build_plans(process, cohort):
    """Plans of several rounds, drawn or with all clients: first all at one level, then at fixed levels."""
    if cohort == "drawn":
        return tiny.plans(process, 2)
    levels = dataclasses.replace(process.recipe.levels, assignment="fixed")
    fixed = dataclasses.replace(process, recipe=dataclasses.replace(process.recipe, levels=levels))
    first, second = tiny.plans(fixed, 2, cohort=range(5))
    first = Plan(*(array[np.lexsort((first.clients, -first.steps))] for array in first.arrays().values()))
    return [dataclasses.replace(first, levels=np.full_like(first.levels, len(process.recipe.levels.names) - 1)), second]


@functools.cache
def run_plain_loop(case, cohort):
    """The initial weights, and the result of the plain loop, which has no engine."""
    process = build_process(case, "sequential")
    old = tiny.arrays(process.initialize())
    return old, *oracle.play(process, old, build_plans(process, cohort))


def check_against_plain_loop(process, case, cohort):
    """Compare a compiled call of several rounds with the plain loop."""
    state, rows = process.run(process.initialize(), build_plans(process, cohort))
    old, expected, metrics = run_plain_loop(case, cohort)
    actual, tolerance = tiny.arrays(state), TOLERANCE[case[2]]
    assert tiny.gap(actual, expected) < tolerance
    actual_metrics = [(row["loss"], row["gradient_norm"]) for row in rows]
    np.testing.assert_allclose(actual_metrics, metrics, rtol=10 * tolerance)
    assert [row["non_finite"] for row in rows] == [0] * len(rows)
    for path, value in expected.items():
        unchanged = value == old[path]
        assert actual[path][unchanged].tobytes() == old[path][unchanged].tobytes()


@pytest.mark.parametrize(
    ("base", "sizes"), [pytest.param("IMAGES", (6, 3, 9, 6), marks=pytest.mark.long), ("DENSE", (6, 3, 9, 5))]
)
def test_common_batch_shape_is_static_and_does_not_change_results(base, sizes, eager):
    data = tiny.images(sizes, labels=((0, 1, 5),) * 4)
    weights = {}
    for name in ENGINES + ("auto",):
        settings = ("precision=float64", "levels.mix=c", "client={epochs: 1, batch_size: 3}", f"engine={name}")
        process = tiny.process(getattr(tiny, base), *settings, data=data)
        tf.config.run_functions_eagerly(name != "auto")
        state, _ = process.run(process.initialize(), tiny.plans(process, 2))
        weights[name] = tiny.arrays(state)
        is_static = name == "auto" and sizes[3] == 6
        assert process.setup.examples.batch_shapes == (((3, 1),) if is_static else (None,))
    assert tiny.gap(weights["auto"], weights["sequential"]) < 1e-13 > tiny.gap(weights["auto"], weights["stacked"])


@pytest.mark.parametrize(("case", "name"), RUNS)
def test_compiled_rounds_equal_the_plain_loop_in_one_trace_without_waiting(case, name):
    process = build_process(case, name)
    masked = process.recipe.client.loss.name == "masked_cross_entropy"
    # The compiled round cuts labels if possible, the plain loop never does.
    assert (process.setup.examples.labels is not None) == (masked and process.recipe.client.label_cut)
    assert set(process.setup.block_sizes) == {1 if name == "sequential" else 2}
    for cohort in COHORTS:
        check_against_plain_loop(process, case, cohort)
    # No operation of the graph makes clients wait for each other.
    assert stateful_operations(process.runner.compiled_round) == set()
    assert process.runner.compiled_round.experimental_get_tracing_count() == 1


def test_blocks_of_different_sizes_equal_the_plain_loop(eager):
    case = ("DENSE", "random", "float64", ("levels.mix=a1-c4", "partition.clients=5", "round.clients=5"))
    process = build_process(case, "stacked", parallel=1)
    assert process.engine_report()["clients_at_once"] == {"a": 2, "c": 4}
    for cohort in COHORTS:
        check_against_plain_loop(process, case, cohort)


def shapes_of(process):
    return batch_shapes(
        process.input, process.dataset.train.x, process.partition.train.sizes, process.recipe.client.batch_size
    )


def test_batch_shapes_are_those_of_the_plans():
    assert shapes_of(build_process(("DENSE", "random", "float64", ()), "sequential")) == ((4, 1), (3, 1), (1, 1))
    process = build_process(CUT, "sequential")
    plan = process.plan(0, range(5))
    counts = (plan.rows >= 0).sum(-1)
    read = {(int(count), min(4, 10 - int(start))) for count, start in zip(counts[counts > 0], plan.starts[counts > 0])}
    assert shapes_of(process) == tuple(sorted(read, reverse=True)) == ((2, 4), (2, 2), (1, 4), (1, 2))


@pytest.mark.long
def test_training_compiled_by_xla_equals_the_plain_loop():
    case = ("DENSE", "random", "float64", ())
    process = build_process(case, "stacked")
    process = tiny.with_setup(process, engine={"compiled": True}, examples={"batch_shapes": shapes_of(process)})
    check_against_plain_loop(process, case, "everyone")
    assert stateful_operations(process.runner.compiled_round) == set()


@pytest.mark.long
@pytest.mark.parametrize(("case", "cut_case"), [(PIXELS, PIXELS), (CUT, CUT), (WHOLE, CUT)])
def test_rounds_of_larger_models_equal_the_plain_loop(case, cut_case, eager):
    check_against_plain_loop(build_process(case, "stacked"), cut_case, "drawn")


def test_label_cut_shortens_the_axis_of_clients():
    cut, whole = build_process(CUT, "stacked"), build_process(WHOLE, "stacked")
    assert cut.setup.examples.labels.shape[1] < whole.setup.examples.present.shape[1] == cut.dataset.classes


def test_model_without_batched_form_runs_one_by_one_and_reports_the_reason(eager):
    case = (ODD, "random", "float64", ())
    process = build_process(case, "stacked")
    assert process.engine_report()["clients_at_once"] == dict.fromkeys("abc", 1)
    assert process.setup.engine.reasons == tuple(
        f"level {level} is computed client by client: a layer has no form for several clients at once"
        for level in "abc"
    )
    check_against_plain_loop(process, case, "drawn")


@pytest.mark.parametrize(
    ("name", "device", "expected"),
    [
        ("sequential", "cpu", (1, 1, 1, 1)),
        ("sequential", "gpu", (1, 1, 1, 1)),
        ("auto", "cpu", (1, 2, 4, 8)),
        ("stacked", "cpu", (2, 2, 4, 8)),
        ("auto", "gpu", (1, 3, 8, 18)),
        ("stacked", "gpu", (2, 3, 8, 18)),
    ],
)
def test_number_of_clients_computed_at_once(name, device, expected):
    """Levels with this mean number of clients in a round, two blocks in flight; a GPU's blocks have equal size."""
    many_clients = [engine.clients_at_once(name, many, "gpu", 2) for many in (20, 21, 41)]
    assert many_clients == [20, 11, 14] or name == "sequential"
    assert tuple(engine.clients_at_once(name, many, device, 2) for many in (1, 3, 8, 88)) == expected
    assert max(expected) <= (engine.MAX_GPU_CLIENTS if device == "gpu" else engine.MAX_CLIENTS)


def clients_at_once_of_levels(name="auto", base=tiny.DENSE, device="cpu"):
    """Clients at once of level a and of level c, with one and eight of a round's clients, two blocks in flight."""
    process = tiny.process(
        base, "levels.mix=a1-c8", "partition.clients=9", "round.clients=9", f"engine={name}", device=device, data=NINE
    )
    assert process.setup.engine.compiled == (device == "gpu") and process.setup.engine.reasons == ()
    return process.setup.block_sizes


NINE = tiny.images((4,) * 9, labels=((0, 1),) * 9)


def test_product_cost_decides_on_cpu_and_is_counted_only_there(monkeypatch):
    counted_levels, count = [], engine.product_cost

    def cost(family, level, *rest):
        counted_levels.append(level)
        assert 0 < count(family, level, *rest) < engine.MAX_PRODUCT_COST
        return dear[level]

    monkeypatch.setattr(engine, "product_cost", cost)
    dear = {"c": engine.MAX_PRODUCT_COST}
    assert clients_at_once_of_levels() == [1, 4] and counted_levels == ["c"]  # level a has one client a round
    dear = {"c": engine.MAX_PRODUCT_COST + 1}
    assert clients_at_once_of_levels() == [1, 1] and counted_levels == ["c", "c"]
    assert (
        clients_at_once_of_levels("stacked"),
        clients_at_once_of_levels("sequential"),
        clients_at_once_of_levels(device="gpu"),
    ) == ([2, 4], [1, 1], [1, 8])
    assert counted_levels == ["c", "c"]


def test_unbatched_levels_are_computed_one_by_one():
    base = tiny.DENSE + "\n"
    process = tiny.process(base, "client.stages=nested", "client.coupling=sum", "levels.mix=a1-c8", "engine=stacked")
    assert process.family.unbatched_levels == {"a", "c"}
    assert process.setup.block_sizes == [1, 1] and process.setup.engine.reasons == ()


def test_levels_with_one_submodel_and_ensemble_networks_share_blocks():
    widths = dict.fromkeys("abc", 1.0)
    levels = Levels(widths=widths, mix={"a": 1, "b": 2, "c": 1}, members={"a": 3})

    def expected(name, **options):
        round = SimpleNamespace(clients=8, policy=Plugin(name, options))
        recipe = SimpleNamespace(levels=levels, round=round)
        family = SimpleNamespace(recipe=recipe, submodels=("a", "b"), submodel_of=(0, 1, 0))
        return engine.expected_clients(family)

    assert expected("wait") == expected("over_selection", factor=1.5) == {"a": 8, "b": 4}
    # A new version has as many starts as results.
    assert expected("buffered", size=2) == {"a": 2, "b": 1} and expected("immediate") == {"a": 1, "b": 0.5}


def test_route_of_several_levels_has_one_model_that_is_probed_once(monkeypatch):
    probed = []
    monkeypatch.setattr(engine, "is_equivalent", lambda block, single, stage: probed.append(models_of(block)) or True)
    settings = ("client.stages=slimmable", "client.coupling=sum", "levels.mix=a4-c4", "partition.clients=9")
    process = tiny.process(tiny.DENSE, *settings, "round.clients=8", "engine=stacked", data=NINE)
    wide, narrow = (models_of(submodel.block) for submodel in process.setup.submodels)
    assert process.setup.block_sizes == [2, 2] and len(wide) == 2 and narrow[0] in wide
    assert probed == [wide]


def models_of(block):
    """The models of a block with one stage."""
    return [row_model.model for row_model in block.stages[0].joint.models]


def stateful_operations(function):
    """The stateful operations of a tf.function with one signature, as (graph, type) pairs.

    TensorFlow runs such operations of a graph in their order, and a loop or branch that contains one is stateful too:
    a single one in a client's graph makes all clients run one after the other.
    """
    graph = function.get_concrete_function().graph.as_graph_def()
    bodies = [
        ("", graph.node),
        *((library_function.signature.name, library_function.node_def) for library_function in graph.library.function),
    ]
    assert sum(len(nodes) for _, nodes in bodies) > 200
    return {
        (name, node.op)
        for name, nodes in bodies
        for node in nodes
        if not op_def_registry.get(node.op) or op_def_registry.get(node.op).is_stateful
    }


def test_loss_with_an_assertion_is_detected():
    def checked(logits, targets, present, outside):
        tf.debugging.assert_less(targets, 100)
        return tf.nn.sparse_softmax_cross_entropy_with_logits(targets, logits)

    process = tiny.process(tiny.DENSE, "engine=stacked", "levels.mix=a-c")
    setup = tiny.with_setup(process, algorithm={"loss": checked}).setup
    operations = stateful_operations(build_round(setup, process.state_layout))
    assert {"Assert", "While", "Case"} <= {kind for _, kind in operations}
