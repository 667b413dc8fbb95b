"""The reference round: it trains recipes as the compiled round does, and refuses methods that it does not have."""

import pytest
import tiny

from hetero_tf import reference
from hetero_tf.base.errors import InputError
from hetero_tf.recipe import load
from hetero_tf.run.learning_process import learning_process

# Clients of the maps lack classes; in float32, the poolings of a U-Net amplify rounding.
MAPS = ("partition={name: labels, clients: 9, per_client: 1}", "precision=float64", "data.objects=1")


WIDE = ("model.settings.channels=[!w 10, !w 11]", "levels.mix=a-c")


@pytest.mark.parametrize(
    ("name", "overrides"),
    [
        ("tiny/digits", ("levels.mix=a-c",)),
        # As many channels as classes, and one more.
        ("tiny/digits", WIDE),
        pytest.param("tiny/shapes_unet", MAPS, marks=pytest.mark.long),
        pytest.param("tiny/mnist", (), marks=pytest.mark.long),
    ],
)
def test_the_reference_trains_as_the_compiled_round(name, overrides, request):
    if overrides in (MAPS, WIDE):
        # The compiled U-Net has a graph of many operations, and one case of `digits` is enough.
        request.getfixturevalue("eager")
    process = learning_process(load(name, overrides))
    if overrides == MAPS:
        assert not process.partition.label_mask[process.plan(0).clients].all()
    state, plans = process.initialize(), [process.plan(round) for round in range(2)]
    weights, metrics = reference.ReferenceRounds(process).run(tiny.arrays(state), plans)
    compiled, rows = process.run(state, plans)
    assert tiny.gap(tiny.arrays(compiled), weights) < 1e-5
    assert [loss for loss, _ in metrics] == pytest.approx([row["loss"] for row in rows], rel=1e-5)
    assert tiny.gap(tiny.arrays(state), weights) > 1e-3


def test_the_program_prints_the_metrics_of_each_round(capsys):
    reference.main("tiny/digits")
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0] for line in lines] == ["round 1", "round 2"]
    assert all("  loss 2." in line and "global_accuracy" in line for line in lines)


@pytest.mark.parametrize(
    ("overrides", "key"),
    [
        (("round.submodel=rolling",), "round.submodel rolling"),
        (("round.server=scaffold", "client.correction=scaffold", "optimizer.momentum=0"), "round.server scaffold"),
        (("fleet=phones", "round.policy=immediate"), "fleet"),
        (("round.non_finite_share=0.4",), "round.non_finite_share 0.4"),
        (("early_stopping.patience=1",), "early_stopping"),
        (None, "client.loss mean_squared_error"),
        ("bn", "running average 0_2_norm/bn/moving_mean"),
    ],
)
def test_other_methods_are_refused(overrides, key):
    shipped = {None: ("tiny/table_regression",), "bn": ("tiny/digits", ["model.settings.norm=bn"])}
    process = (
        learning_process(load(*shipped[overrides])) if overrides in shipped else tiny.process(tiny.DENSE, *overrides)
    )
    with pytest.raises(InputError, match=f"the reference has no {key}; use bin/hetero_tf for this recipe"):
        reference.check_supported(process)
