"""Deployment: a round of devices is the simulator's, and answers that are not what they must be are refused."""

import dataclasses
import functools
import math

import exports
import numpy as np
import pytest
import tiny
from fleets import LocalFleet, check_equal
from refusals import refusal

import hetero_tf
from hetero_tf.base.errors import InputError
from hetero_tf.devices import on_device, tensorflow_client
from hetero_tf.devices.device_index import transfer_of
from hetero_tf.devices.device_rounds import deployed
from hetero_tf.devices.machine import DeviceSettings, LiteRTClient, build_device, share_of
from hetero_tf.devices.messages import ITS_LEVEL, NOTHING, Member, Message, Refused, parse_member, shapes_of
from hetero_tf.devices.tensorflow_client import TensorFlowClient
from hetero_tf.recipe import load, loads

OVERRIDES = (
    "levels.assignment=fixed",
    "evaluate.statistics=clients",
    "partition.clients=5",
    "round.clients=5",
    "client.epochs=1",
)
# Every device traces its own steps. All clients have equally many examples: a LiteRT file has a graph for each size.
LABELS = "{name: labels, clients: 2, per_client: 5}"
IMAGES = (
    # An export of two channels has no graph that decodes pictures.
    "data={name: synthetic, kind: images, examples: 100, test_examples: 40, size: 6, channels: 2}",
    "input={name: images, mean: [0.5, 0.5], std: [0.25, 0.25]}",
    "model.settings={}",
    "model.layers=[[PaddedConv2D: {filters: !w 8}, Scaler, Norm: {kind: sbn}, ReLU], GlobalAveragePooling2D, Dense: {units: !classes}]",
    *("levels.mix=a-c", "round.clients=2", "client.batch_size=25"),
)
TABLE = (
    "model.settings={}",
    "model.layers=[[Dense: {units: !w 8}, Scaler, ReLU], Dense: {units: !classes}]",
    *("partition.clients=3", "round.clients=3", "client.batch_size=20"),
)
UNET = ("model.settings.norm=in", "partition.clients=2", "round.clients=2")
DENSE = "model.layers=[[GlobalAveragePooling2D, Dense: {units: !w 8}, Scaler, ReLU], Dense: {units: !classes}]"


@functools.cache
def fleet_of(recipe, *overrides):
    """(simulator's process, deployed process) of the same recipe, all of whose clients are devices with TensorFlow."""
    simulated = hetero_tf.learning_process(load(recipe, (*OVERRIDES, *overrides)))
    device_process = hetero_tf.learning_process(load(recipe, (*OVERRIDES, *overrides, "engine=sequential")))
    plan = simulated.plan(0, cohort=range(len(simulated.partition.train)))
    names = simulated.recipe.levels.names
    levels = {int(client): names[level] for client, level in zip(plan.clients, plan.levels)}
    assert set(levels.values()) == set(names)
    devices = {
        client: TensorFlowClient(device_process, client, client, level) for client, level in sorted(levels.items())
    }
    return simulated, deployed(simulated, LocalFleet(simulated, devices))


def images(partition=LABELS, *overrides):
    return fleet_of("tiny/digits", *IMAGES, f"partition={partition}", *overrides)


@pytest.fixture(scope="module")
def digits():
    return images()


def check_round(simulated, real, rel=1e-5):
    """One compiled round is the simulator's eager one within 1e-6, and so are bytes and the plan."""
    state = simulated.initialize()
    with tiny.eagerly():
        expected, row = simulated.next(state)
    actual, device_row = real.next(state)
    assert device_row["refused"] == device_row["dropped"] == device_row["non_finite"] == 0
    for name in ("loss", "gradient_norm"):
        assert device_row[name] == pytest.approx(row[name], rel=rel)
    for name in ("levels", "bytes_down", "bytes_up", "train_flops", "learning_rate"):
        assert device_row[name] == row[name]
    assert max(np.abs(expected.weights[path] - state.weights[path]).max() for path in expected.weights) > 1e-3
    check_equal(actual, expected)
    return expected


def test_rounds_of_devices_are_the_simulators_and_traced_once(digits, monkeypatch):
    simulated, real = digits
    state = check_round(simulated, real)
    monkeypatch.setattr(tensorflow_client, "train_block", None)
    _, row = real.next(state)
    assert row["dropped"] == row["refused"] == 0


def test_only_devices_of_the_global_level_measure_its_statistics(digits):
    _, real = digits
    state = tiny.perturbed(real.initialize())
    actual = real.runner.statistics(state)
    assert actual and {member.level for member in real.runner.fleet.members(0).values()} == {"a", "c"}
    metrics, statistics = real.evaluate(state)
    assert 0 <= metrics["global_accuracy"] <= 100
    for path, value in statistics["a"].items():
        np.testing.assert_array_equal(value, actual[path])


@pytest.mark.long
@pytest.mark.parametrize(
    "overrides",
    [
        (DENSE, "client.correction={name: proximal, mu: 0.1}"),
        (DENSE, "round.server={name: adam}"),
        ("round.submodel=rolling", "round.weighting=samples"),
        (DENSE, "client.label_cut=false"),
        (DENSE, "round.merge=fednova", "round.weighting=samples"),
        (DENSE, "round.merge=geometric_median"),
    ],
)
def test_rounds_of_other_methods_are_the_simulators(overrides):
    check_round(*images("{name: iid, clients: 2}", *overrides))


TABLES = [
    "tiny/table_regression",
    *(pytest.param(f"tiny/table_{task}", marks=pytest.mark.long) for task in ("multi_label", "ordinal")),
]


@pytest.mark.parametrize("recipe", [*TABLES, pytest.param("tiny/shapes_unet", marks=pytest.mark.long)])
def test_rounds_and_metrics_of_other_tasks_are_the_simulators(recipe):
    simulated, real = fleet_of(recipe, *(UNET if recipe == "tiny/shapes_unet" else TABLE))
    state = check_round(simulated, real)
    expected, (metrics, _) = simulated.evaluate(state, "global")[0], real.evaluate(state)
    for name in simulated.recipe.metrics:
        assert metrics[f"global_{name}"] == pytest.approx(expected[f"global_{name}"], rel=1e-3)


def with_litert(simulated, real):
    """(simulator's process, deployed process) whose devices of level c train an export with LiteRT."""
    pytest.importorskip("ai_edge_litert")
    file = exports.versions(simulated, ("c",), ("litert_train",))["c"].folder
    devices = dict(real.runner.fleet.devices)
    narrow = [client for client, device in devices.items() if device.level == "c"]
    assert 0 < len(narrow) < len(devices)
    for client in narrow:
        assert share_of(simulated.recipe, len(devices), client, None) == (client, "c")
        rows, train = simulated.partition.train[client], simulated.dataset.train
        labels = np.flatnonzero(simulated.present_outputs[client]).astype(np.int32)
        device = on_device.LiteRTTrainer(file)
        member = Member(client, "c", len(rows), labels, ITS_LEVEL if device.statistics_shapes else NOTHING)
        earlier = tuple(simulated.partition.train.sizes[:client].tolist())
        devices[client] = LiteRTClient(simulated.recipe, device, member, train.x[rows], train.y[rows], earlier)
    return simulated, deployed(simulated, LocalFleet(simulated, devices))


@pytest.mark.long
@pytest.mark.parametrize("recipe", TABLES)
def test_a_round_of_another_task_with_devices_of_litert_is_the_simulators(recipe):
    check_round(*with_litert(*fleet_of(recipe, *TABLE)), rel=1e-4)


@pytest.mark.long
@pytest.mark.parametrize("partition", ["{name: iid, clients: 2}", LABELS])
def test_a_round_with_devices_of_litert_is_the_simulators(partition):
    simulated, real = with_litert(*images(partition))
    check_round(simulated, real, rel=1e-4)
    actual, _ = real.next(simulated.initialize())
    # Every device can measure level c, so its statistics are the simulator's; a file measures its level only.
    expected, measured = simulated.statistics(actual, "c"), real.runner.statistics(actual, "c")
    for path, value in expected.items():
        np.testing.assert_allclose(measured[path], value, atol=1e-5 * np.abs(value).max(), err_msg=path)
    narrow = next(device for device in real.runner.fleet.devices.values() if isinstance(device, LiteRTClient))
    with pytest.raises(Refused, match="the file of level c cannot measure statistics of level 'a'"):
        narrow.respond("statistics", Message({}, {"round": 0, "level": "a"}))
    # An evaluation measures the levels of files too, and the next round sends them what it measured.
    client = narrow.trainer
    real.evaluate(actual)
    real.next(actual)
    assert client.statistics_shapes.keys() == expected.keys()
    client.push(weights := client.pull())
    pixels = simulated.dataset.test.x.astype(np.float32)
    sent = client.infer(image=pixels)["logits"]
    client.push(weights, {path: np.asarray(value) for path, value in measured.items()})
    np.testing.assert_array_equal(client.infer(image=pixels)["logits"], sent)
    with pytest.raises(Refused, match="the values are not those of the file"):
        narrow.respond("training", Message({}, {"round": 0, "learning_rate": 0.1}))


@pytest.mark.parametrize(
    ("clients", "client", "level", "sentence"),
    [
        (5, 5, None, "--client must be one of the 5 clients of the recipe's partition, 0 to 4; a device with local data"),
        (5, -1, None, "--client must be one of the 5 clients"),
        (5, 0, "z", "--level must be one of the mix, a, b, c. Received: --level=z"),
        (1, 7, None, "--level is missing"),
    ],
)  # fmt: skip
def test_device_without_a_share_of_the_data_is_refused(clients, client, level, sentence):
    recipe = load("tiny/digits", OVERRIDES)
    assert sentence in refusal(share_of, recipe, clients, client, level)
    # A device with local data has the only share.
    assert share_of(recipe, 1, 7, "b") == (0, "b")


def test_a_device_with_local_data_does_not_standardize_numbers():
    keys = "name: local\npartition.clients: 1\nround.clients: 1\nlevels: {assignment: fixed, mix: a}\n"
    recipe = loads(f"base: tiny/table_regression\n{keys}", "local.yaml")
    with pytest.raises(InputError, match="must set task='{name: regression, scale: none}'. Received: task: regression"):
        build_device(DeviceSettings(recipe, None, 1, client=7, level="a"))


def test_transferred_bytes_equal_those_of_describe(digits):
    simulated, real = digits
    costs = dict(zip(simulated.recipe.levels.names, simulated.client_costs))
    sizes = {path: np.asarray(value).itemsize for path, value in real.blank().weights.items()}
    for client, member in real.runner.fleet.members(0).items():
        transfer = transfer_of(real, client, member.level, member.labels, 0)
        down, up = (
            sum(math.prod(shape) * sizes[path] for path, shape in shapes_of(way).items())
            for way in (transfer.down, transfer.up)
        )
        assert (down, up) == (costs[member.level].bytes_down, costs[member.level].bytes_up)


def changed(change):
    """Return a device's answer with its first value changed, as bytes or as an array."""

    def answer(message):
        path, data = next(iter(message.arrays.items()))
        return dataclasses.replace(message, arrays=change(dict(message.arrays), path, data))

    return answer


def replaced(new):
    return lambda arrays, path, data: arrays | {path: new(data)}


HOSTILE = {
    "holds NaN or infinity": replaced(lambda data: data[:-4] + np.float32(np.nan).tobytes()),
    "bytes, float32": replaced(lambda data: data[:-4]),
    "is unknown": lambda arrays, path, data: arrays | {"more": data},
    "is missing": lambda arrays, path, data: {name: value for name, value in arrays.items() if name != path},
}


@pytest.fixture(scope="module")
def without_the_last(digits):
    """(state, metrics) of a first round in which the last device does not answer."""
    _, real = digits
    plan = real.plan(0)
    silent = {int(plan.clients[-1]): lambda message: None}
    fleet = deployed(real, LocalFleet(real, real.runner.fleet.devices, silent))
    state, (row,) = fleet.run(real.initialize(), [plan])
    return state, row


@pytest.mark.parametrize("reason", HOSTILE)
def test_a_hostile_device_is_refused_and_counted_and_changes_no_bit_of_the_others(digits, without_the_last, reason):
    _, real = digits
    state = real.initialize()
    everybody = real.plan(0)
    liar = int(everybody.clients[-1])
    fleet = deployed(real, LocalFleet(real, real.runner.fleet.devices, {liar: changed(HOSTILE[reason])}))
    actual, (row,) = fleet.run(state, [everybody])
    expected, without = without_the_last
    bad = reason == "holds NaN or infinity"
    assert (row["refused"], row["non_finite"], row["dropped"]) == (int(not bad), int(bad), 0)
    assert (without["refused"], without["non_finite"], without["dropped"]) == (0, 0, 1)
    assert f"client {liar} was refused" in fleet.runner.fleet.messages[0] and reason in fleet.runner.fleet.messages[0]
    for path, value in expected.weights.items():
        np.testing.assert_array_equal(actual.weights[path], value)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        *(({"client": client}, "client must be 0") for client in (3, True, 0.0, "0", 10**5000)),
        ({"recipe": "x"}, "recipe must be the server's"),
        ({"level": "z"}, "level must be one of a, c"),
        ({"examples": 101}, "examples must be a whole number from 1 to 100, the number of the server's training data"),
        ({"examples": True}, "examples must be a whole number"),
        ({"labels": [1, 1]}, "labels must be a list"),
        ({"labels": [10]}, "labels must be a list"),
        ({"measures": True}, "measures must be one of nothing, its level, narrower levels"),
    ],
)
def test_device_with_invalid_claims_does_not_take_part(digits, change, sentence):
    _, real = digits
    claims = real.runner.fleet.devices[0].respond("introduction", Message()).metadata
    assert sentence in refusal(parse_member, {**claims, **change}, 0, real.recipe, 10, 100, kind=Refused)
