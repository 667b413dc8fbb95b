"""Low-rank adapters whose rank depends on the level: cut, merge and transfer, with a frozen base."""

import functools

import numpy as np
import oracle
import pytest
import tensorflow as tf
import tiny
from refusals import refusal

from hetero_tf import export
from hetero_tf.models.costs.level_costs import LevelCosts
from hetero_tf.models.variables import constants

BASE = (
    tiny.TEXT.replace("width: !w 8", "width: 8")
    .replace("head_width: !w 4, hidden: !w 12", "head_width: 4, hidden: 12")
    .replace("    - Dense:", "    - [Dense: {units: 6}, Scaler]\n    - Dense:")
    .replace("assignment: dynamic", "assignment: fixed")
)
ADAPTED = BASE.replace("hidden: 12", "hidden: 12, lora_rank: !w 4, lora_scale: 2.0").replace(
    "Dense: {units: 6}", "LoraDense: {units: 6, lora_rank: !w 4}"
)
# One adapter of vectors, for what happens to its ranks in a merge.
SMALL = tiny.DENSE.replace("Dense: {units: !w 8}", "LoraDense: {units: 6, lora_rank: !w 4}").replace("a-b-c", "a-c")
SMALL = SMALL.replace("dynamic", "fixed")
FROZEN = ADAPTED.replace("model:\n", "model:\n  frozen: [0]\n")
ADAMW = "optimizer={name: adamw, learning_rate: 0.05, epsilon: 0.001, clip_norm: 1.0}"
ALL_ROWS = ("round.label_rows=all", "client.loss=cross_entropy")
pytestmark = pytest.mark.usefixtures("eager")


@functools.cache
def built(*overrides, base=FROZEN):
    return tiny.process(base, "precision=float64", ADAMW, *overrides)


def is_adapter(path):
    return "lora/" in path


def with_adapters(process):
    """The initial state, with values in every adapter: at the start half of each is zero."""
    rng, state = np.random.default_rng(5), process.initialize()
    for path, value in state.weights.items():
        if is_adapter(path):
            state.weights[path] = tf.constant(rng.normal(0, 0.5, value.shape))
    return state


def tokens(process):
    return process.dataset.test.x[:, :4]


@pytest.mark.long
@pytest.mark.parametrize(
    ("engine", "submodel", "most", "uncovered"),
    [("sequential", "rolling", 1, "zeros"), ("stacked", "prefix", 2, "left_out")],
)
def test_rounds_equal_the_plain_loop(engine, submodel, most, uncovered):
    process = built(f"engine={engine}", f"round.submodel={submodel}", f"round.uncovered={uncovered}")
    assert process.setup.block_sizes == [most] * 2
    assert process.setup.engine.reasons == ()
    plans, initial = tiny.plans(process, 2), with_adapters(process)
    state, metrics = process.run(initial, plans)
    expected, losses = oracle.play(process, tiny.arrays(initial), plans)
    assert tiny.gap(tiny.arrays(state), expected) < 1e-10
    np.testing.assert_allclose([row["loss"] for row in metrics], np.asarray(losses)[:, 0], rtol=1e-10)
    moved = {path for path, value in initial.weights.items() if (value.numpy() != state.weights[path].numpy()).any()}
    assert moved == {path for path in process.paths if is_adapter(path) or path.startswith("3_0_dense/")}


def level_of(process, client):
    """The level that a client has in the whole run: rank 4 at a, 1 at c."""
    return process.recipe.levels.names[process.plan(0, [client]).levels[0]]


def columns(state, path):
    """A part of an adapter with the rank as its first axis."""
    value = state.weights[path].numpy()
    return np.moveaxis(value, -1, 0) if path.endswith("/a") else value


def test_a_rank_is_the_mean_over_the_clients_that_have_it_and_zeros_dilute_it():
    kinds = ("left_out", "zeros")
    runs = {kind: built("engine=sequential", f"round.uncovered={kind}", base=SMALL) for kind in kinds}
    process = runs["left_out"]
    (strong, *_), (weak, other, *_) = (
        [client for client in range(4) if level_of(process, client) == level] for level in "ac"
    )
    start = with_adapters(process)
    state_by_client = {client: process.next(start, cohort=[client])[0] for client in (strong, weak, other)}
    merged = {kind: run.next(start, cohort=[strong, weak, other])[0] for kind, run in runs.items()}
    for path in filter(is_adapter, process.paths):
        of = {client: columns(state, path) for client, state in state_by_client.items()}
        mean, diluted = (columns(merged[kind], path) for kind in runs)
        np.testing.assert_allclose(mean[:1], (of[strong] + of[weak] + of[other])[:1] / 3, atol=1e-14)
        np.testing.assert_allclose(mean[1:], of[strong][1:], atol=1e-14)
        np.testing.assert_allclose(diluted[:1], mean[:1], atol=1e-14)
        np.testing.assert_allclose(diluted[1:], of[strong][1:] / 3, atol=1e-14)
        # Ranks that only the strong client has stay unchanged without it; a mean with zeros shrinks them.
        assert (columns(state_by_client[weak], path)[1:] == columns(start, path)[1:]).all()
    lost, _ = runs["zeros"].next(start, cohort=[weak, other])
    assert all((columns(lost, path)[1:] == 0).all() for path in process.paths if is_adapter(path))


@pytest.mark.long
def test_initial_predictions_of_every_level_are_those_of_the_base(tmp_path):
    base = built(base=BASE.replace("model:\n", "model:\n  frozen: [0]\n"))
    renamed = {path.replace("2_0_dense/", "2_0_lora_dense/dense/"): v for path, v in base.initialize().weights.items()}
    np.savez(tmp_path / "base.npz", **{path: value.numpy() for path, value in renamed.items()})
    process = built(f"model.initial_weights={tmp_path / 'base.npz'}")
    state, expected = process.initialize(), base.model(base.initialize(), "a")(tokens(process))
    for level in ("a", "c"):
        np.testing.assert_array_equal(process.network(state, level)(tokens(process)), expected)
    drawn = built().initialize().weights
    for path, same in (("1_0_transformer_block/expand_lora/a", True), ("3_0_dense/kernel", False)):
        assert (state.weights[path].numpy() == drawn[path].numpy()).all() == same
    del renamed["3_0_dense/kernel"]
    np.savez(tmp_path / "base.npz", **{path: value.numpy() for path, value in renamed.items()})
    assert "3_0_dense/kernel is missing" in refusal(process.initialize)


def test_a_weak_level_is_the_global_model_without_its_last_ranks():
    process = built()
    state = with_adapters(process)
    weak, whole = (process.network(state, level)(tokens(process)).numpy() for level in ("c", "a"))
    assert np.abs(weak - whole).max() > 0.01
    for path in filter(is_adapter, process.paths):
        value = state.weights[path].numpy().copy()
        (np.moveaxis(value, -1, 0) if path.endswith("/a") else value)[1:] = 0
        state.weights[path] = tf.constant(value)
    np.testing.assert_allclose(process.network(state, "a")(tokens(process)), weak, atol=1e-12)


def test_no_scaler_divides_if_only_ranks_are_cut():
    for base, same in ((FROZEN, True), (FROZEN.replace("units: 6", "units: !w 6"), False)):
        model = built(base=base).family.new_training_model("c", 13)
        trained, tested = (model(tokens(built()), training=training).numpy() for training in (True, False))
        assert np.allclose(trained, tested, atol=1e-12) == same


@pytest.mark.long
def test_a_frozen_model_has_the_metrics_of_a_trainable_one_and_no_personal_units():
    (actual, _), (expected, _) = (
        process.evaluate(process.initialize()) for process in (built('model.frozen=["0", "3"]'), built(base=ADAPTED))
    )
    assert actual == pytest.approx(expected, rel=1e-12) and actual["global_perplexity"] > 1
    message = (
        "round.personal[0]: has no effect because model.frozen keeps it constant on all clients; unfreeze the unit or "
        "remove this key. Received: '0'"
    )
    assert message in refusal(tiny.process, ADAPTED, "model.frozen=[0]", "round.personal=[0]")


def test_neither_the_base_nor_frozen_units_are_transferred():
    process = built(*ALL_ROWS)
    for level, cost in zip("ac", process.client_costs):
        model = process.family.predictor(level)
        sizes = {v.path: int(np.prod(v.shape)) for v in model.trainable_variables}
        assert all(is_adapter(path) or path.startswith("3_0_dense/") for path in sizes)
        assert cost.bytes_down == cost.bytes_up == 8 * sum(sizes.values())
        assert len(constants(model)) + len(sizes) == len(process.paths)
    # The embedding of the base is sent if it is not frozen.
    thawed = built(*ALL_ROWS, base=ADAPTED).client_costs[0]
    table = (13 + 1 + 4 + 2) * 8
    assert thawed.bytes_down - process.client_costs[0].bytes_down == 8 * table


def test_constant_kernels_cost_no_weight_gradient():
    thawed, process = built("model.frozen=[]", base=BASE), built()
    block, dense = "1", "2"

    def of(process, unit):
        return LevelCosts(process.family, 13).units("a", 1.0)[unit]

    # Four positions; 8 inputs and 6 outputs, or rank 4.
    assert (of(thawed, dense).multiply_adds, of(thawed, dense).by_constants) == (4 * 48, 0)
    assert (of(process, dense).multiply_adds, of(process, dense).by_constants) == (4 * (48 + 4 * 14), 4 * 48)
    # Query, key, value and output 8 x 8 each, then 8 x 12 and 12 x 8.
    assert of(process, block).by_constants == 4 * (4 * 64 + 2 * 96)


@pytest.mark.long
@pytest.mark.parametrize("level", ["a", "c"])
def test_an_export_gives_the_logits_of_the_model(level, tmp_path):
    process = built()
    state = with_adapters(process)
    folder, _ = export.export(process, state, {}, tmp_path, {}, level)
    serve = tf.saved_model.load(str(folder)).signatures["serving_default"]
    inputs = tokens(process)
    name = next(iter(serve.structured_input_signature[1]))
    actual = serve(**{name: tf.constant(inputs)})["logits"]
    np.testing.assert_allclose(actual, process.network(state, level)(inputs), atol=1e-5)


UNFREEZABLE = {
    "nothing": ('model.frozen=["0", "1", "2", "3"]', BASE, "no weights are left to train; leave a unit out"),
    "no weights": ('model.frozen=["1"]', tiny.DENSE.replace("Scaler, ReLU]", "Scaler]\n    - ReLU"), "unit 1 has no "),
    "running averages": (
        'model.frozen=["0"]',
        tiny.IMAGES.replace("kind: sbn", "kind: bn"),
        "Norm has running averages, which move in every step, so its unit cannot be frozen",
    ),
}


@pytest.mark.parametrize("case", UNFREEZABLE)
def test_units_that_cannot_be_frozen_are_refused(case):
    override, base, expected = UNFREEZABLE[case]
    assert expected in refusal(tiny.process, base, override)


def test_frozen_units_stay_constant_and_leading_ones_cost_one_pass():
    process, thawed = (tiny.process(tiny.DENSE, *more) for more in (('model.frozen=["0"]',), ()))
    state = process.initialize()
    after, _ = process.run(state, tiny.plans(process, 2))
    changed = {path: (state.weights[path].numpy() != after.weights[path].numpy()).any() for path in process.paths}
    assert changed == {path: path.startswith("1_") for path in process.paths}
    expected, _ = oracle.play(process, tiny.arrays(state), tiny.plans(process, 2))
    assert tiny.gap(tiny.arrays(after), expected) < 1e-5
    (actual,), (whole,) = (each.client_costs[0].train_flops for each in (process, thawed))
    labels = thawed.setup.examples.present.shape[1]
    assert (whole, actual) == (6 * (2 * 8 + 8 * labels), 2 * 2 * 8 + 6 * 8 * labels)
