"""Evaluation and statistics are traced once, however many rounds are measured."""

import dataclasses

import hetero_tf


def test_evaluating_every_round_traces_once():
    process = hetero_tf.learning_process(hetero_tf.load_recipe("tiny/digits"))
    traced = []

    def counted(*args, **kwargs):
        # `batch` runs in Python only while a function is traced.
        traced.append(kwargs["training"])
        return process.input.batch(*args, **kwargs)

    examples = process.evaluator.examples
    examples = dataclasses.replace(examples, input=dataclasses.replace(examples.input, batch=counted))
    watched = dataclasses.replace(process, evaluator=dataclasses.replace(process.evaluator, examples=examples))
    state = watched.initialize()
    watched.evaluate(state)
    first = len(traced)
    for round in range(1, 4):
        watched.evaluate(dataclasses.replace(state, round=round))
    assert first >= 2 and len(traced) == first
