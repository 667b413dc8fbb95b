"""Growth of a round's time and memory with one size of a federation, on generated data."""

import math
import multiprocessing
import statistics

from memory import resident_mib
from round import timed

from hetero_tf.base import hardware

COLUMNS = ("set-up s", "first round s", "plan s", "round s", "first evaluation s", "evaluation s", "MiB")
# A value of at least this length is marked if its exponent is larger than this one.
MIN_SECONDS, LINEAR = 0.2, 1.15


def images(clients=100, active=10, classes=10, examples=None, tests=1000, levels="e"):
    """Overrides of `digits` for generated images of 4 x 4 pixels, two for each client."""
    examples = max(2 * clients, classes) if examples is None else examples
    data = f"size: 4, classes: {classes}, examples: {examples}, test_examples: {tests}"
    return [
        f"data={{name: synthetic, kind: images, {data}}}",
        f"partition.clients={clients}",
        f"round.clients={active}",
        f"levels.mix={levels}",
    ]


def words(count):
    """Overrides of `tiny/wikitext2` for a vocabulary."""
    return [f"data={{name: synthetic, kind: text, rows: 50, test_rows: 10, length: 400, vocabulary: {count}}}"]


def levels(count):
    """Overrides of `digits` for a mix of this number of widths."""
    names = "abcdefghij"[:count]
    widths = ", ".join(f"{name}: {1 - index / 10:g}" for index, name in enumerate(names))
    return [*images(active=count), f"levels.widths={{{widths}}}", f"levels.mix={'-'.join(names)}"]


def width(channels):
    """Overrides of `digits` for this number of channels."""
    return [*images(levels="a", tests=100), f"model.settings.channels=[!w {channels}, !w {channels}]"]


# Recipe, sizes, and the overrides of a size.
AXES = {
    "clients of a round": ("digits", (10, 100, 1000), lambda count: images(2000, count)),
    "registered clients": ("digits", (1000, 100_000, 1_000_000), images),
    "levels": ("digits", (1, 5, 10), levels),
    "channels": ("digits", (32, 128, 512), width),
    "classes": ("digits", (10, 1000, 10_000, 100_000), lambda count: images(classes=count)),
    "classes and test examples": ("digits", (1000, 3000, 10_000), lambda count: images(classes=count, tests=count)),
    "words": ("tiny/wikitext2", (1000, 10_000, 100_000), words),
    "test examples": ("digits", (1000, 10_000, 100_000), lambda count: images(tests=count)),
}


def measure(recipe, overrides, threads, repeats=3):
    """The values of `COLUMNS`, medians of the later rounds and evaluations."""
    hardware.import_quietly()
    hardware.configure_threads(threads)
    from hetero_tf import learning_process, load_recipe

    loaded = load_recipe(recipe, [*overrides, "levels.assignment=dynamic", "client.epochs=1"])
    set_up, process = timed(lambda: learning_process(loaded, parallel=threads))
    state = process.initialize()
    planning, plan = timed(lambda: process.plan(0))
    first_round, _ = timed(lambda: process.run(state, [plan]))
    rounds = [timed(lambda: process.run(state, [plan]))[0] for _ in range(repeats)]
    first_evaluation, _ = timed(lambda: process.evaluate(state))
    evaluations = [timed(lambda: process.evaluate(state))[0] for _ in range(repeats)]
    later = statistics.median(rounds), first_evaluation, statistics.median(evaluations)
    return (set_up, first_round, planning, *later, resident_mib())


def table(threads, names):
    """Yield the lines of each axis: a row for each size, and the exponents between the two largest ones.

    A value grows like size^exponent. `!` marks long values that grow faster than linearly.
    """
    context = multiprocessing.get_context("spawn")
    for name in names:
        recipe, sizes, overrides_of = AXES[name]
        yield f"{name:>26}" + "".join(f"{column:>20}" for column in COLUMNS)
        rows = []
        for size in sizes:
            # Each size has a process of its own, whose memory is measured.
            with context.Pool(1) as pool:
                rows.append(pool.apply(measure, (recipe, overrides_of(size), threads)))
            yield f"{size:>26,}" + "".join(f"{value:>20,.3f}" for value in rows[-1])
        ratio = math.log(sizes[-1] / sizes[-2])
        exponents = [math.log(after / before) / ratio for before, after in zip(*rows[-2:])]
        is_long = [value >= MIN_SECONDS for value in rows[-1]]
        marks = ["!" if long and exponent > LINEAR else " " for long, exponent in zip(is_long, exponents)]
        yield f"{'exponent':>26}" + "".join(f"{value:>19.2f}{mark}" for value, mark in zip(exponents, marks))
