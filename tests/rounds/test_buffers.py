"""Buffers of frozen units: equal numbers with fewer operations, and refusals of other cases."""

import functools
from types import SimpleNamespace

import methods
import numpy as np
import pytest
import tensorflow as tf
import tiny

from hetero_tf.base.errors import InputError
from hetero_tf.data.inputs import Examples, Input, Pass, batch_shapes
from hetero_tf.models.costs.level_costs import LevelCosts
from hetero_tf.planning.packing import BlockPlan
from hetero_tf.reports.describe import describe
from hetero_tf.rounds.batches import Batches, check_buffers

EPOCHS = 3
# Batches of 2 for clients of 5 and 4 examples: short ones, and one client with a batch less.
SETTINGS = (f"client.epochs={EPOCHS}", "client.batch_size=2", "round.clients=4")
# The levels that have buffers.
BOTH = "levels.mix=b-c"
RANDOM = "input={name: images, mean: [0.4, 0.5], std: [0.3, 0.2], augment: crop_flip}"


@functools.cache
def build_process(buffered, *settings, base=methods.BARE):
    option = () if buffered is None else (f"buffered: {str(buffered).lower()}",)
    return tiny.process(base, "precision=float64", *methods.blockwise(*option), *SETTINGS, *settings)


def run_rounds(buffered, *settings, base=methods.BARE, change=lambda process: process, cohorts=(range(4),) * 2):
    """The state after rounds of these cohorts, and their metrics."""
    process = change(build_process(buffered, *settings, base=base))
    return process.run(process.initialize(), [process.plan(*each) for each in enumerate(cohorts, 1)])


def compile_with_xla(process):
    """The same process, compiled by XLA."""
    shapes = batch_shapes(
        process.input, process.dataset.train.x, process.partition.train.sizes, process.recipe.client.batch_size
    )
    return tiny.with_setup(process, engine={"compiled": True}, examples={"batch_shapes": shapes})


def gap(actual, expected):
    """The largest difference of two results of `run_rounds`, in weights, losses and norms."""
    (state, rows), (other, others) = actual, expected
    metrics = [[(row["loss"], row["gradient_norm"]) for row in each] for each in (rows, others)]
    return max(tiny.gap(tiny.arrays(state), tiny.arrays(other)), np.abs(np.subtract(*metrics)).max())


def late_clients(late, **seconds):
    """Settings with a deadline for clients whose steps take some seconds at each level."""
    devices = ", ".join(f"{level}: {{seconds_per_step: {each}}}" for level, each in seconds.items())
    policy = f"round.policy={{name: deadline, seconds: 0.2, late: {late}}}"
    return f"fleet={{assign: levels, devices: {{{devices}}}}}", policy


BRANCHES = ("client.stages={name: blockwise, exit: branch, buffered: %s}",)


def check_buffer(*settings, **options):
    """Compare rounds with and without buffers; %s in a setting is replaced by true and false."""
    buffered, plain = ([each.replace("%s", on) for each in settings] for on in ("true", "false"))
    assert gap(run_rounds(True, BOTH, *buffered, **options), run_rounds(False, BOTH, *plain, **options)) < 1e-13


@pytest.mark.long
def test_buffer_does_not_change_a_round(eager):
    # In round 1 they have both levels.
    check_buffer(*BRANCHES, cohorts=[(1, 3)])


@pytest.mark.long
@pytest.mark.parametrize("settings", [BRANCHES, ("engine=stacked",), late_clients("partial", a=0.01, b=0.01, c=0.02)])
def test_buffer_does_not_change_compiled_rounds(settings):
    check_buffer(*settings)


@pytest.mark.long
@pytest.mark.parametrize("late", ["drop", "partial"])
def test_clients_with_different_epochs_fill_buffers_from_one_pass(late):
    settings = (BOTH, "client.epochs={b: 3, c: 1}", *late_clients(late, b=0.01, c=0.005))
    assert gap(run_rounds(True, *settings), run_rounds(False, *settings)) < 1e-13


@pytest.mark.long
def test_buffer_does_not_change_results_with_xla():
    # XLA takes twice as long to compile larger kernels.
    base = methods.BARE.replace("PaddedConv2D: {", "PaddedConv2D: {kernel_size: 1, ")
    on, off = (
        run_rounds(True, "levels.mix=b1", base=base, change=compile_with_xla),
        run_rounds(False, "levels.mix=b1", base=base),
    )
    assert gap(on, off) < 1e-12


@pytest.mark.long
def test_float32_model_with_layer_norms_gives_equal_results():
    results = [run_rounds(on, BOTH, "precision=float32", base=methods.deep("ln")) for on in (True, False)]
    assert tiny.gap(*(tiny.arrays(state) for state, _ in results)) < 1e-5


def test_only_stages_with_frozen_units_have_buffers():
    for level, submodel in zip("abc", build_process(True).setup.submodels, strict=True):
        block = submodel.block
        frozen = [methods.blocks(level, number)[0][0].frozen for number in range(len(block.stages))]
        assert [stage.before is not None for stage in block.stages] == [units > 0 for units in frozen]
    assert all(stage.before is None for each in build_process(None).setup.submodels for stage in each.block.stages)


def test_frozen_units_cost_one_pass_instead_of_one_per_epoch():
    buffered, plain = (build_process(on).client_costs for on in (True, False))
    assert buffered[0] == plain[0] and buffered[1].train_flops[0] == plain[1].train_flops[0]
    family = build_process(True).family
    products = {unit: cost for unit, cost in _products(family).items() if unit in ("0", "1")}
    saved = 2 * sum(products.values()) * (1 - 1 / EPOCHS)
    assert plain[1].train_flops[1] - buffered[1].train_flops[1] == pytest.approx(saved)


def test_describe_reports_buffer_memory():
    level_load = describe(build_process(True)).about["loads"]["levels"]["b"]
    # 5 x 5 maps of 4 channels in float64 for 25 examples of 4 clients.
    assert [part["buffer"] for part in level_load["parts"]] == [0, 5 * 5 * 4 * 8 * 25 / 4]
    assert all(
        part["buffer"] == 0
        for load in describe(build_process(False)).about["loads"]["levels"].values()
        for part in load["parts"]
    )


def _products(family):
    costs = LevelCosts(family, family.classes)
    return {unit: cost.multiply_adds for unit, cost in costs.units("b", 1.0).items()}


@pytest.mark.parametrize(
    ("base", "settings", "problem"),
    [
        (methods.DEEP, (), "frozen units read the whole batch, as batch norms do; use other norms"),
        (methods.TRACKED, ("client.loss=cross_entropy",), "frozen units read the whole batch"),
        (methods.BARE, (RANDOM,), "the input is random or a part of an example; remove augmentation and masks"),
        (methods.BARE.replace("ReLU]\n", "ReLU, Dropout: {rate: 0.5}]\n", 1), (), "frozen units have dropout; remove it"),
    ],
    ids=["sbn", "bn", "augment", "dropout"],
)  # fmt: skip
def test_buffer_that_would_change_results_is_refused(base, settings, problem):
    with pytest.raises(InputError) as refused:
        build_process(True, *settings, base=base)
    assert str(refused.value).startswith(
        f"client.stages.buffered must be false here, where a buffer would change the result: {problem}"
    )
    build_process(False, *settings, base=base)


def test_text_is_refused_before_its_units_are_checked():
    block = SimpleNamespace(stages=[SimpleNamespace(before=SimpleNamespace(models=[None]))])
    for source in (SimpleNamespace(random=True), SimpleNamespace(random=False, starts=lambda x: (0, 8))):
        with pytest.raises(InputError, match="the input is random or a part of an example"):
            check_buffers(source, None, block)


def test_frozen_units_run_once_per_example_and_short_batches_are_padded():
    table, seen = np.random.default_rng(0).normal(size=(9, 3)), []

    def read(x, y, rows, start, key, labels, training, length):
        return rows, rows

    def forward(rows):
        tf.py_function(lambda rows: seen.append(rows.numpy().ravel().tolist()), [rows], [])
        return tf.gather(tf.constant(table), rows)

    # Two ticks of another stage, then two epochs of five examples in different orders.
    rows = tf.constant([[[8, 8], [8, 8], [4, 0], [7, 2], [5, -1], [2, 5], [0, 4], [7, -1]]], tf.int32)
    stages = tf.constant([0] * 2 + [1] * 6)
    plan = BlockPlan(
        tf.zeros([1], tf.int32), tf.zeros([1], tf.int32), tf.constant(8), rows, tf.zeros_like(stages), stages
    )
    source, sizes, longest = Input(read, None, None, None, None, False, False), tf.constant([5]), Pass(4, 2)
    examples = Examples(source, tf.constant(table), None, 0, None, None, None, (None,), sizes, longest)
    batches = Batches(examples, plan, plan.clients, None, plan.ticks).through_buffer(1, forward, (3,), tf.float64)
    assert seen == [[4, 0], [7, 2], [5, 0]]
    for tick, expected in ((5, [[2, 5]]), (7, [[7]]), (6, [[0, 4]])):
        inputs, targets = batches.read(tick, None, None)
        assert targets.numpy().tolist() == expected
        np.testing.assert_array_equal(inputs, table[expected])
    assert len(seen) == 3
