"""Pretrained backbones: ranks by level, frozen weights, derived inputs, pooling, refusals; adapters merged by exports."""

import functools
import importlib.util

import keras
import numpy as np
import pytest
from refusals import refusal

import hetero_tf
from hetero_tf import export
from hetero_tf.data import from_arrays
from hetero_tf.export.formats import keras as keras_file
from hetero_tf.models.functions import preset
from hetero_tf.models.variables import constants
from hetero_tf.recipe.model import Width

WORDS, LENGTH = 40, 8
LONG = pytest.mark.long
RECIPE = """
name: preset
data: {name: synthetic}
input: arrays
partition: {name: iid, clients: 4}
levels: {widths: {a: 1, b: 0.5, c: 0.25}, mix: a-b-c, assignment: fixed}
round: {clients: 4}
client: {epochs: 1, batch_size: 10}
optimizer: {name: sgd, learning_rate: 0.2, weight_decay: 0, clip_norm: null}
rounds: 2
"""
TEXT = {"vocabulary_size": WORDS, "num_layers": 1, "hidden_dim": 8, "intermediate_dim": 16}


def draw(count, shape=None):
    """Ids with padding at their end, or pictures, and labels."""
    rng = np.random.default_rng(count)
    if shape:
        return {"images": rng.normal(size=(count, *shape)).astype(np.float32)}, rng.integers(0, 2, count)
    ids = rng.integers(1, WORDS, (count, LENGTH))
    ids[np.arange(LENGTH) >= rng.integers(3, LENGTH + 1, (count, 1))] = 0
    return {"token_ids": ids.astype(np.int32)}, rng.integers(0, 2, count)


def transformer(width, classes):
    """A block of Keras' layers with adapters in four kinds of them."""
    ids = keras.Input((LENGTH,), dtype="int32", name="token_ids")
    embedding, attention = keras.layers.Embedding(WORDS, 8), keras.layers.MultiHeadAttention(2, 4)
    dense, convolution = keras.layers.Dense(8), keras.layers.Conv1D(8, 3, padding="same")
    value = embedding(ids)
    value = convolution(dense(keras.layers.Add()([value, attention(value, value)])))
    logits = keras.layers.Dense(classes)(keras.layers.GlobalAveragePooling1D()(value))
    model = keras.Model({"token_ids": ids}, logits)
    for layer in (embedding, attention._query_dense, attention._key_dense, attention._value_dense, dense, convolution):
        layer.trainable = True
        layer.enable_lora(Width(4).at(width))
    return model


def trained(model, shape=None, rounds=2, text=RECIPE):
    data = from_arrays(*draw(40, shape), *draw(20, shape))
    process = hetero_tf.learning_process(text, dataset=data, model=model, parallel=1)
    state = process.initialize()
    for _ in range(rounds):
        state, row = process.next(state)
    return process, state, row


def ranks_by_level(process, state):
    models = {level: process.network(state, level) for level in "abc"}
    return {
        level: {v.shape[-1] for v in model.trainable_variables if v.name.startswith("lora") and v.name.endswith("_a")}
        for level, model in models.items()
    }


def assert_frozen_and_merged(process, state, folder, levels="ac"):
    """Frozen weights stay and are never counted as traffic; exports have no adapters and equal logits."""
    initial = process.initialize().weights
    for level, cost in zip("abc", process.client_costs, strict=True):
        model = process.network(state, level)
        fixed = {variable.path for variable in constants(model)}
        assert fixed and all(np.array_equal(initial[path], state.weights[path]) for path in fixed)
        sent = 4 * sum(int(np.prod(variable.shape)) for variable in model.trainable_variables)
        assert (cost.bytes_down, cost.bytes_up) == (sent, sent)
    x = process.dataset.fields[0].codec.send(process.dataset.fields[0].name, process.dataset.test.x)
    for level in levels:
        path, about = export.export(process, state, {}, folder, {}, level, others=["keras"])
        model = keras_file.load(path / "model.keras")
        assert about["largest_difference_of_logits"] <= 1e-5
        assert not [variable.path for variable in model.variables if "lora" in variable.path]
        np.testing.assert_allclose(model(x), process.model(state, level)(x), atol=1e-5)


@pytest.mark.long
def test_adapters_of_keras_layers_are_trained_by_rank_and_merged(eager, tmp_path):
    process, state, _ = trained(transformer)
    assert ranks_by_level(process, state) == {"a": {4}, "b": {2}, "c": {1}}
    assert_frozen_and_merged(process, state, tmp_path)


def test_a_missing_library_is_named(monkeypatch):
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "keras_hub" else find_spec(name))
    text = RECIPE + "model: {function: {name: preset, preset: bert_tiny, rank: 4, layers: query}}\n"
    message = refusal(hetero_tf.learning_process, text, dataset=from_arrays(*draw(40), *draw(20)))
    assert message == ("model.function preset needs keras_hub, which is not installed; pip install 'hetero_tf[hub]'")


@pytest.fixture(scope="module")
def presets(tmp_path_factory):
    """`name -> folder` of a tiny random backbone."""
    models = pytest.importorskip("keras_hub").models
    folder = tmp_path_factory.mktemp("presets")
    backbones = {
        "bert": lambda: models.BertBackbone(**TEXT, num_heads=2, max_sequence_length=LENGTH),
        "gpt2": lambda: models.GPT2Backbone(**TEXT, num_heads=2, max_sequence_length=LENGTH),
        "gemma": lambda: models.GemmaBackbone(**TEXT, num_query_heads=2, num_key_value_heads=1, head_dim=4),
        "bart": lambda: models.BartBackbone(**TEXT, num_heads=2, max_sequence_length=LENGTH),
        "t5": lambda: models.T5Backbone(**TEXT, num_heads=2),
        "vit": lambda: models.ViTBackbone((8, 8, 3), 4, 1, 2, 8, 16),
        "vgg": lambda: models.VGGBackbone([1], [4], (8, 8, 3)),
    }

    @functools.cache
    def build(name):
        backbones[name]().save_to_preset(str(folder / name))
        return str(folder / name)

    return build


@pytest.mark.long
@pytest.mark.parametrize("name", ["bert", *(pytest.param(name, marks=LONG) for name in ("gpt2", "gemma", "vit"))])
def test_a_backbone_trains_by_rank_and_is_merged(name, presets, eager, tmp_path):
    shape = (8, 8, 3) if name == "vit" else None
    inputs = ("images",) if shape else ("token_ids",)
    process, state, row = trained(functools.partial(preset.build, preset=presets(name), rank=4, inputs=inputs), shape)
    assert np.isfinite(row["loss"])
    assert ranks_by_level(process, state) == {"a": {4}, "b": {2}, "c": {1}}
    assert_frozen_and_merged(process, state, tmp_path, levels="c")


@pytest.mark.long
@pytest.mark.parametrize("pooling", ["auto", "last", "mean", "first"])
@pytest.mark.parametrize("name", ["bert", "gpt2", "bart"])
def test_padding_does_not_change_the_logits(name, pooling, presets):
    model = preset.build(1.0, 3, preset=presets(name), rank=2, pooling=pooling)
    assert [tensor.shape for tensor in model.inputs] == [(None, None)]
    ids = np.array([[3, 5, 7]])
    np.testing.assert_allclose(model(np.pad(ids, ((0, 0), (0, 4)))), model(ids), atol=1e-5)
    assert np.abs(model(ids + 1) - model(ids)).max() > 1e-6


def test_language_models_read_the_last_position_and_maps_are_averaged(presets):
    ids = np.array([[3, 5, 7, 0]])
    model = preset.build(1.0, 3, preset=presets("gpt2"), rank=None)
    assert np.abs(model(ids + [[0, 0, 1, 0]]) - model(ids)).max() > 1e-6
    assert {variable.path for variable in model.trainable_variables} == {"logits/kernel", "logits/bias"}
    assert preset.build(1.0, 3, preset=presets("vgg"), rank=None)(np.zeros((2, 8, 8, 3))).shape == (2, 3)
    assert preset.build(1.0, 9, preset=presets("bert"), head="positions")(ids).shape == (1, 4, 9)


@LONG
def test_ids_of_texts_become_those_of_the_vocabulary_of_the_backbone(presets, tmp_path, eager):
    file = tmp_path / "vocab.txt"
    file.write_text("[CLS]\nfish\n[UNK]\n##es\n[PAD]\nsoup\n")
    (tmp_path / "texts.csv").write_text("text,label\n" + "fish soup,a\nfishes rice,b\n" * 10)
    text = RECIPE.replace("synthetic", "labelled_text, path: texts.csv, length: 6, tokenizer: subwords").replace(
        "input: arrays", "input: sequences"
    )
    text = text.replace("subwords", f"subwords, vocabulary_file: {file}") + (
        f"model: {{function: {{name: preset, preset: {presets('bert')}, rank: 2, vocabulary: {file}}}}}\n"
    )
    process = hetero_tf.learning_process(text, data_dir=tmp_path, parallel=1)
    x = np.unique(process.dataset.train.x, axis=0)
    assert x.tolist() == [[2, 3, 1, 1, 1, 1], [2, 4, 0, 0, 0, 0]]
    state, row = process.next(process.initialize())
    plain = preset.build(1.0, 2, preset=presets("bert"), rank=2, padding=4)
    for variable, value in zip(plain.variables, process.network(state).variables, strict=True):
        variable.assign(value)
    ids = np.array([[1, 3, 2, 2, 2, 2], [1, 5, 4, 4, 4, 4]])
    np.testing.assert_allclose(process.network(state)(x), plain(ids), atol=1e-6)
    _, about = export.export(process, state, {}, tmp_path / "export", {}, others=["keras"])
    assert about["largest_difference_of_logits"] <= 1e-5
    file.write_text("fish\n")
    message = refusal(preset.build, 1.0, 2, preset=presets("bert"), vocabulary=str(file))
    assert message.endswith("vocab.txt: must have the token [PAD], as WordPiece files do")


@pytest.mark.long
def test_weights_of_equal_paths_are_numbered(presets):
    paths = [
        variable.path for variable in preset.build(1.0, 2, preset=presets("t5"), layers=("output_projector",)).weights
    ]
    assert len(set(paths)) == len(paths) and any(path.startswith("2_") for path in paths)


def test_options_that_do_not_fit_a_backbone_are_refused(presets, tmp_path):
    build = functools.partial(preset.build, 1.0, 2)
    message = refusal(build, preset=presets("bert"), layers=("query", "quary"))
    assert "feedforward_intermediate_dense" in message and message.endswith("Received: layers=['quary']")
    assert "layers must name layers" in refusal(build, preset=presets("bert"), layers=("quary",))
    assert "token_ids of its inputs" in refusal(build, preset=presets("bert"), inputs=("images",))
    assert "one of the backbone's outputs sequence_output" in refusal(build, preset=presets("bert"), output="logits")
    assert "the folder must have config.json and model.weights.h5" in refusal(build, preset=str(tmp_path))
    assert "a name of keras_hub.models.Backbone.presets" in refusal(build, preset="bert_small")
    message = refusal(build, preset="bert_tiny_en_uncased")
    assert "put config.json and model.weights.h5 of https://www.kaggle.com/models/keras/bert/keras/" in message


@pytest.mark.long
def test_a_recipe_names_a_preset(presets, eager):
    text = RECIPE + f"model: {{function: {{name: preset, preset: {presets('bert')}, rank: 2, inputs: token_ids}}}}\n"
    process, _, row = trained(None, text=text, rounds=1)
    assert np.isfinite(row["loss"]) and process.recipe.model.function.options["rank"] == 2
