"""Slimmable training: the effect of a wide client's steps on the narrower models inside its model."""

import dataclasses

import numpy as np
import tiny

# A Scaler that no norm follows would make a narrow model's logits smaller than in training.
DENSE = tiny.DENSE.replace(", Scaler", "")
RATE = 1e-3
ONE_STEP = (
    "levels.mix=a-c",
    "client.batch_size=50",
    "client.loss=cross_entropy",
    "round.label_rows=all",
    f"optimizer={{learning_rate: {RATE}, momentum: 0, clip_norm: null}}",
    "precision=float64",
)
CLIENT = 2


def after_one_step(stages):
    """Losses of the widest and the narrowest model on a wide client's examples after its one step."""
    process = tiny.process(DENSE, *ONE_STEP, f"client.stages={stages}")
    plan = process.plan(0, cohort=[CLIENT] * 3)
    state, _ = process.run(process.initialize(), [dataclasses.replace(plan, levels=np.zeros_like(plan.levels))])
    rows = process.partition.train[CLIENT]
    x, y = process.dataset.train.x[rows] / 255.0, process.dataset.train.y[rows]
    models = [process.network(state, level) for level in ("a", "c")]
    return [loss(model(x, training=False).numpy(), y) for model in models]


def loss(logits, labels):
    logs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    return -logs[np.arange(len(labels)), labels].mean()


def test_steps_of_a_wide_client_also_train_the_narrow_model(eager):
    """To first order the narrow loss falls by rate * |its own gradient|^2 more than in joint training."""
    joint, slimmable = after_one_step("joint"), after_one_step("slimmable")
    assert slimmable[1] < joint[1] - 0.1 * RATE
