#!/usr/bin/env python3
"""Draws the figures that explain a round; `bin/hetero_tf plot` and `report` draw those of runs.

benchmarks/pictures.py [NAME ...]    without names: all; each is written to the file that the documents show

levels      three ways to choose the channels of a sub-model
round       cut, train, merge: the shares of a weight matrix that three clients train
norms       the inputs of one normalized channel at three levels of a trained model (trains ten rounds of digits)
scaler      the output of a layer against the width of its input, with and without Scaler
masked_loss the gradient of both losses for a client that has two of ten classes
privacy     accuracy of each level against epsilon, from the packed rows of the sweep privacy_mnist
sizes       HeteroFL's tables as points: best value against the size of a mix, published and from heterofl_narrow
norm_kinds  HeteroFL's Tables 4 and 5 at level e as points: best value of each norm, published and from heterofl_narrow
between     HeteroFL's interpolation between levels d and e of MNIST, and rounds of fixed and of dynamic levels
"""

import argparse
from pathlib import Path

import checkout
from packed import best_row, cells_of, last_by_seed, mixes_of, narrow_runs, packed_rows

from hetero_tf.base import hardware
from hetero_tf.base.files import replace_file
from hetero_tf.base.registry import find

# The layer, and the number of clients of the round with each share of its channels.
INPUTS, OUTPUTS, CLIENTS = 16, 32, {"a": (1.0, 2), "b": (0.5, 3), "c": (0.25, 5)}
WAYS = {"prefix": "prefix (HeteroFL)", "rolling": "rolling (FedRolex), round 5", "random": "random (Federated Dropout)"}
LEVEL_COLOURS = {"a": "#0072b2", "b": "#d55e00", "c": "#009e73"}


def coverage(way, round_number=5):
    """Number of clients of one round that train each entry of a layer: int `[INPUTS, OUTPUTS]`."""
    import numpy as np

    keep, counts, client = find("submodels", way).keep, np.zeros((INPUTS, OUTPUTS), int), 0
    for share, num_clients in CLIENTS.values():
        for _ in range(num_clients):
            rows, columns = (np.asarray(keep(n, int(n * share), round_number, client, 0)) for n in (INPUTS, OUTPUTS))
            counts[np.ix_(rows, columns)] += 1
            client += 1
    return counts


def draw_levels(figure):
    """Three ways to choose the channels of a sub-model, as the number of clients that train each entry."""
    panels = figure.subplots(1, len(WAYS), sharey=True)
    for panel, (way, title) in zip(panels, WAYS.items()):
        image = panel.imshow(coverage(way), "Blues", vmin=0, vmax=10, extent=(0, OUTPUTS, INPUTS, 0), aspect="auto")
        panel.set_title(title, fontsize=11)
        panel.set(xlabel="output channel", xticks=range(0, OUTPUTS + 1, 8), yticks=range(0, INPUTS + 1, 4))
    panels[0].set_ylabel("input channel")
    for level, (share, num_clients) in CLIENTS.items():
        width, height = OUTPUTS * share, INPUTS * share
        panels[0].plot((0, width, width), (height, height, 0), color="#7b241c", linewidth=1.5, clip_on=False)
        colour = "white" if level == "c" else "#7b241c"
        text = f"level {level}: {num_clients} clients" if level == "a" else f"{level}: {num_clients} clients"
        panels[0].text(width - 0.5, height - 0.4, text, color=colour, ha="right", va="bottom", fontsize=8)
    bar = figure.colorbar(image, ax=panels, location="bottom", aspect=60, shrink=0.6)
    bar.set_label("clients of the round that train an entry: the merge divides by this number, entry by entry")


def draw_round(figure):
    """A round of three clients: the global weights, the share of each client, and the merge of each entry."""
    import numpy as np
    from matplotlib.patches import FancyArrowPatch, Rectangle

    size, widths, cell = 8, {"a": 8, "b": 4, "c": 2}, 0.8
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, 44), ylim=(16.5, -2.3), aspect="equal")
    axes.axis("off")

    def matrix(x, y, side, colour):
        for row, column in np.ndindex(side, side):
            corner = (x + column * cell, y + row * cell)
            axes.add_patch(
                Rectangle(corner, cell, cell, facecolor=colour(row, column), edgecolor="white", linewidth=0.6)
            )

    def arrow(start, end):
        style = {"arrowstyle": "-|>", "mutation_scale": 13, "color": "#777777", "linewidth": 1.3}
        axes.add_patch(FancyArrowPatch(start, end, **style))

    counts = ("#cfe2f3", "#8db8dd", "#2f6ea8")
    matrix(2, 5, size, lambda row, column: "#d0d0d0")
    for y, (number, (level, width)) in zip((0, 7.4, 12.2), enumerate(widths.items(), 1)):
        axes.add_patch(
            Rectangle((2, 5), width * cell, width * cell, fill=False, edgecolor=LEVEL_COLOURS[level], linewidth=2.2)
        )
        matrix(16, y, width, lambda row, column, level=level: LEVEL_COLOURS[level])
        middle = y + width * cell / 2
        text = f"{width} of {size} channels: {width * width} of {size * size} weights"
        axes.text(23.2, middle - 0.7, f"client {number}, level {level}", fontsize=10, va="center", weight="bold")
        axes.text(23.2, middle + 0.7, text, fontsize=9, va="center")
        arrow((9, 8.2), (15.6, middle))
        arrow((33.1, middle), (35.3, 8.2))
    matrix(35.6, 5, size, lambda row, column: counts[sum(max(row, column) < width for width in widths.values()) - 1])
    for side, count, colour in ((2, 3, "white"), (6, 2, "black"), (12, 1, "black")):
        middle = side * cell / 2
        axes.text(35.6 + middle, 5 + middle, str(count), color=colour, ha="center", va="center", fontsize=12, zorder=5)
    for x, text in ((5.2, "global weights of a layer"), (38.8, "new global weights")):
        axes.text(x, 4.2, text, ha="center", fontsize=10, weight="bold")
    for x, text in ((12, "1  cut"), (24.5, "2  train on each client's data"), (38.8, "3  merge")):
        axes.text(x, -1.2, text, ha="center", fontsize=11.5, color="#7b241c", weight="bold")
    text = "number of clients that\ntrained an entry, which\nbecomes their mean"
    axes.text(38.8, 13.6, text, ha="center", va="center", fontsize=9)


def draw_norms(figure):
    """Densities of one channel before a norm, at three levels of the same global weights: they need statistics each."""
    import keras

    import hetero_tf

    process = hetero_tf.learning_process(hetero_tf.load_recipe("digits"))
    state = process.initialize()
    for _ in range(10):
        state, _ = process.next(state)
    axes = figure.add_subplot()
    for level in CLIENTS:
        _, *preprocessing, network = process.model(state, level=level).layers
        norm = [layer for layer in network.layers if "norm" in layer.__class__.__name__.lower()][1]
        values = process.dataset.test.x
        for layer in preprocessing:
            values = layer(values)
        values = keras.Model(network.inputs, norm.input).predict(values, verbose=0)[..., 0].ravel()
        label = f"level {level}: mean {values.mean():.2f}, standard deviation {values.std():.2f}"
        axes.hist(values, 40, density=True, histtype="step", linewidth=1.8, color=LEVEL_COLOURS[level], label=label)
    axes.set(xlabel="input of the norm, one channel, all test images", ylabel="density")
    figure.legend(frameon=False, loc="outside upper center")


def draw_scaler(figure):
    """Mean output of a unit with positive inputs against the share of its inputs, relative to the full width."""
    import numpy as np

    from hetero_tf.layers.scaler import Scaler

    rng, widths = np.random.default_rng(0), (1, 0.5, 0.25, 0.125, 0.0625)
    inputs, kernel = np.maximum(rng.normal(size=(4096, 256)), 0), rng.uniform(0, 1, (256, 64))
    outputs = {width: inputs[:, : int(256 * width)] @ kernel[: int(256 * width)] for width in widths}
    axes = figure.add_subplot()
    for enabled, label in ((False, "without Scaler"), (True, "with Scaler: divided by the width in training")):
        means = [np.mean(Scaler(width, enabled)(outputs[width], training=True)) for width in widths]
        colour = LEVEL_COLOURS["a" if enabled else "b"]
        axes.plot(widths, np.divide(means, means[0]), "o-" if enabled else "s--", color=colour, label=label)
    axes.set(xlabel="width of the sub-model", ylabel="mean output / mean output at width 1", ylim=(0, 1.15))
    axes.set_xscale("log", base=2)
    axes.set_xticks(widths, ["1", "1/2", "1/4", "1/8", "1/16"])
    axes.legend(frameon=False, loc="center left")


def draw_masked_loss(figure):
    """Gradients of the logits: the mask leaves logits of classes that the client lacks alone."""
    import numpy as np
    import tensorflow as tf

    labels, target = (2, 7), 2
    logits = tf.constant(np.random.default_rng(2).normal(size=10))
    present = tf.constant([label in labels for label in range(10)])
    panels = figure.subplots(1, 2, sharey=True)
    for panel, name in zip(panels, ("cross_entropy", "masked_cross_entropy")):
        with tf.GradientTape() as tape:
            tape.watch(logits)
            value = find("losses", name).loss(logits[None], tf.constant([target]), present[None], 0)
        colours = [LEVEL_COLOURS["a"] if label in labels else "#b0b0b0" for label in range(10)]
        panel.bar(range(10), tape.gradient(value, logits).numpy(), color=colours)
        panel.axhline(0, color="#333333", linewidth=0.8)
        panel.set(title=name, xlabel="class", xticks=range(10))
    panels[0].set_ylabel("gradient of the logit")
    figure.suptitle("A client with the classes 2 and 7 (blue), an example of class 2", fontsize=11)


def draw_privacy(figure):
    """Mean last accuracy of each level over three seeds, with the range, at four budgets and without privacy."""
    runs, budgets = packed_rows("privacy_mnist"), (1, 2, 4, 8)
    panels, labels = (
        figure.subplots(1, 2, sharey=True),
        {"a": "level a, the global model", "b": "level b", "c": "level c"},
    )
    groups = {"1,000 clients, about 100 in a round": "", "5,000 clients, about 500 in a round": "clients_5000_"}
    for panel, (title, group) in zip(panels, groups.items()):
        names = [*(f"{group}epsilon_{budget}" for budget in budgets), f"{group}open"]
        for shift, (level, marker) in zip((-0.06, 0, 0.06), zip(LEVEL_COLOURS, "os^")):
            values = [last_by_seed(runs, name, f"level_accuracy_{level}") for name in names]
            middle = [sum(each) / len(each) for each in values]
            spans = [[mean - min(each), max(each) - mean] for mean, each in zip(middle, values)]
            look = {"color": LEVEL_COLOURS[level], "marker": marker, "capsize": 2, "linewidth": 1.6}
            xs = [x + shift for x in range(len(names))]
            panel.errorbar(xs[:-1], middle[:-1], list(zip(*spans[:-1])), label=labels[level], **look)
            panel.errorbar(xs[-1:], middle[-1:], list(zip(*spans[-1:])), **look)
        panel.set_xticks(range(len(names)), [*map(str, budgets), "none"])
        panel.set_title(title, fontsize=11)
        panel.set(xlabel="epsilon", yticks=range(76, 97, 4))
        panel.grid(axis="y", color="#e3e3e3", linewidth=0.6)
    panels[0].set_ylabel("accuracy after 100 rounds, %")
    figure.legend(*panels[0].get_legend_handles_labels(), frameon=False, loc="outside lower center", ncols=3)


MNIST = ("mnist", [], (28, 28, 1), 10)
CIFAR10 = ("cifar10", ["model.settings.blocks=[1,1,1,2]"], (32, 32, 3), 10)
# {setting: (title, table, metric, recipe of the levels' models with overrides, shape of an example and classes)}
SIZES = {
    "MNIST IID": ("MNIST, IID", "heterofl_table7", "global_accuracy", MNIST),
    "MNIST two labels": ("MNIST, two labels a client", "heterofl_table7", "global_accuracy", MNIST),
    "CIFAR-10 IID": ("CIFAR-10, IID", "heterofl_table8", "global_accuracy", CIFAR10),
    "WikiText-2": ("WikiText-2", "heterofl_table9", "global_perplexity", ("wikitext2", [], (64,), 33_279)),
}
NORMS = ("none", "in", "gn", "ln", "sbn")
PUBLISHED_LOOK = {"marker": "o", "linestyle": "", "mfc": "none", "color": "#7b241c", "label": "published"}
RUN_LOOK = {"marker": "o", "linestyle": "", "color": LEVEL_COLOURS["a"], "label": "hetero_tf, each run"}


def draw_sizes(figure):
    """Best value against the mean parameters of a mix: the paper's tables, and the complete runs of this repository."""
    from hetero_tf import load_recipe
    from hetero_tf.models.costs.counting import total
    from hetero_tf.models.family import build_family

    for panel, (setting, (title, table, metric, model)) in zip(figure.subplots(2, 2).flat, SIZES.items()):
        name, overrides, example, classes = model
        recipe = load_recipe(name, overrides)
        family = build_family(recipe, (None,) if len(example) == 1 else example, example, classes)
        sizes = {
            level: total(family.forward(family.route(level), classes)).parameters for level in recipe.levels.widths
        }
        mixes = mixes_of(table, setting, metric)
        for mix, (value, runs) in mixes.items():
            levels = mix.split("-")
            size = sum(map(sizes.get, levels)) / len(levels)
            panel.plot(size, value, markersize=7, **PUBLISHED_LOOK)
            panel.plot([size] * len(runs), runs, markersize=4, **RUN_LOOK)
            if runs or mix == "a":
                panel.annotate(mix, (size, value), xytext=(6, -9), textcoords="offset points", fontsize=8)
        done = sum(bool(runs) for _, runs in mixes.values())
        panel.set_xscale("log")
        panel.set_title(f"{title}: {done} of {len(mixes)} mixes run", fontsize=10)
        unit = "" if metric == "global_perplexity" else ", %"
        panel.set(xlabel="parameters of a client, mean of the mix", ylabel=metric.replace("_", " ") + unit)
        panel.grid(color="#e3e3e3", linewidth=0.6)
    add_legend(figure)


def draw_norm_kinds(figure):
    """Best values of five norms at level e, published and from this repository's runs."""
    panels = {
        "Table 4: MNIST, IID": ("heterofl_table4", "MNIST IID; norm ", "global_accuracy"),
        "Table 5: two labels, Global": ("heterofl_table5", "MNIST two labels; norm ", "global_accuracy"),
        "Table 5: two labels, Local": ("heterofl_table5", "MNIST two labels; norm ", "local_accuracy"),
    }
    for panel, (title, (table, setting, metric)) in zip(figure.subplots(1, 3), panels.items()):
        cells = cells_of(table, [setting + norm for norm in NORMS], metric)
        for index, norm in enumerate(NORMS):
            value, runs = cells[setting + norm, "e"]
            panel.plot(index, value, markersize=9, **PUBLISHED_LOOK)
            panel.plot([index] * len(runs), runs, markersize=5, **RUN_LOOK)
        panel.set_xticks(range(len(NORMS)), ["none", "IN", "GN", "LN", "sBN"])
        panel.set_title(title, fontsize=10)
        panel.grid(axis="y", color="#e3e3e3", linewidth=0.6)
    figure.axes[0].set_ylabel("accuracy, best round, %")
    add_legend(figure)


def draw_between(figure):
    """Best values between two levels by the mean size of a client's model, and rounds of fixed and dynamic levels."""
    sizes, rounds = figure.subplots(1, 2)
    metric, runs = "global_accuracy", {}
    for run in narrow_runs():
        if run.name == "mnist" and run.keys["model.settings.norm"] == "sbn":
            runs.setdefault((run.keys["levels.mix"], run.keys["levels.assignment"]), []).append(run)
    dynamic = {mix: each for (mix, assignment), each in runs.items() if assignment == "dynamic"}
    fixed = {mix: each for (mix, assignment), each in runs.items() if assignment == "fixed"}
    between = [run for each in (*fixed.values(), dynamic["d"], dynamic["e"]) for run in each]
    looks = RUN_LOOK, {**RUN_LOOK, "marker": "s", "color": LEVEL_COLOURS["c"], "label": "hetero_tf, dynamic levels"}
    for shown, look in zip((between, dynamic["d-e"]), looks):
        points = sorted((run.costs.mix.parameters, best_row(run, metric)[metric]) for run in shown)
        sizes.plot(*zip(*points), **look)
    published = mixes_of("heterofl_table7", "MNIST IID", metric)
    for mix in ("e", "d-e", "d"):
        point = dynamic[mix][0].costs.mix.parameters, published[mix][0]
        sizes.plot(*point, markersize=9, **PUBLISHED_LOOK)
        sizes.annotate(mix, point, xytext=(7, -10), textcoords="offset points", fontsize=9)
    sizes.set(xlabel="parameters of a client, mean", ylabel="global accuracy, best round, %")
    sizes.set_title("MNIST, IID: none to all clients at d instead of e", fontsize=10)
    ways = {"fixed: each client keeps d or e": (fixed, "a"), "dynamic: drawn in each round": (dynamic, "c")}
    for label, (group, colour) in ways.items():
        for run in group["d-e"]:
            rows = [(row["round"], row[metric]) for row in run.rows if metric in row]
            rounds.plot(*zip(*rows), color=LEVEL_COLOURS[colour], linewidth=1.4, label=label)
    rounds.set(xlabel="round", ylabel="global accuracy, %", ylim=(97.8, 99.3))
    rounds.set_title("MNIST, IID: half of the clients at d, half at e", fontsize=10)
    for panel in (sizes, rounds):
        handles = dict(zip(*reversed(panel.get_legend_handles_labels())))
        panel.legend(handles.values(), handles.keys(), frameon=False, loc="lower right")
        panel.grid(color="#e3e3e3", linewidth=0.6)


def add_legend(figure):
    """Name the two kinds of points once."""
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles[:2], labels[:2], frameon=False, loc="outside lower center", ncols=2)


# {name: (file, function, size in inches)}
FIGURES = {
    "levels": ("benchmarks/pictures/levels.png", draw_levels, (10, 3.4)),
    "round": ("docs/pictures/round.png", draw_round, (10, 4.27)),
    "norms": ("docs/pictures/norms.png", draw_norms, (7, 3.8)),
    "scaler": ("docs/pictures/scaler.png", draw_scaler, (7, 3.2)),
    "masked_loss": ("docs/pictures/masked_loss.png", draw_masked_loss, (8, 3.2)),
    "privacy": ("docs/pictures/privacy.png", draw_privacy, (8, 3.6)),
    "sizes": ("docs/pictures/sizes.png", draw_sizes, (9, 6.4)),
    "norm_kinds": ("docs/pictures/norm_kinds.png", draw_norm_kinds, (9, 3.4)),
    "between": ("docs/pictures/between.png", draw_between, (9, 3.6)),
}


def main(arguments=None):
    """Draws the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="figures to draw")
    parser.add_argument("--to", type=Path, default=checkout.ROOT, help="folder of the files, the checkout")
    options = parser.parse_args(arguments)
    if unknown := sorted(set(options.names) - set(FIGURES)):
        parser.error(f"NAME must be one of {', '.join(FIGURES)}. Received: {', '.join(unknown)}")
    from matplotlib.figure import Figure

    hardware.import_quietly()
    for name in options.names or FIGURES:
        file, draw, size = FIGURES[name]
        figure = Figure(figsize=size, dpi=130, layout="none" if name == "round" else "constrained", facecolor="white")
        draw(figure)
        path = options.to / file
        path.parent.mkdir(parents=True, exist_ok=True)
        with replace_file(path) as picture:
            figure.savefig(picture, format="png", metadata={"Software": None})
        print(f"drew {path}")


if __name__ == "__main__":
    main()
