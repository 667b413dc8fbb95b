"""The table of metrics: it names all that runs write and nothing else, and knows which direction is better."""

import programs
import pytest
import runs
import tiny

from hetero_tf.base import metrics, registry
from hetero_tf.run.simulated_rounds import SimulatedRounds

MEASURED = ("label", "positions")
# Measured only if the recipe names them.
OPTIONAL = set(registry.names("metrics")) - {"accuracy"}
FLEET = "fleet={devices: {any: {seconds_per_step: 0.1, dropout: 0.3}}}"


@pytest.mark.long
def test_metrics_table_matches_written_rows(train, tmp_path, monkeypatch, eager):
    monkeypatch.setattr(SimulatedRounds, "prepare", lambda self: None)
    more = ("rounds=1", "partition.held_out=0.3", "evaluate.levels=all")
    tuned = (*more, "evaluate.fine_tune={epochs: 1, units: [all]}", 'round.personal=["0"]')
    train(tmp_path / "images", programs.RECIPE, *tuned, "levels.assignment=fixed", "levels.mix=a1-b1", FLEET)
    train(tmp_path / "text", tiny.TEXT, *more, "data.length=16", "data.rows=16")
    images, text = (runs.rows(tmp_path / name)[0] for name in ("images", "text"))
    of_levels = ("level_accuracy", "level_loss", "level_perplexity", "clients_accuracy")
    entries = {f"{name}_{level}": f"{name}_LEVEL" for name in of_levels for level in "abc"}
    # Real devices, asynchronous policies, privacy and clients that never trained have more, which other tests see.
    more = {"refused", "stale", "staleness", "epsilon", "local_new_mean"}
    others = {
        name
        for name, metric in metrics.all_metrics().items()
        if metric.targets and not set(MEASURED) & set(metric.targets)
    }
    others |= {name for name in metrics.all_metrics() if any(f"_{metric}" in name for metric in OPTIONAL)}
    assert {entries.get(name, name) for name in (*images, *text)} | more == set(metrics.all_metrics()) - others
    for row, targets in ((images, "label"), (text, "positions")):
        assert {name for name in row if metrics.find_metric(name).targets} == {
            name for name in row if targets in metrics.find_metric(name).targets
        }
        measured = ("accuracy",) if targets == "label" else ("perplexity",)
        assert set(metrics.selection_metrics(targets, measured)) <= set(row)


def test_known_metrics_and_the_default_selection_metric():
    assert metrics.find_metric("clients_accuracy_a") is metrics.all_metrics()["clients_accuracy_LEVEL"]
    assert metrics.find_metric("local_accuracy") is metrics.all_metrics()["local_accuracy"]
    assert metrics.find_metric("global_acuracy") is None
    assert metrics.default_selection_metric(("accuracy",), True) == "validation_accuracy"
    assert metrics.default_selection_metric(("perplexity",), False) == "global_perplexity"


def test_selection_metrics_have_a_direction():
    names = metrics.selection_metrics("label", registry.names("metrics"))
    assert {"global_accuracy", "validation_macro_f1"} <= set(names) and "global_r2" not in names
    assert all(metrics.all_metrics()[name].better in ("higher", "lower") for name in names)
    names = ("global_loss", "global_perplexity", "validation_loss", "validation_perplexity")
    assert metrics.selection_metrics("positions", ()) == names


@pytest.mark.parametrize(
    ("name", "value", "best", "better"),
    [
        ("global_loss", 1.0, 2.0, True),
        ("global_loss", 2.0, 1.0, False),
        ("global_accuracy", 2.0, 1.0, True),
        ("global_accuracy", 1.0, 1.0, False),
        ("global_loss", None, 1.0, False),
        ("global_accuracy", 0.0, None, True),
    ],
)
def test_is_better_follows_the_direction_of_the_metric(name, value, best, better):
    assert metrics.is_better(name, value, best) == better


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("global_accuracy", 95.63, "acc 95.6 % "),
        ("validation_accuracy", 100.0, "val acc 100.0 %"),
        ("global_perplexity", 12.3456, "perplexity 12.35  "),
        ("global_loss", None, "test loss -      "),
        ("validation_mean_average_precision", 9.87, "val mAP  9.9 % "),
        ("local_worst_decile", 70.37, "local worst decile 70.4 % "),
    ],
)
def test_short_metrics_of_the_line_of_a_round(name, value, text):
    assert metrics.format_short(name, value) == text


@pytest.mark.parametrize(
    ("name", "row", "best", "better"),
    [
        ("global_accuracy", {"global_accuracy": 100.0, "global_loss": 0.1}, {}, True),
        ("global_accuracy", {"global_accuracy": 100.0, "global_loss": 0.1}, {"global_accuracy": 100.0, "global_loss": 0.2}, True),
        ("global_accuracy", {"global_accuracy": 100.0, "global_loss": 0.2}, {"global_accuracy": 100.0, "global_loss": 0.2}, False),
        ("global_accuracy", {"global_accuracy": 99.0, "global_loss": 0.1}, {"global_accuracy": 100.0, "global_loss": 0.2}, False),
        ("local_mean", {"local_mean": 50.0, "local_loss": 0.1}, {"local_mean": 50.0, "local_loss": 0.2}, True),
        ("local_loss", {"local_loss": 0.2}, {"local_loss": 0.2}, False),
        ("local_loss", {"local_loss": None}, {}, False),
    ],
)  # fmt: skip
def test_lower_loss_breaks_ties_between_rounds(name, row, best, better):
    assert metrics.is_improvement(name, row, best) == better
