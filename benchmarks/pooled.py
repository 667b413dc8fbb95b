#!/usr/bin/env python3
"""Compares FedAvg at full width on IID clients with Keras `fit` of the same model on the pooled data, for any task.

    benchmarks/pooled.py mine.yaml [--clients 5] [--set rounds=20] [--json]

Every client trains the widest level in each round. Keras trains a copy of the model with the loss, the optimizer and
the initial values of the recipe for as many epochs as a client does. Both are measured after each round, and after as
many epochs, by the metrics of the recipe on the same test set; the table has the round with the best first metric of
each. The recipe needs the optimizer sgd; learning rate schedules and augmentation are left out.
"""

import argparse
import json
from operator import itemgetter

import checkout  # noqa: F401  finds hetero_tf and its libraries

from hetero_tf.base import hardware


def parse():
    """The arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", help="a shipped name or a file")
    parser.add_argument("--clients", type=int, default=5)
    parser.add_argument("--set", action="append", default=[], help="overrides of the recipe")
    parser.add_argument("--data_dir")
    parser.add_argument("--json", action="store_true", help="one JSON line instead of a table")
    return parser.parse_args()


def keras_loss(recipe):
    """The Keras loss of the recipe's task."""
    import keras

    delta = recipe.loss.options.get("delta", 1.0)
    return {
        "label": keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        "label_map": keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        "label_set": keras.losses.BinaryCrossentropy(from_logits=True),
        "mean_squared_error": keras.losses.MeanSquaredError(),
        "mean_absolute_error": keras.losses.MeanAbsoluteError(),
        "huber": keras.losses.Huber(delta),
    }[recipe.loss.name if recipe.targets == "numbers" else recipe.loss_targets]


def fit(process, weights):
    """Yields the metrics of a Keras model trained on the pooled training data, after the epochs of each round."""
    import keras
    import numpy as np
    import tensorflow as tf

    from hetero_tf.data.inputs import all_labels

    recipe, train, test = process.recipe, process.setup.examples, process.dataset.test
    level, options = recipe.levels.global_level, recipe.optimizer.method.options
    model = process.family.new_training_model(level, process.family.classes)
    for variable in model.trainable_variables:
        variable.assign(weights[variable.path])

    def inputs_of(x, y):
        rows, key, labels = tf.range(len(x)), tf.zeros([1], tf.int32), all_labels(process.family.classes)
        return process.input.batch(x, y, rows, 0, key, labels, training=False)

    optimizer = keras.optimizers.SGD(
        recipe.optimizer.learning_rate,
        momentum=options["momentum"],
        weight_decay=options["weight_decay"] or None,
        global_clipnorm=recipe.optimizer.clip_norm,
    )
    model.compile(optimizer, keras_loss(recipe))
    inputs, _ = inputs_of(test.x, np.zeros(len(test.x), np.int32))
    pooled, epochs = inputs_of(train.x, train.y), recipe.client.epochs_of(level)
    for _ in range(recipe.rounds):
        model.fit(*pooled, batch_size=recipe.client.batch_size, epochs=epochs, verbose=0)
        measured = process.evaluator.measures.measure(model(inputs, training=False), test.labels)
        yield {name: float(value) for name, value in measured.items()}


def federated(process):
    """Yields the metrics of the global model after each round, and the initial weights before the first one."""
    state = process.initialize()
    yield dict(state.weights)
    while state.round < process.recipe.rounds:
        state, _ = process.run(state, [process.plan(state.round)])
        measured = process.evaluate(state)[0].items()
        yield {name.removeprefix("global_"): value for name, value in measured if name.startswith("global_")}


def main():
    """Trains both models and prints their metrics."""
    args = parse()
    hardware.import_quietly()
    from hetero_tf import recipe as recipes
    from hetero_tf.base import metrics
    from hetero_tf.run.data import load_data
    from hetero_tf.run.learning_process import learning_process

    loaded = recipes.load(args.recipe, args.set)
    level, clients = loaded.levels.global_level, args.clients
    overrides = (
        f"levels.mix={level}1",
        f"partition={{name: iid, clients: {clients}}}",
        f"round.clients={clients}",
        "schedule=constant",
    )
    loaded = recipes.load(args.recipe, (*args.set, *overrides))
    process = learning_process(loaded, load_data(loaded, args.data_dir))
    weights, *rounds = federated(process)
    first = loaded.metrics[0]
    better = min if metrics.find_metric(f"global_{first}").better == "lower" else max
    candidates = {"fedavg": rounds, "keras": fit(process, weights)}
    best = {model: better(values, key=itemgetter(first)) for model, values in candidates.items()}
    rows = {name: {model: values[name] for model, values in best.items()} for name in best["keras"]}
    if args.json:
        print(json.dumps({"task": loaded.task.name, "data": process.dataset.source, "metrics": rows}))
        return
    print(f"{loaded.task.name}, {process.dataset.source}: {clients} clients, {loaded.rounds} rounds")
    for name, values in rows.items():
        print(f"{name:24} FedAvg {values['fedavg']:10.4g}   Keras {values['keras']:10.4g}")


if __name__ == "__main__":
    main()
