"""Norm kind wbn: separate running averages of each width, in the layer and among the values of clients and server."""

import numpy as np
import pytest
import tiny
from refusals import refusal

from hetero_tf.layers.norm import Norm
from hetero_tf.models import global_layout

NESTED = ("client.stages=nested", "client.coupling=sum", "levels.mix=a-b", "levels.assignment=fixed")
WIDTHS = tiny.IMAGES.replace("kind: sbn", "kind: wbn").replace("filters: !w 12, stride: 2", "filters: !w 12, norm: wbn")


def names(paths, layer):
    return [path.rpartition("/")[2] for path in paths if path.startswith(layer) and "moving_mean" in path]


@pytest.mark.parametrize("clients", [1, 3])
def test_names_end_in_the_channels_of_one_client(clients):
    for kind, expected in (("wbn", "moving_mean_5"), ("bn", "moving_mean")):
        layer = Norm(kind, clients)
        layer.build((None, 4, 4, clients * 5))
        assert layer.norm.moving_mean.name == expected
        assert layer.norm.moving_mean.shape == (clients * 5,)


def test_level_has_the_averages_of_its_drawn_widths_and_a_step_moves_only_those_of_its_width(eager):
    process = tiny.process(WIDTHS, *NESTED)
    family = process.family
    assert names(global_layout.shapes(family, "a", tiny.CLASSES), "0_2_norm") == ["moving_mean_8", "moving_mean_4"]
    assert names(global_layout.shapes(family, "b", tiny.CLASSES), "0_2_norm") == ["moving_mean_4"]
    assert (
        process.paths == tuple(process.initialize().weights) == tuple(global_layout.shapes(family, "a", tiny.CLASSES))
    )
    contained = dict(zip(process.paths, process.setup.layout.cut.contained))
    assert contained["0_2_norm/wbn/moving_variance_8"] == (True, False)
    assert contained["0_2_norm/wbn/moving_variance_4"] == contained["0_2_norm/wbn/gamma"] == (True, True)
    plan = process.plan(0, cohort=[0, 1, 2])
    plan.stages[:] = 0
    before = process.initialize()
    after, _ = process.run(before, [plan])
    has_moved = {path: not np.array_equal(after.weights[path], before.weights[path]) for path in process.paths}
    assert has_moved["0_2_norm/wbn/moving_mean_4"] and has_moved["0_2_norm/wbn/moving_variance_4"]
    assert not has_moved["0_2_norm/wbn/moving_mean_8"] and not has_moved["0_2_norm/wbn/moving_variance_8"]
    for level, channels in (("a", 8), ("b", 4)):
        model = process.network(after, level)
        (mean,) = [v for v in model.non_trainable_variables if v.path == f"0_2_norm/wbn/moving_mean_{channels}"]
        np.testing.assert_array_equal(mean, after.weights[mean.path])


def test_widths_that_the_first_level_never_runs_are_refused():
    assert (
        "level b: only its width has 0_2_norm/wbn/moving_mean_4, and level a never runs at that width; norms of kind wbn need client.stages: nested or slimmable"
        in refusal(tiny.process, WIDTHS, "levels.mix=a-b")
    )
