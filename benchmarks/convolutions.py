#!/usr/bin/env python3
"""Times a 3x3 convolution with stride 1 and its gradients in each form.

    benchmarks/convolutions.py [--shapes 32x64x64 7x128x256] [--batch 10] [--outputs] [--seconds 20] [--json]

A shape is side of the maps x input channels x output channels. The table has milliseconds of one core, medians of calls
in turns, their ratio to TensorFlow's convolution, the largest relative error of a result against float64, and the form
that training with this batch uses.
"""

import argparse
import json
import statistics
import time

import checkout  # noqa: F401  finds hetero_tf and its libraries

from hetero_tf.base import hardware

SHAPES = [
    *("32x32x32", "32x64x64", "16x32x64", "16x128x128", "14x64x128"),
    *("8x64x64", "8x256x256", "7x128x256", "4x256x512", "3x256x512"),
]


def parse():
    """The arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="+", default=SHAPES)
    parser.add_argument("--batch", type=int, default=10, help="examples of a step")
    parser.add_argument("--outputs", action="store_true", help="without gradients")
    parser.add_argument("--seconds", type=float, default=20.0, help="to measure all shapes")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def compiled(convolve, with_gradients):
    """`(inputs, kernel, upstream) -> results` as a function of TensorFlow."""
    import tensorflow as tf

    @tf.function(autograph=False)
    def compute(inputs, kernel, upstream):
        if not with_gradients:
            return [convolve(inputs, kernel)]
        with tf.GradientTape() as tape:
            tape.watch([inputs, kernel])
            outputs = convolve(inputs, kernel)
        return [outputs, *tape.gradient(outputs, [inputs, kernel], upstream)]

    return compute


def measure(args):
    """A row of the table for each shape and form."""
    import numpy as np
    import tensorflow as tf

    from hetero_tf.layers.fast_conv2d import FORMS, fastest_form

    convolutions = {"convolution": lambda x, k: tf.nn.conv2d(x, k, 1, "SAME"), **FORMS}
    exact, rng, rows, works = compiled(convolutions["convolution"], not args.outputs), np.random.default_rng(0), [], []
    for shape in args.shapes:
        side, channels, filters = map(int, shape.split("x"))
        sizes = (args.batch, side, side, channels), (3, 3, channels, filters), (args.batch, side, side, filters)
        values = [tf.constant(rng.standard_normal(size), "float32") for size in sizes]
        references = exact(*[tf.cast(value, "float64") for value in values])
        selected = fastest_form((side, side), sizes[1], "float32", None if args.outputs else args.batch)
        for form, convolve in convolutions.items():
            function = compiled(convolve, not args.outputs)
            pairs = zip(function(*values), references)
            error = max(float(tf.norm(tf.cast(value, "float64") - other) / tf.norm(other)) for value, other in pairs)
            rows.append({"shape": shape, "form": form, "error": error, "used": form == (selected or "convolution")})
            works.append(lambda function=function, values=values: function(*values))
    return with_times(rows, works, args.seconds)


def with_times(rows, works, seconds):
    """The rows with the median processor time of their work, in milliseconds, and its ratio to the convolution's."""
    spent, end = [[] for _ in works], time.monotonic() + seconds
    while time.monotonic() < end or not spent[0]:
        for times, work in zip(spent, works):
            began = time.process_time()
            work()
            times.append(1000 * (time.process_time() - began))
    medians = [statistics.median(times) for times in spent]
    plain = {row["shape"]: ms for row, ms in zip(rows, medians) if row["form"] == "convolution"}
    return [{**row, "ms": ms, "ratio": ms / plain[row["shape"]]} for row, ms in zip(rows, medians)]


def main():
    """Measures and prints."""
    args = parse()
    hardware.import_quietly()
    hardware.configure_threads(1)
    for row in measure(args):
        used = " used" * row["used"]
        line = f"{row['shape']:12} {row['form']:12} {row['ms']:8.3f} ms {row['ratio']:6.2f} {row['error']:8.0e}{used}"
        print(json.dumps(row) if args.json else line)


if __name__ == "__main__":
    main()
