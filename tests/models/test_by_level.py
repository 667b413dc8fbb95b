"""Values with one copy for each level, `round.by_level`."""

import re

import methods
import numpy as np
import pytest
import tiny
from refusals import refusal

from hetero_tf.models.global_layout import global_shapes
from hetero_tf.models.variables import level_path, shared_path

FIXED = "levels.assignment=fixed"


def numpy_weights(state):
    return {path: value.numpy() for path, value in state.weights.items()}


@pytest.mark.parametrize(
    ("names", "copied"),
    [
        ("norms", "norm"),
        pytest.param("norms, '0', 3_0_dense", "^[03]|norm", marks=pytest.mark.long),
        pytest.param("'*/step_size'", "/step_size$", marks=pytest.mark.long),
    ],
)
def test_a_copy_is_the_mean_over_the_clients_of_its_level(names, copied, eager):
    base = tiny.IMAGES.replace("stride: 2", "stride: 2, step: true") if "step" in names else tiny.IMAGES
    process = tiny.process(base, FIXED, f"round.by_level=[{names}]")
    plain = tiny.process(base, FIXED)
    start, first = process.initialize(), plain.initialize()
    copies = {path for path in start.weights if path != shared_path(path)}
    assert {shared_path(path) for path in copies} == {path for path in first.weights if re.search(copied, path)}
    after = numpy_weights(process.next(start, cohort=[0, 1, 2, 3])[0])
    merged = numpy_weights(plain.next(first, cohort=[0, 1, 2, 3])[0])
    levels, of_level = process.plan(0, cohort=[0, 1, 2, 3]).levels, {}
    for number, name in enumerate(process.recipe.levels.names):
        of_level[name] = numpy_weights(plain.next(first, cohort=np.flatnonzero(levels == number))[0])
    for path in first.weights:
        copy = level_path(path, "c")
        if copy not in copies:
            np.testing.assert_array_equal(after[path], merged[path], path)
            continue
        part = tuple(slice(size) for size in after[copy].shape)
        np.testing.assert_array_equal(start.weights[copy], first.weights[path].numpy()[part], path)
        np.testing.assert_allclose(after[copy], of_level["c"][path][part], 1e-6, 1e-7, path)
        np.testing.assert_allclose(after[path], of_level["a"][path], 1e-6, 1e-7, path)
        assert not np.array_equal(after[copy], after[path][part]), path


def test_the_head_has_the_label_axes_and_the_body_is_the_rest():
    paths = {}
    for name in ("head", "body"):
        family = tiny.process(tiny.IMAGES, FIXED, f"round.by_level=[{name}]").family
        paths[name] = {shared_path(path) for path in global_shapes(family) if path != shared_path(path)}
        every = {path for path in global_shapes(family) if path == shared_path(path)}
    assert paths["head"] == {"3_0_dense/kernel", "3_0_dense/bias"} and paths["body"] == every - paths["head"]


def test_refusals():
    message = refusal(tiny.process, tiny.IMAGES, "round.by_level=[norms]", "round.personal=[biases, norms]")
    assert "round.by_level: round.personal keeps 0_2_norm/sbn/gamma on the clients" in message
    distilled = "round.by_level=[last]", "round.merge=momentum_distillation"
    assert "round.merge: needs a level whose last block" in refusal(tiny.process, tiny.IMAGES, *distilled)
    assert "round.by_level[0]: must name values of the model" in refusal(
        tiny.process, tiny.IMAGES, "round.by_level=[embeddings]"
    )


# Units 1, 3 and 5 are equal blocks; level c ends after the first, and level a after the third.
BLOCK = "    - [PaddedConv2D: {filters: 4}, ReLU]\n"
DEEP = methods.conv(4) + BLOCK + methods.EXIT + BLOCK + methods.EXIT + BLOCK
DEPTHS = (
    FIXED,
    *methods.DEPTHS,
    "levels.mix=a-b-c",
    "client={epochs: 1, batch_size: 3, coupling: last, stages: {name: joint, exits: last}}",
    "round.weighting=samples",
    "precision=float64",
)


def deep_process(*settings):
    start = tiny.IMAGES.index("    - [Padded")
    head = f"    - [GlobalAveragePooling2D, {methods.HEAD}]\n"
    return tiny.process(tiny.IMAGES[:start] + DEEP + head + tiny.COMMON, *DEPTHS, *settings)


@pytest.mark.long
def test_momentum_distillation_adds_the_changes_of_deeper_blocks_to_the_last_one(eager):
    """Changes of the clients of each level, by path, are those of rounds of this level alone."""
    beta, processes = 0.3, {}
    for merge in ("mean", "{name: momentum_distillation, beta: 0.3}"):
        processes[merge] = deep_process("round.by_level=[last]", f"round.merge={merge}")
    plain, process = processes.values()
    start, plan = plain.initialize(), plain.plan(0, cohort=[0, 1, 2, 3])
    before = numpy_weights(start)

    def changes(process, clients):
        after = numpy_weights(process.next(start, cohort=clients)[0])
        return {path: after[path] - value for path, value in before.items()}

    merged, distilled = changes(plain, [0, 1, 2, 3]), changes(process, [0, 1, 2, 3])
    of_level = {name: changes(plain, plan.clients[plan.levels == number]) for number, name in enumerate("abc")}

    def block(unit, level=""):
        return [
            level_path(path, level) if level else path
            for path in sorted(before)
            if path.startswith(f"{unit}_") and "@" not in path
        ]

    # Level c ends in unit 1, whose copy learns from units 1 and 3 of level b; level b in unit 3, from units 3 and 5 of a.
    taught = {}
    for copy, deeper, sources in (("c", "b", [block(1), block(3, "b")]), ("b", "a", [block(3), block(5)])):
        for path, *teachers in zip(block(1 if copy == "c" else 3, copy), *sources, strict=True):
            taught[path] = np.mean([of_level[deeper][teacher] for teacher in teachers], 0)
    assert len(taught) == 4
    for path, change in distilled.items():
        expected = (1 - beta) * merged[path] + beta * taught[path] if path in taught else merged[path]
        np.testing.assert_allclose(change, expected, 1e-9, 1e-12, path)
        # The direction: towards the changes of the deeper blocks.
        if path in taught:
            assert np.linalg.norm(change - taught[path]) < 0.8 * np.linalg.norm(merged[path] - taught[path])
    # Without clients of the deeper level, the change is that of the clients.
    alone = plan.clients[plan.levels == 2]
    same, expected = changes(process, alone), changes(plain, alone)
    for path, change in expected.items():
        np.testing.assert_allclose(same[path], change, 1e-9, 1e-12, path)
