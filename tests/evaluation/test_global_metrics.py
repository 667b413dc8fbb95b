"""Metrics of text against a plain loop over batches and segments."""

import functools

import numpy as np
import oracle
import pytest
import tiny
from test_evaluator import build_assigned_model, cross_entropy

from hetero_tf.base import seeds
from hetero_tf.evaluation import global_metrics

pytestmark = pytest.mark.usefixtures("eager")


def test_perplexity_is_the_row_weighted_mean_of_exponentials():
    process = tiny.process(tiny.TEXT, "precision=float64")
    state = process.initialize()
    metrics, statistics = process.evaluate(state)
    assert statistics == {"a": {}}
    model, x = build_assigned_model(process, state), process.dataset.test.x
    key, losses, rows = seeds.seed32(0, "test masks"), [], []
    for row in (0, 2):  # batches of two rows; the third row is a short one
        for start in (0, 4, 8):  # and the last segment has two positions
            tokens = x[row : row + 2, start : start + 4]
            hidden = oracle.uniform([key, row, start], tokens.shape) < 0.3
            logits = model(np.where(hidden, tiny.WORDS, tokens), training=False).numpy()
            pairs = zip(logits.reshape(-1, tiny.WORDS), tokens.reshape(-1))
            losses.append(np.mean([cross_entropy(token_logits, token) for token_logits, token in pairs]))
            rows.append(len(tokens))
    np.testing.assert_allclose(metrics["global_loss"], np.average(losses, weights=rows), rtol=1e-12)
    np.testing.assert_allclose(metrics["global_perplexity"], np.average(np.exp(losses), weights=rows), rtol=1e-12)
    assert metrics["global_perplexity"] > np.exp(metrics["global_loss"])
    assert process.evaluate(state)[0] == metrics  # masked positions are the same at every call


@pytest.mark.parametrize("logits", [1, 40])
@pytest.mark.parametrize("last", ["Dense", "Scaler"])
def test_perplexity_does_not_depend_on_the_number_of_logits_in_memory(monkeypatch, logits, last):
    # Only a last Dense is split off the model. A Scaler is inert in a test.
    base = tiny.TEXT if last == "Dense" else tiny.TEXT.replace("partition:", "    - Scaler\npartition:")
    monkeypatch.setattr(global_metrics, "MAX_LOGITS", logits)
    process = tiny.process(base, "precision=float64", data=tiny.text())
    metrics = process.evaluate(process.initialize())[0]
    assert process.evaluator.global_model.layers[-1].__class__.__name__ == last
    monkeypatch.undo()
    assert metrics == pytest.approx(whole_text(), rel=1e-13)


@functools.cache
def whole_text():
    """Metrics of the text recipe, all logits of a batch at once."""
    process = tiny.process(tiny.TEXT, "precision=float64")
    return process.evaluate(process.initialize())[0]
