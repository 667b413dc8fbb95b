"""Rows of a table from a recipe to answers: checks, rounds, metrics, exports, `predict` and a server."""

import dataclasses
import itertools
import json

import exports
import numpy as np
import oracle
import predicted
import pytest
import tables
import tensorflow as tf
import tiny
from refusals import refusal

import hetero_tf
from hetero_tf import export, recipe
from hetero_tf.data.codecs import Field, category, date, number, split_stored
from hetero_tf.data.dataset import Dataset, Split
from hetero_tf.data.dates import date_features, parse_date
from hetero_tf.data.described import describe, from_description
from hetero_tf.data.fields import array_fields
from hetero_tf.devices.on_device import LiteRTTrainer
from hetero_tf.export import saved_model
from hetero_tf.export.serve import rest


def table(x, y=None, **named):
    x = np.asarray(x, np.float32)
    y = np.arange(len(x)) % 2 if y is None else np.asarray(y)
    split = Split(x, y.astype(np.int32))
    return Dataset(split, split, named.pop("fields", None) or array_fields("table", x), 2, "s", **named)


def test_rows_of_numbers_are_a_table_and_odd_ones_are_rejected():
    message = refusal(table, [[1, np.nan], [0, 0]])
    assert message == "s, train split: expected finite numbers. Received: nan in row 0, feature 1"
    good, fields = table([[1, 2], [3, 4]]).train, array_fields("table", np.zeros((1, 2)))
    assert "one per row. Received: int32 (1,)" in refusal(Dataset, good, Split(good.x, good.y[:1]), fields, 2, "s")
    assert "float32 [n, features]" in refusal(Dataset, Split(good.x.astype(np.float64), good.y), good, fields, 2, "s")
    fields = (Field("a", category.Codec(("x", "y"))),)
    assert table([[1, 0], [0, 1]], fields=fields, class_names=("no", "yes")).fields == fields
    for names in (("a", "a"), ("a", "b\nc"), ("", "a")):
        assert "class names must be unique single lines of text. Received: " in refusal(
            table, [[1, 2], [3, 4]], class_names=names
        )
    mean, std = table([[1, 5, 1e7], [3, 5, 1e7 + 2]]).feature_statistics
    assert mean.tolist() == [2, 5, 1e7 + 1] and std.tolist() == [1, 1, 1]
    assert "the input table needs rows of a table, but the data are images, synthetic images (seed 0)" in refusal(
        hetero_tf.learning_process, recipe.loads(tables.RECIPE, "tiny", ["partition={name: iid, clients: 4}"])
    )


@pytest.mark.long
@pytest.mark.parametrize("engine", ["sequential", "stacked"])
def test_rounds_equal_the_plain_loop(engine, eager):
    process = tables.process(f"engine={engine}", "precision=float64")
    assert set(process.setup.block_sizes) == ({1} if engine == "sequential" else {2})
    planned, before = tiny.plans(process, 2), tiny.arrays(process.initialize())
    expected, metrics = oracle.play(process, before, planned)
    state, rows = process.run(process.initialize(), planned)
    assert tiny.gap(tiny.arrays(state), expected) < 1e-9
    np.testing.assert_allclose([(row["loss"], row["gradient_norm"]) for row in rows], metrics, rtol=1e-8)


def test_statistics_leave_out_the_examples_that_select_rounds():
    held_out = tables.process(
        "partition.held_out=0.4", "client.loss={name: masked_cross_entropy, class_weights: balanced}"
    )
    fitted = held_out.partition.train.ids
    x, y = tables.dataset().train.x[fitted].astype(np.float64), tables.dataset().train.y[fitted]
    mean, std = held_out.dataset.feature_statistics
    np.testing.assert_allclose((mean[:2], std[:2]), (x.mean(0)[:2], x.std(0)[:2]), rtol=1e-9)
    np.testing.assert_allclose(held_out.setup.algorithm.loss.keywords["class_shares"], np.bincount(y) / len(y))
    numbers = dataclasses.replace(tables.dataset(), validation=np.arange(1, 60))
    assert numbers.target_statistics[0] == tables.dataset().train.y[0]


@pytest.fixture(scope="module")
def exported():
    """`(process, model, folder, what export.json says)` of a narrow level."""
    process, version = tables.process(), exports.narrow_table()
    return process, process.network(exports.state(process), "b"), version.folder, version.about


def test_export_accepts_raw_table_rows_and_its_card_lists_labels_and_features(exported):
    process, model, folder, about = exported
    serve, test = saved_model.load_runtime(folder), process.dataset.test
    size, weight, colour, coat = split_stored(process.dataset.fields, test.x)
    texts = {"colour": np.where(colour[:, 0] == 1, b"blue", b"red"), "coat": np.where(coat[:, 0] == 1, b"yes", b"no")}
    outputs = serve(size__cm_=size[:, 0].astype(float), weight=weight[:, 0].astype(float), **texts)
    mean, std = process.dataset.feature_statistics
    expected = model((test.x - mean) / std).numpy()
    np.testing.assert_allclose(outputs["logits"], expected, atol=1e-4)
    assert outputs["class_name"].tolist() == [tables.NAMES[label].encode() for label in expected.argmax(1)]
    assert about["measured"]["accuracy"] == pytest.approx(100 * np.mean(expected.argmax(1) == test.y))
    assert about["class_names"] == list(tables.NAMES) and about["limits"] == {"rows": 2**28 // 12}
    coat = {"name": "coat", "codec": "category", "categories": ["no", "yes"], "one_hot": False, "fill": None}
    assert about["input"]["fields"][3] == {**coat, "notation": "plain", "missing_values": [], "input": "coat"}
    card = (folder / "MODEL_CARD.md").read_text("utf-8")
    assert "- Order of the features: `size (cm)`, `weight`, `colour=blue`, `colour=red`, `coat`." in card
    assert "- `coat` is one of 0 no, 1 yes; encoded as the number of the category." in card
    assert "- `colour` is one of blue, red; encoded as a feature for each category, 1 or 0." in card
    assert (folder / "assets.extra" / "labels.txt").read_text("utf-8") == "cow\nox\npig\n"


def test_server_returns_class_names(exported):
    process, _, folder, _ = exported
    signatures, columns = tf.saved_model.load(str(folder)).signatures, process.dataset.fields
    row = {"size (cm)": 1e4, "weight": 0.001, "colour": "red", "coat": "no"}

    def respond(*instances):
        body = json.dumps({"instances": instances}).encode()
        return json.loads(rest.respond(signatures, body, lambda: False, columns))["predictions"]

    (prediction,) = respond(row)
    assert prediction["class_name"] == tables.NAMES[prediction["class"]]
    assert sum(prediction["probabilities"]) == pytest.approx(1)
    for same in respond([*row.values()], [*map(str, row.values())]):
        assert same.pop("class_name") == prediction["class_name"]
        assert same == {key: pytest.approx(value, abs=1e-6) for key, value in prediction.items() if key != "class_name"}
    with pytest.raises(rest.BadRequest, match="instance 0: column 'coat' must be one of no, yes. Received: 'maybe'"):
        respond({**row, "coat": "maybe"})
    assert signatures["serve_numbers"].structured_outputs.keys() == {"logits", "probabilities", "class"}


def test_invalid_rows_give_nan_and_do_not_affect_others(exported):
    process, _, folder, _ = exported
    serve, rows = saved_model.load_runtime(folder, "serve_numbers"), process.dataset.test.x[:3].copy()
    good = serve(features=rows[1:])
    rows[0, 2] = np.inf
    outputs = serve(features=rows)
    assert np.isnan(outputs["logits"][0]).all() and outputs["class"][0] == -1
    np.testing.assert_allclose(outputs["logits"][1:], good["logits"], rtol=1e-5)
    assert serve(features=rows[:0])["logits"].shape == (0, 3)
    for invalid in (rows[:, :4], rows[0], rows[None]):
        with pytest.raises((tf.errors.InvalidArgumentError, ValueError)):
            serve(features=invalid)
    columns = {"size__cm_": [1.0, np.nan, 1.0], "weight": [0.0] * 3, "colour": ["red", "red", "Red"]}
    columns |= {"coat": ["no"] * 3}
    outputs = saved_model.load_runtime(folder)(**{name: np.array(values) for name, values in columns.items()})
    assert outputs["class"].tolist()[1:] == [-1, -1] and outputs["class_name"].tolist()[1:] == [b"", b""]
    assert outputs["class"][0] >= 0


def test_prediction_reads_rows_by_column(exported):
    process, model, _, _ = exported
    row = "10000,0,red,yes"
    rows = [row, "coat=yes,colour=red,weight=0,size (cm)=10000", "1,1,green,yes", "1,1"]
    prediction, same, *invalid = predicted.of_process(process, model, rows)
    assert prediction.source == row and prediction.fields == same.fields
    mean, std = process.dataset.feature_statistics
    chances = tf.nn.softmax(model((np.array([[10000, 0, 0, 1, 1]]) - mean) / std))[0].numpy()
    names, shares = list(prediction.fields.values())[::2], list(prediction.fields.values())[1::2]
    assert names == [tables.NAMES[label] for label in np.argsort(-chances)]
    np.testing.assert_allclose(shares, np.sort(chances)[::-1], rtol=1e-3)
    assert invalid[0].error == "column 'colour' must be one of blue, red. Received: 'green'"
    assert invalid[1].error.startswith("a row must have a value for each column, size (cm), weight, colour, coat")


def test_device_trains_on_rows(exported):
    process, _, folder, about = exported
    client, train = LiteRTTrainer(folder), process.dataset.train
    before = client.pull()
    rng = np.random.default_rng(0)
    batches = client.batches(train.x[:15], train.y[:15], 1, rng)
    report = client.train(batches, 0.1, client.present(train.y[:15]), rng)
    assert report.steps == 3 and np.isfinite(report.loss)
    assert any((before[path] != value).any() for path, value in client.pull().items())
    assert about["formats"]["litert_train"]["largest_difference_of_logits"] < 1e-4


def test_eight_bits_are_rejected(tmp_path, monkeypatch):
    exports.narrow_table().reuse(monkeypatch)
    arguments = (tables.process(), exports.state(tables.process()), {}, tmp_path, {}, "b")
    assert refusal(export.export, *arguments, others=("litert_int8",)).startswith(
        "--format litert_int8: not available for tables, series, audio and arrays, because one 8-bit scale for all"
    )


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """`(process, serve, folder)` of a table whose columns have fill values, dates and scales."""
    codecs = {
        "age": number.Codec(30.0, marks_missing=True, missing_values=("-999",)),
        "size": number.Codec(7.5, scale="minmax"),
        "day": date.Codec("ymd", "2024-01-31"),
        "colour": category.Codec(("blue", "red"), fill="red", missing_values=("unknown",)),
    }
    fields = tuple(itertools.starmap(Field, codecs.items()))
    rng, y = np.random.default_rng(0), np.arange(40, dtype=np.int32) % 2
    # Years and days need their means, or the outputs saturate.
    noise = rng.normal([30, 0, 7, 2024, 6, 15, *np.zeros(7)], size=(40, 13))
    x = np.concatenate([field.codec.repair(part) for field, part in zip(fields, split_stored(fields, noise))], 1)
    split = Split(x.astype(np.float32), y)
    recipe_text = tables.RECIPE.replace("name: natural", "name: iid")
    dataset = Dataset(split, split, fields, 2, "t")
    process = hetero_tf.learning_process(recipe.loads(recipe_text, "tiny"), dataset=dataset, parallel=2)
    folder, _ = export.export(process, process.initialize(), {}, tmp_path_factory.mktemp("filled"), {})
    return process, saved_model.load_runtime(folder), folder


def test_exports_replace_missing_numbers_like_predict(filled):
    process, serve, folder = filled
    model = process.network(process.initialize())
    lines = [",,2024-02-29,", "30,7.5,2024-02-29,red", "-999,,2024-02-29,unknown"]
    (prediction, same, listed) = predicted.of_process(process, model, lines)
    assert listed.fields == prediction.fields
    row = np.array([[np.nan, 0, np.nan, 2024, 2, 29, 3, *np.zeros(4), 0, 1]], np.float32)
    row[0, 7:11] = date_features(parse_date("2024-02-29", "ymd"))[4:]
    outputs = saved_model.load_runtime(folder, "serve_numbers")(features=row)
    best = prediction.fields["probability"]
    assert outputs["probabilities"].max() == pytest.approx(best, rel=1e-5) and best != same.fields["probability"]
    assert prediction.fields["class"] == str(outputs["class"][0])
    row[0, 3] = np.nan
    assert saved_model.load_runtime(folder, "serve_numbers")(features=row)["class"] == [-1]
    rows = {"age": [np.nan, -999, 30.0], "size": [np.nan, np.nan, 7.5], "colour": ["?", "unknown", "red"]}
    rows["day"] = ["2024-02-29", "2024-02-29", "2024-02-30"]
    typed = serve(**{name: np.array(values) for name, values in rows.items()})
    np.testing.assert_allclose(typed["logits"][:2], outputs["logits"][[0, 0]], rtol=1e-6)
    assert typed["class"][2] == -1


def test_card_and_description_state_fill_values_and_dates(filled):
    process, _, folder = filled
    card = (folder / "MODEL_CARD.md").read_text("utf-8")
    assert "`age`: a missing number is NaN or -999, which the model replaces by 30, and marks it by 1" in card
    assert "weekday (Monday is 0)" in card and "A missing one is an empty text, which becomes 2024-01-31." in card
    assert "`colour` is one of blue, red; encoded as a feature for each category, 1 or 0. A missing one becomes" in card
    assert '"instances": [{"age": 30.3, "size": 4.49, "day": "2024-01-31", "colour": "blue"}]' in card
    specs = json.loads((folder / "export.json").read_text("utf-8"))["input"]["fields"]
    date = {"codec": "date", "order": "ymd", "fill": "2024-01-31", "missing_values": []}
    assert specs[2] == {"name": "day", **date, "input": "day"} and specs[0]["missing_values"] == ["-999"]
    described = from_description(json.loads(json.dumps(describe(process.dataset))), "data")
    assert described.fields == process.dataset.fitted_fields
    np.testing.assert_array_equal(described.feature_statistics, process.dataset.feature_statistics)
    x = process.dataset.train.x
    assert process.input.normalised_by["std"][2] == pytest.approx(float(x[:, 2].max() - x[:, 2].min()))
