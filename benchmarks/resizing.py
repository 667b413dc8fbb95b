#!/usr/bin/env python3
"""Accuracy of a run's model on pictures of other sizes, by resizing method.

    benchmarks/resizing.py RUN_DIR [--images 1000]

Test pictures are made 2 and 10 times larger, or 2 times smaller, in several ways, as clients may send them. Then each
method that an export could use resizes them to the model's size. The table has a row for each pair, and the mean of
each method. Pictures that are 10 times smaller are not measured: MNIST would have 2 x 3 pixels.
"""

import argparse
from pathlib import Path

import checkout  # noqa: F401  finds hetero_tf and its libraries
import numpy as np
import tensorflow as tf

import hetero_tf
from hetero_tf import recipe
from hetero_tf.export.task import ExportTask
from hetero_tf.run.resume import open_newest
from hetero_tf.runs.run_folder import RunFolder

# Methods that gave a client's picture its size.
CLIENTS = (("nearest", False), ("bilinear", True), ("bicubic", True), ("area", False), ("lanczos3", True))
# Methods with which an export could resize it to the model's size: (method, antialiased).
METHODS = (
    ("bilinear", True),
    ("bilinear", False),
    ("bicubic", True),
    ("bicubic", False),
    ("area", False),
    ("lanczos3", True),
    ("nearest", False),
)
FACTORS = (10, 2, 0.5)


def resized(pixels, size, method, antialias):
    """Pictures of another size, as 8-bit files would hold them."""
    pictures = tf.image.resize(pixels, size, method, antialias=antialias)
    return tf.round(255 * tf.clip_by_value(pictures, 0, 1)) / 255


def main():
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run_dir", type=Path)
    parser.add_argument("--images", type=int, default=1000)
    arguments = parser.parse_args()
    run = RunFolder(arguments.run_dir)
    process = hetero_tf.learning_process(recipe.loads(run.read_recipe()))
    checkpoint = open_newest(run.checkpoints, process)
    model, test = (
        process.network(checkpoint.state, statistics=checkpoint.statistics.get(process.recipe.levels.global_level)),
        process.dataset.test,
    )
    labels = test.y[: arguments.images]
    (pixels,) = ExportTask(process, model).request(test.x[: arguments.images]).values()
    model_size = pixels.shape[1:3]

    @tf.function
    def logits(batch):
        return ExportTask(process, model).classify(batch)["logits"]

    def accuracy(batch):
        logits_by_batch = [logits(part) for part in tf.split(batch, max(len(batch) // 100, 1))]
        return 100 * np.mean(np.argmax(np.concatenate(logits_by_batch), -1) == labels)

    names = [f"{method}{' antialiased' if antialias else ''}" for method, antialias in METHODS]
    print(f"model size {accuracy(pixels):.1f}\n")
    print("| picture | " + " | ".join(names) + " |\n" + "| --- " * (len(names) + 1) + "|")
    rows = []
    for factor in FACTORS:
        for method, antialias in CLIENTS:
            resized_pixels = resized(pixels, [round(factor * size) for size in model_size], method, antialias)
            accuracies = [
                accuracy(tf.clip_by_value(tf.image.resize(resized_pixels, model_size, name, antialias=smooth), 0, 1))
                for name, smooth in METHODS
            ]
            rows.append(accuracies)
            print(f"| x{factor} {method} | " + " | ".join(f"{one:.1f}" for one in accuracies) + " |", flush=True)
    print("| mean | " + " | ".join(f"{one:.1f}" for one in np.mean(rows, 0)) + " |")


if __name__ == "__main__":
    main()
