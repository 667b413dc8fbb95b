"""Buffers of frozen units: the same numbers as without them, fewer operations, refusals where that does not hold."""

import functools

import methods
import numpy as np
import pytest
import tensorflow as tf
import tiny

from hetero_tf.base.errors import InputError
from hetero_tf.describe import describe
from hetero_tf.inputs.examples import batch_shapes
from hetero_tf.models.costs.level_costs import Costs
from hetero_tf.rounds import buffers

EPOCHS = 3
# Batches of 2 for clients of 5 and 4 examples: short ones, and one client with a batch less.
SETTINGS = (f"client.epochs={EPOCHS}", "client.batch_size=2", "round.clients=4")
# The levels that have buffers.
BOTH = "levels.mix=b-c"
RANDOM = "input={name: images, mean: [0.4, 0.5], std: [0.3, 0.2], augment: crop_flip}"


@functools.cache
def process(buffered, *settings, base=methods.BARE):
    option = () if buffered is None else (f"buffered: {str(buffered).lower()}",)
    return tiny.process(base, "precision=float64", *methods.blockwise(*option), *SETTINGS, *settings)


def played(buffered, *settings, base=methods.BARE, change=lambda process: process):
    """The state after two rounds, and their metrics."""
    given = change(process(buffered, *settings, base=base))
    return given.run(given.initialize(), [given.plan(round, range(4)) for round in range(2)])


def compiled(process):
    """The same process, as XLA computes it."""
    shapes = batch_shapes(process.recipe, process.dataset, process.partition, process.input)
    return tiny.with_parts(process, engine={"compiled": True}, examples={"batch_shapes": shapes})


def gap(found, wanted):
    """The largest difference of two results of `played`, in weights, losses and norms."""
    (state, rows), (other, others) = found, wanted
    told = [[(row["loss"], row["gradient_norm"]) for row in each] for each in (rows, others)]
    return max(tiny.gap(tiny.arrays(state), tiny.arrays(other)), np.abs(np.subtract(*told)).max())


@pytest.mark.parametrize(
    "settings",
    [
        ("client.stages={name: blockwise, exit: branch, buffered: %s}",),
        pytest.param(("engine=stacked",), marks=pytest.mark.long),
        pytest.param(
            ("availability={deadline: 0.2, seconds_per_step: {a: 0.01, b: 0.01, c: 0.02}, late: partial}",),
            marks=pytest.mark.long,
        ),
    ],
    ids=["branches", "stacks", "late"],
)
def test_a_buffer_changes_nothing(settings):
    plain, kept = ([each % str(on).lower() if "%s" in each else each for each in settings] for on in (False, True))
    assert gap(played(True, BOTH, *kept), played(False, BOTH, *plain)) < 1e-13


@pytest.mark.long
@pytest.mark.parametrize("late", ["drop", "partial"])
def test_clients_of_other_epochs_fill_buffers_from_one_pass(late):
    limited = f"availability={{deadline: 0.2, seconds_per_step: {{b: 0.01, c: 0.005}}, late: {late}}}"
    given = (BOTH, "client.epochs={b: 3, c: 1}", limited)
    assert gap(played(True, *given), played(False, *given)) < 1e-13


@pytest.mark.long
def test_a_buffer_changes_nothing_where_xla_compiles():
    # XLA takes twice as long to compile larger kernels.
    base = methods.BARE.replace("PaddedConv2D: {", "PaddedConv2D: {kernel_size: 1, ")
    on, off = played(True, "levels.mix=b1", base=base, change=compiled), played(False, "levels.mix=b1", base=base)
    assert gap(on, off) < 1e-12


@pytest.mark.long
def test_a_float32_model_with_layer_norms_comes_to_the_same():
    found = [played(on, BOTH, "precision=float32", base=methods.deep("ln")) for on in (True, False)]
    assert tiny.gap(*(tiny.arrays(state) for state, _ in found)) < 1e-5


def test_only_stages_with_frozen_units_have_buffers():
    for level, stack in zip("abc", process(True).parts.engine.stacks, strict=True):
        frozen = [methods.blocks(level, number)[0][0].frozen for number in range(len(stack.stages))]
        assert [stage.before is not None for stage in stack.stages] == [units > 0 for units in frozen]
    assert all(stage.before is None for stack in process(None).parts.engine.stacks for stage in stack.stages)


def test_frozen_units_are_counted_once_instead_of_in_every_epoch():
    kept, plain = (process(on).client_costs for on in (True, False))
    assert kept[0] == plain[0] and kept[1].train_flops[0] == plain[1].train_flops[0]
    family = process(True).family
    products = {unit: cost for unit, cost in _products(family).items() if unit in ("0", "1")}
    saved = 2 * sum(products.values()) * (1 - 1 / EPOCHS)
    assert plain[1].train_flops[1] - kept[1].train_flops[1] == pytest.approx(saved)


def test_describe_says_what_a_buffer_takes():
    found = describe(process(True)).loads.levels[1]
    # 5 x 5 maps of 4 channels in float64 for 25 examples of 4 clients.
    assert [part.buffer for part in found.parts] == [0, 5 * 5 * 4 * 8 * 25 / 4]
    assert all(part.buffer == 0 for load in describe(process(False)).loads.levels for part in load.parts)


def _products(family):
    costs = Costs(family, (5, 5, 2), family.classes)
    return {unit: cost.multiply_adds for unit, cost in costs.units("b", 1.0).items()}


def test_the_frozen_units_run_once_for_each_example_and_short_batches_keep_their_places():
    table, seen = np.random.default_rng(0).normal(size=(9, 3)), []

    def forward(rows):
        tf.py_function(lambda rows: seen.append(rows.numpy().ravel().tolist()), [rows], [])
        return tf.gather(tf.constant(table), rows)

    # Two ticks of another stage, then two epochs of five examples in another order each.
    rows = tf.constant([[8, 8], [8, 8], [4, 0], [7, 2], [5, -1], [2, 5], [0, 4], [7, -1]], tf.int32)
    read = buffers.fill_buffer(
        forward, (3,), tf.float64, rows, 2, 8, tf.constant(5), buffers.Pass(batches=4, batch=2), 9
    )
    assert seen == [[4, 0], [7, 2], [5, 0]]
    for asked in ([[2, 5]], [[7]], [[0, 4]]):
        np.testing.assert_array_equal(read(tf.constant(asked)), table[asked])
    assert len(seen) == 3


@pytest.mark.parametrize(
    ("base", "settings", "problem"),
    [
        (methods.DEEP, (), "units that stand still look at the rest of the batch, as batch norms do; use other norms"),
        (methods.TRACKED, ("client.loss=cross_entropy",), "units that stand still look at the rest of the batch"),
        (methods.BARE, (RANDOM,), "a client never reads the same input twice; leave out augmentation and masks"),
        (
            methods.BARE.replace("ReLU]\n", "ReLU, Dropout: {rate: 0.5}]\n", 1),
            (),
            "units that stand still have dropout; leave it out",
        ),
    ],
    ids=["sbn", "bn", "augment", "dropout"],
)
def test_what_a_buffer_would_change_is_refused(base, settings, problem):
    with pytest.raises(InputError) as refused:
        process(True, *settings, base=base)
    assert str(refused.value).startswith(
        f"client.stages.buffered must be false here, where a buffer would change the result: {problem}"
    )
    process(False, *settings, base=base)


def test_text_is_refused_before_its_units_are_looked_at():
    with pytest.raises(InputError, match="never reads the same input twice"):
        tiny.process(
            methods.TEXT,
            "levels.widths={a: 1, c: 1}",
            "levels.budgets={a: 1, c: 0.5}",
            "client.stages={name: blockwise, exit: branch, buffered: true}",
        )
