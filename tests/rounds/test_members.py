"""Initial values of an ensemble's networks: scaled by their fan-in, or as parts of the network of width 1."""

import numpy as np
import pytest
import tiny

from hetero_tf import recipe
from hetero_tf.models import global_layout
from hetero_tf.models.family import build_family

# Largest magnitude and standard deviation of the kernels with which a run of the authors' code began: four networks of
# a quarter of a PreResNet with one block of 8, 12, 16 and 20 channels a stage.
AUTHORS = {
    "0_0_padded_conv2d/kernel": (0.19207, 0.10903),
    "1_0_pre_activation_block/conv1/kernel": (0.11710, 0.06946),
    "1_0_pre_activation_block/conv2/kernel": (0.11726, 0.07167),
    "2_0_pre_activation_block/conv1/kernel": (0.11777, 0.06904),
    "2_0_pre_activation_block/conv2/kernel": (0.09599, 0.05557),
    "2_0_pre_activation_block/shortcut/kernel": (0.35329, 0.16583),
    "3_0_pre_activation_block/conv1/kernel": (0.09615, 0.05634),
    "3_0_pre_activation_block/conv2/kernel": (0.08308, 0.04746),
    "3_0_pre_activation_block/shortcut/kernel": (0.26706, 0.15876),
    "4_0_pre_activation_block/conv1/kernel": (0.08327, 0.04695),
    "4_0_pre_activation_block/conv2/kernel": (0.07451, 0.04256),
    "4_0_pre_activation_block/shortcut/kernel": (0.24574, 0.15049),
    "5_3_dense/kernel": (0.22150, 0.13407),
}
# A uniform draw within +-1 has the standard deviation 3**-0.5.
UNIT = 3**-0.5


def initial_values_of(ensemble_recipe, shape):
    """The initial values of a recipe's ensemble: `{path: [networks, ...]}`."""
    family = build_family(ensemble_recipe, shape, shape, 10)
    return {path: np.asarray(value) for path, value in global_layout.initial_values(family).items()}


def test_initial_distribution_equals_the_authors_code():
    wide = tiny_splitmix("wide")
    assert wide.keys() == AUTHORS.keys()
    for path, (most, deviation) in AUTHORS.items():
        bound = 1 if path == "0_0_padded_conv2d/kernel" else 0.25**0.5
        fan_in = np.prod(wide[path].shape[1:-1])
        # Both are random: a few dozen to a few hundred values.
        for largest, std in ((most, deviation), (np.abs(wide[path]).max(), wide[path].std())):
            assert 0.85 * bound < largest * fan_in**0.5 <= 1.0001 * bound, path
            assert std * fan_in**0.5 == pytest.approx(UNIT * bound, rel=0.25), path


def tiny_splitmix(fan_in):
    """The initial kernels of four networks of width 1/4, in the layout of `AUTHORS`."""
    blocks = [f"PreActivationBlock: {{filters: !w {8 + 4 * unit}, stride: {min(unit, 1) + 1}}}" for unit in range(4)]
    layers = ["PaddedConv2D: {filters: !w 8, use_bias: false}", *blocks]
    head = "[Norm, ReLU, GlobalAveragePooling2D, Dense: {units: !classes, kernel_initializer: fan_in_uniform}]"
    text = (
        tiny.IMAGES.partition("  layers:\n")[0] + "  layers:\n" + "".join(f"    - {one}\n" for one in [*layers, head])
    )
    levels = ("levels.widths={a: 0.25}", "levels.mix=a", "levels.members={a: 4}", f"levels.members_fan_in={fan_in}")
    ensemble_recipe = recipe.loads(text + tiny.COMMON, "tiny", levels)
    return {path: value for path, value in initial_values_of(ensemble_recipe, (16, 16, 3)).items() if value.ndim > 2}


def test_biases_are_scaled_too_and_the_first_layer_reads_the_input():
    text = tiny.DENSE.replace(
        "- [GlobalAveragePooling2D,",
        "- [Norm: {kind: in}, PaddedConv2D: {filters: !w 4}, PaddedConv2D: {filters: !w 4}, GlobalAveragePooling2D,",
    )
    ensemble = ("levels.widths={a: 0.25}", "levels.mix=a", "levels.members={a: 3}")
    unscaled, wide = (
        tiny.arrays(tiny.process(text, *ensemble, f"levels.members_fan_in={fan_in}").initialize())
        for fan_in in ("own", "wide")
    )
    for path, value in unscaled.items():
        layer, _, name = path.partition("/")
        factor = 0.5 if name in ("kernel", "bias") and layer != "0_1_padded_conv2d" else 1
        np.testing.assert_allclose(wide[path], factor * value, rtol=1e-6, err_msg=path)
    assert np.abs(unscaled["0_2_padded_conv2d/bias"]).min() > 0 and {"0_0_norm/in/gamma"} <= unscaled.keys()
