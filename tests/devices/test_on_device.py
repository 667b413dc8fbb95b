"""Training on devices: `hetero_tf.devices.on_device` repeats the steps of the simulator's clients."""

import functools
import json

import exports
import numpy as np
import programs
import pytest
import tiny
from refusals import refusal
from simulated import Simulated

import hetero_tf
from hetero_tf import export
from hetero_tf.data.inputs import all_labels
from hetero_tf.devices import on_device
from hetero_tf.evaluation.statistics_query import statistics_rng
from hetero_tf.export.formats import litert_train
from hetero_tf.export.formats.litert_train import check_trainable
from hetero_tf.recipe import load

# A device is compared with a client of the simulator that is computed alone and has the whole label axis.
ALONE = ("engine=sequential",)
WHOLE = "client.label_cut=false"
FIXED = "levels.assignment=fixed"
# Rounding grows over the steps, with TensorFlow's and LiteRT's graphs.
OPTIMIZE_GRAPHS = True
MOST_STEPS = 20
# Few layers, which take half of the time to convert; an export of two channels has no graph that decodes pictures.
TWO_CONVOLUTIONS = (
    "model.settings={}",
    "model.layers=[[PaddedConv2D: {filters: !w 8}, Scaler, Norm: {kind: sbn}, ReLU, MaxPooling2D], "
    "[PaddedConv2D: {filters: !w 8}, ReLU], GlobalAveragePooling2D, Dense: {units: !classes}]",
    "data={name: synthetic, kind: images, examples: 120, test_examples: 40, size: 8, channels: 2}",
    "input={name: images, mean: [0.5, 0.5], std: [0.25, 0.25]}",
    "partition={name: iid, clients: 10}",
)
# Two blocks have seven Dropouts with the embedding; a block takes much longer to convert than the other six.
MANY_DROPOUTS = (
    "model.layers=[MaskedTokenEmbedding: {positions: !setting positions, width: !setting width, dropout: 0.2, "
    "classes: !classes}, Repeat: {times: !setting blocks, same_initial_values: true, layer: {TransformerBlock: "
    "{heads: !setting heads, head_width: !setting head_width, hidden: !setting hidden, dropout: 0.2}}}, "
    f"[{', '.join(['Dropout: {rate: 0.1}'] * 6)}], [Dense: {{units: !setting width, kernel_initializer: "
    "fan_in_uniform}, Scaler, GELU, LayerNormalization: {epsilon: 1.0e-5}], Dense: {kernel_initializer: "
    "fan_in_uniform, units: !classes}]"
)
RECIPES = {
    # Batches of 8 and 4 examples: each size is a signature of its own.
    "cnn": ("tiny/mnist_noniid", ("levels.mix=a1-c1", "client.epochs=4", "client.batch_size=8", *TWO_CONVOLUTIONS), WHOLE),
    "regression": (
        "tiny/table_regression",
        (
            "client.epochs=4",
            "model.settings={}",
            "model.layers=[[Dense: {units: !w 8}, Scaler, ReLU], Dense: {units: !classes}]",
        ),
    ),
    "resnet": ("tiny/cifar10", ("levels.mix=c", "client.epochs=10"), WHOLE),
    "multi_label": ("tiny/table_multi_label", ("client.epochs=10",)),
    "ordinal": ("tiny/table_ordinal", ("client.epochs=10",)),
    # At the full rate, 20 steps of a U-Net amplify rounding; one channel has almost equal maxima in poolings.
    "segmentation": (
        "tiny/shapes_unet",
        (
            "levels.mix=a1-c1",
            "client.epochs=10",
            "input.augment=crop_flip",
            "model.settings.filters=!w 8",
            # A pooling, an upsampling and a concatenation, as at every depth; conversion takes half of the time.
            "model.settings.depth=1",
            "optimizer.learning_rate=0.002",
        ),
    ),
    # Thirteen Dropouts: the names of their numbers are not in the order of the alphabet. Segments of one length.
    "transformer": ("tiny/wikitext2", ("levels.mix=c", "client.epochs=3", MANY_DROPOUTS, "data.length=112"), WHOLE),
}  # fmt: skip


@functools.cache
def exported(name, *levels):
    """(process, state, {level: folder of its export}) of a recipe and some of its levels; of all levels by default."""
    pytest.importorskip("ai_edge_litert")
    recipe, overrides, *whole = RECIPES[name]
    process = hetero_tf.learning_process(load(recipe, (FIXED, *ALONE, *whole, *overrides)))
    versions = exports.versions(process, levels or process.recipe.levels.names, ("litert_train",))
    return process, exports.state(process), {level: version.folder for level, version in versions.items()}


@pytest.fixture
def cnn():
    return exported("cnn")


def check_steps(process, state, versions):
    """A device's steps are those of the simulator's client of the same level."""
    plan = process.plan(0, cohort=range(len(process.partition.train)))
    for level, version in versions.items():
        slot = int(np.flatnonzero(plan.levels == process.recipe.levels.names.index(level))[0])
        client, local = Simulated(process, state, plan, slot, MOST_STEPS), on_device.LiteRTTrainer(version)
        start = client.cut()
        local.push(start)
        reports = [local.train([batch], client.learning_rate, client.present, None) for batch in client.batches()]
        with tiny.eagerly():
            losses, trained = client.train()
        pulled = local.pull()
        assert len(reports) == client.steps >= 8 and pulled.keys() == trained.keys()
        np.testing.assert_allclose([report.loss for report in reports], losses, atol=1e-4)
        assert max([np.abs(trained[path] - start[path]).max() for path in trained]) > 1e-3
        for path, value in trained.items():
            np.testing.assert_allclose(pulled[path], value, atol=1e-3 * max(np.abs(value).max(), 0.01), err_msg=path)


@pytest.mark.long
@pytest.mark.parametrize("level", ["a", "c"])
def test_steps_of_a_cnn_are_the_simulators(level):
    check_steps(*exported("cnn", level))


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.long) for name in list(RECIPES)[1:]])
def test_steps_of_other_models_and_tasks_are_the_simulators(name):
    check_steps(*exported(name))


WITHOUT_TENSORFLOW = """
import json, sys

import numpy as np

# Importing a module that is None raises ImportError.
sys.modules |= dict.fromkeys(("tensorflow", "keras", "tensorflow_datasets", "pyarrow"))
from hetero_tf.devices import on_device

recipe, folder = sys.argv[1:]
trainer = on_device.LiteRTTrainer(folder)
loaded = [name for name in sys.modules if name.startswith("hetero_tf")]
rng = np.random.default_rng(0)
x, y = rng.integers(0, 256, (20, 8, 8, 2), np.uint8), rng.integers(0, 10, 20)
before = trainer.pull()
report = trainer.train(trainer.batches(x, y, 2, rng), 0.1, trainer.present(y), rng)
after = trainer.pull()

from hetero_tf.devices import machine
from hetero_tf.devices.messages import Message
from hetero_tf.recipe import loads

settings = machine.DeviceSettings(loads(recipe, "recipe.yaml"), None, 1, client=1, litert=folder)
device = machine.build_device(settings)
weights = {path: value.tobytes() for path, value in before.items()}
response = device.respond("training", Message(weights, {"round": 0, "learning_rate": 0.05}))
print(json.dumps({
    "steps": report.steps, "examples": report.examples, "loss": report.loss, "norm": report.gradient_norm,
    "moved": all((before[path] != after[path]).any() for path in before), "loaded": loaded,
    "logits": trainer.infer(image=x.astype("float32") / 255)["logits"].shape,
    "client": device.respond("introduction", Message({}, {})).metadata["client"],
    "response": response.metadata["loss"], "values": response.arrays.keys() == before.keys(),
}))
"""


@pytest.mark.long
def test_a_device_needs_no_tensorflow(cnn):
    process, _, versions = cnn
    done = programs.python(WITHOUT_TENSORFLOW, process.recipe.source, str(versions["c"]))
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    assert (report["steps"], report["examples"], report["logits"], report["client"]) == (6, 40, [20, 10], 1)
    assert 0 < report["loss"] < 10 and report["norm"] > 0 and report["moved"]
    assert report["response"] > 0 and report["values"]
    parts = (".base", ".base.version", "", ".devices", ".devices.on_device")
    assert report["loaded"] == [f"hetero_tf{part}" for part in parts]


@pytest.mark.long
def test_push_resets_the_optimizer(cnn):
    process, state, versions = cnn
    plan = process.plan(0)
    client, local = (
        Simulated(process, state, plan, 0, 2),
        on_device.LiteRTTrainer(versions[process.recipe.levels.names[plan.levels[0]]]),
    )
    results = []
    for _ in range(2):
        local.push(client.cut())
        local.train(client.batches(), client.learning_rate, client.present, None)
        results.append(local.pull())
    for path, value in results[0].items():
        np.testing.assert_array_equal(value, results[1][path])


@pytest.mark.long
def test_a_file_infers_by_pushed_statistics_and_measures_them(cnn):
    process, state, versions = cnn
    newer = tiny.perturbed(state, seed=1)
    statistics, local = process.statistics(newer, "c"), on_device.LiteRTTrainer(versions["c"])
    network, data = process.network(newer, "c", statistics), process.dataset
    weights = {variable.path: variable.numpy() for variable in network.variables if variable.path in local.shapes}
    pixels = data.test.x.astype(np.float32) / 255
    wanted = network(
        process.input.batch(data.test.x, data.test.y, np.arange(len(pixels)), 0, 0, all_labels(10), False)[0]
    )

    def gap():
        return np.abs(local.infer(image=pixels)["logits"] - wanted).max()

    local.push(weights)
    assert gap() > 0.01
    order = statistics_rng(process.recipe.seed, newer.round)
    measured = local.statistics(local.statistics_batches(data.train.x, data.train.y, order), order)
    for path, value in statistics.items():
        np.testing.assert_allclose(measured[path], value, atol=1e-5 * np.abs(value).max(), err_msg=path)
    for path, value in local.pull().items():
        np.testing.assert_array_equal(value, weights[path])
    local.push(weights, measured)
    assert gap() < 1e-3
    local.push(weights)
    assert gap() < 1e-3


@pytest.mark.long
def test_device_refuses_batches_without_a_step_and_other_values(cnn):
    local = on_device.LiteRTTrainer(cnn[2]["c"])
    batch = {"image": np.zeros((3, 8, 8, 2), np.float32), "label": np.zeros(3, np.int32)}
    message = refusal(local.train, [batch], 0.1, np.ones(10, bool), None, kind=ValueError)
    assert "one of [(4, 1), (8, 1)]. Received: (3, 1)" in message
    batch = {name: np.concatenate([value, value[:1] + 10]) for name, value in batch.items()}
    message = refusal(local.train, [batch], 0.1, np.ones(10, bool), None, kind=ValueError)
    assert message == "labels must be from 0 to 9. Received: 0 to 10"
    weights = local.pull()
    path, *others = weights
    for wrong in ({name: weights[name] for name in others}, weights | {path: np.zeros(0)}):
        message = refusal(local.push, wrong, kind=ValueError)
        assert message == f"variables must be those of the export. Received: others at {path}"


def test_other_exports_are_refused(tmp_path):
    (tmp_path / "export.json").write_text('{"formats": {}, "level": "a"}')
    assert "export it with --format litert_train" in refusal(on_device.LiteRTTrainer, tmp_path, kind=ValueError)


MEASURING = """
import sys

sys.modules |= dict.fromkeys(("tensorflow", "keras", "tensorflow_datasets"))
from hetero_tf.cli.main import main

sys.exit(main(["hetero_tf", "measure-device", *sys.argv[1:]]))
"""


@pytest.mark.long
def test_measured_devices_are_a_fleet_of_the_simulator(cnn, tmp_path):
    process, _, versions = cnn
    fleet = tmp_path / "fleet.yaml"
    version = versions["c"]
    words = (f"--file={version / litert_train.FILE}", "--name=c")
    measured = json.loads(programs.python(MEASURING, *words, "--json").stdout)
    assert list(measured["seconds"]) == ["8", "4"]
    training = json.loads((version / "export.json").read_text())["formats"]["litert_train"]["training"]
    costs = process.client_costs[process.recipe.levels.names.index("c")]
    assert training["train_flops"] == costs.train_flops[0]
    assert int(measured["device"]["memory"].removesuffix(" MiB")) > 20
    # The command prints the file.
    fleet.write_text(programs.python(MEASURING, *words).stdout)
    simulated = load("tiny/digits", (f"fleet={fleet}", "fleet.assign=share", "levels.mix=a-c"))
    device = simulated.fleet.devices["c"]
    assert list(simulated.fleet.devices) == ["c"] and device.seconds_per_step + (device.gflops or 0) > 0


@pytest.mark.parametrize(
    ("recipe", "key"),
    [
        (("tiny/digits", "client.correction={name: proximal, mu: 0.1}"), "client.correction"),
        (("tiny/digits", "precision=float64"), "precision: float64"),
        (("tiny/digits", "round.personal=['0']"), "round.personal"),
        (("tiny/digits", "client.stages=slimmable"), "client.stages: slimmable"),
        (("tiny/digits", "levels.mix=b"), "levels.mix (without level a)"),
    ],
)
def test_untrainable_recipes_are_refused_with_their_key(recipe, key):
    name, *overrides = recipe
    process = hetero_tf.learning_process(load(name, overrides))
    assert refusal(check_trainable, process, "a").endswith(f"Received: {key}")


@pytest.mark.long
def test_file_with_other_training_steps_is_removed(cnn, tmp_path, monkeypatch):
    process, state, _ = cnn
    monkeypatch.setattr(litert_train, "TOLERANCES", dict.fromkeys(litert_train.TOLERANCES, -1.0))
    statistics, folder = process.statistics(state, "c"), tmp_path / "out"
    message = refusal(export.export, process, state, statistics, folder, {}, "c", others=("litert_train",))
    assert "training steps differ from those of the recipe's clients, so the file was removed" in message
    assert list(tmp_path.iterdir()) == []


def reader(form="label", **settings):
    """A trainer without a file, which reads batches."""
    trainer = on_device.LiteRTTrainer.__new__(on_device.LiteRTTrainer)
    targets = {"form": form, "dtype": "int32", "scaling": None}
    image = {"augment": "crop_flip"}
    trainer.settings = {"batch_size": 4, "shuffle": True, "classes": 5, "input": image, "targets": targets, **settings}
    return trainer, np.random.default_rng(0)


def test_a_device_reads_images_as_clients_do():
    trainer, rng = reader()
    x = np.arange(1, 10, dtype=np.uint8)[:, None, None, None] * np.ones((1, 12, 12, 1), np.uint8)
    batches = list(trainer.batches(x, np.arange(9), 2, rng))
    assert [len(batch["label"]) for batch in batches] == [4, 4, 1] * 2
    first, second = (np.concatenate([batch["label"] for batch in half]) for half in (batches[:3], batches[3:]))
    assert sorted(first) == sorted(second) == list(range(9)) and first.tolist() != second.tolist()
    for batch in batches:
        for image, label in zip(batch["image"], batch["label"]):
            assert set(np.unique(image)) <= {np.float32(0), np.float32(label + 1) / 255} and image.max() > 0
    assert any((batch["image"] == 0).any() for batch in batches)
    assert trainer.present(np.array([1, 3, 3])).tolist() == [False, True, False, True, False]


def test_a_device_moves_label_maps_with_their_images():
    trainer, rng = reader("label_map")
    y = rng.integers(0, 5, (4, 12, 12))
    (batch,) = trainer.batches(y[..., None].astype(np.uint8), y, 1, rng)
    np.testing.assert_array_equal(np.rint(255 * batch["image"][..., 0]), batch["label"])
    assert not any((batch["label"] == one).all((1, 2)).any() for one in y)


def test_a_device_hides_words_as_clients_do():
    trainer, rng = reader(batch_size=2, shuffle=False, classes=50, input={"segment": 64, "mask_share": 0.15})
    x = np.random.default_rng(1).integers(0, 50, (3, 1000))
    batches = list(trainer.batches(x, None, 1, rng))
    assert [batch["label"].shape for batch in batches] == [(2, 64)] * 15 + [(2, 40)] + [(1, 64)] * 15 + [(1, 40)]
    np.testing.assert_array_equal(np.concatenate([batch["label"] for batch in batches[:16]], 1), x[:2])
    assert abs(np.concatenate([(batch["token_ids"] == 50).ravel() for batch in batches]).mean() - 0.15) < 0.02
    for batch in batches:
        shown = batch["token_ids"] != 50
        np.testing.assert_array_equal(batch["token_ids"][shown], batch["label"][shown])
