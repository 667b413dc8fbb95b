"""Published ViT weights as initial weights: the model's logits are those of a plain NumPy ViT with the same arrays."""

import math

import numpy as np
import programs
import pytest

from hetero_tf import learning_process, recipe

vit_checkpoint = programs.script("benchmarks/vit_checkpoint.py")
NAME, WIDTH, HEADS, HIDDEN, BLOCKS, PATCH, SIDE = "tiny/cifar10_vit_fedepth", 12, 3, 24, 3, 2, 4
HEAD = "2_2_dense"
LAYERS = recipe.load(NAME).model.layers


def checkpoint(classes=21):
    """Arrays of the names and shapes of Google's code, all at random."""
    rng = np.random.default_rng(5)
    shapes = {
        "cls": (1, 1, WIDTH),
        "embedding/kernel": (PATCH, PATCH, 3, WIDTH),
        "embedding/bias": (WIDTH,),
        "Transformer/posembed_input/pos_embedding": (1, 1 + SIDE**2, WIDTH),
        "Transformer/encoder_norm/scale": (WIDTH,),
        "Transformer/encoder_norm/bias": (WIDTH,),
        "pre_logits/kernel": (WIDTH, WIDTH),
        "head/kernel": (WIDTH, classes),
        "head/bias": (classes,),
    }
    for number in range(BLOCKS):
        block, size = f"Transformer/encoderblock_{number}", WIDTH // HEADS
        for norm in ("LayerNorm_0", "LayerNorm_2"):
            shapes |= {f"{block}/{norm}/scale": (WIDTH,), f"{block}/{norm}/bias": (WIDTH,)}
        for name in ("query", "key", "value"):
            part = f"{block}/MultiHeadDotProductAttention_1/{name}"
            shapes |= {f"{part}/kernel": (WIDTH, HEADS, size), f"{part}/bias": (HEADS, size)}
        out = f"{block}/MultiHeadDotProductAttention_1/out"
        shapes |= {f"{out}/kernel": (HEADS, size, WIDTH), f"{out}/bias": (WIDTH,)}
        for dense, (inner, outer) in {"Dense_0": (WIDTH, HIDDEN), "Dense_1": (HIDDEN, WIDTH)}.items():
            shapes |= {
                f"{block}/MlpBlock_3/{dense}/kernel": (inner, outer),
                f"{block}/MlpBlock_3/{dense}/bias": (outer,),
            }
    return {name: rng.normal(scale=0.5, size=shape).astype(np.float32) for name, shape in shapes.items()}


def layer_norm(x, scale, bias):
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-6) * scale + bias


def exact(x):
    return x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2


def tanh(x):
    return x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def encode(arrays, image, gelu):
    """Encode one image: its class token after the last norm."""
    arrays = {name: value.astype(np.float64) for name, value in arrays.items()}
    squares = [
        image[PATCH * row : PATCH * (row + 1), PATCH * column : PATCH * (column + 1)]
        for row in range(SIDE)
        for column in range(SIDE)
    ]
    tokens = [np.tensordot(square, arrays["embedding/kernel"], 3) + arrays["embedding/bias"] for square in squares]
    x = np.stack([arrays["cls"][0, 0], *tokens]) + arrays["Transformer/posembed_input/pos_embedding"][0]
    for number in range(BLOCKS):
        block_arrays = {
            name.split("/", 2)[2]: value
            for name, value in arrays.items()
            if name.startswith(f"Transformer/encoderblock_{number}/")
        }
        y = layer_norm(x, block_arrays["LayerNorm_0/scale"], block_arrays["LayerNorm_0/bias"])
        for head in range(HEADS):
            query, key, value = (
                y @ block_arrays[f"MultiHeadDotProductAttention_1/{name}/kernel"][:, head]
                + block_arrays[f"MultiHeadDotProductAttention_1/{name}/bias"][head]
                for name in ("query", "key", "value")
            )
            scores = np.exp(query @ key.T / math.sqrt(WIDTH // HEADS))
            mixed = scores / scores.sum(-1, keepdims=True) @ value
            x = x + mixed @ block_arrays["MultiHeadDotProductAttention_1/out/kernel"][head]
        x = x + block_arrays["MultiHeadDotProductAttention_1/out/bias"]
        y = layer_norm(x, block_arrays["LayerNorm_2/scale"], block_arrays["LayerNorm_2/bias"])
        y = gelu(y @ block_arrays["MlpBlock_3/Dense_0/kernel"] + block_arrays["MlpBlock_3/Dense_0/bias"])
        x = x + y @ block_arrays["MlpBlock_3/Dense_1/kernel"] + block_arrays["MlpBlock_3/Dense_1/bias"]
    return layer_norm(x[0], arrays["Transformer/encoder_norm/scale"], arrays["Transformer/encoder_norm/bias"])


def build_model(path, *overrides):
    settings = (f"model.initial_weights={path}", f"model.reinitialize=[{HEAD}]", "precision=float64")
    sizes = ("model.settings.scale=1", f"model.settings.patch={PATCH}")
    process = learning_process(recipe.load(NAME, [*settings, *sizes, *overrides]))
    state = process.initialize()
    return process.network(state, "a"), [np.asarray(state.weights[f"{HEAD}/{part}"]) for part in ("kernel", "bias")]


@pytest.fixture
def command(tmp_path, capsys):
    """`(arrays, recipe) -> (exit code, output, error output)` of a conversion from .npz to .npz."""

    def run(arrays, recipe_name=NAME):
        np.savez(tmp_path / "Ti.npz", **arrays)
        files = (f"--checkpoint={tmp_path / 'Ti.npz'}", f"--out={tmp_path / 'vit.npz'}")
        return vit_checkpoint.main([f"--recipe={recipe_name}", *files]), *capsys.readouterr()

    return run


@pytest.mark.long
@pytest.mark.parametrize(("gelu", "activation"), [("exact", exact), ("tanh", tanh)])
def test_logits_are_those_of_a_plain_vit(command, tmp_path, gelu, activation):
    arrays = checkpoint()
    code, output, _ = command(arrays)
    assert (code, output.splitlines()[1].split()[-1]) == (0, f"'model.reinitialize=[{HEAD}]'")
    model, (kernel, bias) = build_model(
        tmp_path / "vit.npz", f"model.layers[1].Repeat.layer.TransformerBlock.gelu_form={gelu}"
    )
    images = np.random.default_rng(6).normal(size=(2, SIDE * PATCH, SIDE * PATCH, 3))
    expected = [encode(arrays, image, activation) @ kernel + bias for image in images]
    np.testing.assert_allclose(model(images, training=False), expected, atol=1e-8)
    other = {exact: tanh, tanh: exact}[activation]
    assert abs(encode(arrays, images[0], other) @ kernel + bias - expected[0]).max() > 1e-6


@pytest.mark.parametrize("prefix", ["opt/target/", "params/"])
def test_names_may_have_the_prefix_of_a_training_loop(prefix):
    arrays = checkpoint()
    wrapped = {f"{prefix}{name}": value for name, value in arrays.items()} | {"opt/state/step": np.zeros(1)}
    actual, expected = vit_checkpoint.convert(wrapped, LAYERS), vit_checkpoint.convert(arrays, LAYERS)
    assert actual.keys() == expected.keys() and all((actual[path] == expected[path]).all() for path in actual)
    assert not any(path.startswith(HEAD) for path in actual)


@pytest.mark.parametrize(
    ("changes", "recipe_name", "sentence"),
    [
        ({"cls": None}, NAME, "the checkpoint has no array 'cls'; known: "),
        ({"Transformer/encoderblock_3/LayerNorm_0/scale": np.ones(WIDTH)}, NAME, "the recipe's model has no variable for 'Transformer/encoderblock_3/LayerNorm_0/scale' and 0 other arrays"),
        ({}, "tiny/digits", "the recipe's model must be a ViT: one PatchEmbedding, several TransformerBlocks and one LayerNormalization. Received: 0, 0 and 0"),
    ],
)  # fmt: skip
def test_mismatch_is_reported(command, changes, recipe_name, sentence):
    arrays = {name: value for name, value in (checkpoint() | changes).items() if value is not None}
    code, _, complained = command(arrays, recipe_name)
    assert code == 2 and complained.startswith(f"vit_checkpoint: {sentence}")
