#!/usr/bin/env python3
"""Writes `hetero_tf/runs/published_runs.csv`: the runs of each published cell, and their fingerprints.

    benchmarks/papers.py

A setting of `published.csv` consists of phrases, which name a recipe or overrides; a row names the mix of levels or the
method. A row whose recipe depends on a phrase, such as "SplitMix; Lack", has its own entry.
"""

import csv
import io
import shlex

import checkout  # noqa: F401  finds hetero_tf and its libraries

from hetero_tf.recipe import load
from hetero_tf.runs.history import keys_of_recipe
from hetero_tf.runs.published import CELLS, RUNS, fingerprint

HEAD = ("setting", "row", "note", "run", "fingerprint")
# The network of HeteroFL's tables.
BLOCKS = "model.settings.blocks=[1, 1, 1, 2]"
HELD_OUT = "partition.held_out=0.2"
# Phrase -> overrides, of which the first may be a recipe.
PHRASES = {
    "MNIST IID": ["mnist"],
    "MNIST two labels": ["mnist_noniid"],
    "CIFAR-10 IID": ["cifar10", BLOCKS],
    "CIFAR-10 two labels": ["cifar10_noniid", BLOCKS],
    "WikiText-2": ["wikitext2"],
    "no Scaler": ["model.settings.scaler=false"],
    "no mask": ["client.loss=cross_entropy"],
    **{f"norm {kind}": [f"model.settings.norm={kind}"] for kind in ("none", "in", "gn", "ln", "sbn")},
    # FeDepth: 400 of a client's 500 examples train, the others validate.
    "CIFAR-10": [HELD_OUT],
    "CIFAR-100": ["data.dataset=cifar100", HELD_OUT],
    "EMNIST": [
        "data={name: tfds, dataset: emnist/byclass, transpose: true}",
        *("input.mean=[0.1736]", "input.std=[0.3317]", HELD_OUT),
    ],
    "FEMNIST": ["data={name: femnist}", "input.mean=[0.0]", "input.std=[1.0]", "round.clients=360"],
    "Tiny ImageNet": [
        *("data={name: tiny_imagenet}", "input.mean=[0.4802, 0.4481, 0.3975]", "input.std=[0.2770, 0.2691, 0.2821]"),
        *("model.settings.stem_stride=2", "partition={name: iid, clients: 100, held_out: 0.2}"),
    ],
    **{
        f"{clients} clients": [f"partition.clients={clients}", f"round.clients={clients // 10}"]
        for clients in (500, 1000)
    },
    "3597 writers": ["partition={name: natural, clients: 3597, held_out: 0.2}"],
    **{f"alpha_u({alpha})": [f"partition.alpha={alpha}"] for alpha in (0.3, 1.0)},
    **{f"alpha({alpha})": ["partition.name=dirichlet_equal", f"partition.alpha={alpha}"] for alpha in (0.3, 1.0)},
    **{f"beta({labels})": ["partition.name=class_deck", f"partition.per_client={labels}"] for labels in (2, 5, 10, 30)},
    "Lack": ["levels.budgets=lack"],
    "Surplus": ["levels.budgets=surplus"],
    "Unrealistic": [],
    "Fair": [],
}
# Phrase -> difference of its runs from the paper.
NOTES = {
    "EMNIST": "images of 28 x 28 in one channel, in the paper 32 x 32 in three",
    "FEMNIST": "images of 28 x 28 in one channel, in the paper 32 x 32 in three",
    "Tiny ImageNet": "IID and a stride of 2 in the stem, which the paper does not state",
}
# FeDepth's rows -> recipe and overrides; of the budget "Lack", with the smallest networks of an eighth.
METHODS = {
    "FedAvg x1": ["methods/fedavg", "levels.widths={a: 1, b: 1, c: 1, d: 1}", "levels.fit=null"],
    "FedAvg x1/6": ["methods/fedavg"],
    "FedAvg": ["methods/fedavg"],
    "FedAvg x1/8": ["methods/fedavg", "levels.widths={a: 1/8, b: 1/8, c: 1/8, d: 1/8}"],
    "HeteroFL": ["methods/heterofl"],
    "SplitMix": ["methods/splitmix"],
    "DepthFL": ["methods/depthfl"],
    "FeDepth": ["methods/fedepth"],
    "m-FeDepth": ["methods/fedepth_branches"],
    "HeteroFL; Lack": ["methods/heterofl", "levels.widths={a: 1, b: 1/2, c: 1/6, d: 1/8}"],
    "SplitMix; Lack": [
        *("methods/splitmix", "levels.widths={a: 1/8, b: 1/8, c: 1/8, d: 1/8}"),
        "levels.members={a: 8, b: 4, c: 1, d: 1}",
    ],
    "DepthFL; Lack": ["methods/depthfl", "levels.depths={a: 4, b: 3, c: 1, d: 1}"],
    "FeDepth; Surplus": ["methods/fedepth_mkd"],
    "m-FeDepth; Surplus": [
        *("methods/fedepth_branches", "client.stages.peers=true", "client.coupling={name: mutual, ramp: null}")
    ],
}
STANDALONE = ("round.clients=100", "round.personal=[all]")
# HeteroFL's rows of other methods, from the code of LG-FedAvg; the path of the start does not count.
BASELINES = {
    "FedAvg; MNIST": ["mnist_mlp", "rounds=1000"],
    "FedAvg; CIFAR-10": ["cifar10_cnn", "rounds=2000"],
    "Standalone; MNIST": ["mnist_mlp", *STANDALONE, "rounds=100", "optimizer.learning_rate=0.05"],
    "Standalone; CIFAR-10": ["cifar10_cnn", *STANDALONE, "rounds=200"],
    "Standalone; CIFAR-10 IID": ["cifar10_cnn", *STANDALONE, "rounds=400"],
    "LG-FedAvg; MNIST": ["mnist_mlp_lg", "model.initial_weights=runs/mnist_mlp"],
    "LG-FedAvg; CIFAR-10": ["cifar10_cnn_lg", "model.initial_weights=runs/cifar10_cnn"],
}
# Recipe -> {note: overrides} where the source leaves several runs possible.
VARIANTS = {
    "wikitext2": {
        "200 rounds as in the authors' code": [],
        "100 rounds as in the paper's text": ["rounds=100", "schedule.at=[25, 50]"],
    },
    "methods/depthfl": {"1.7 to 3.2 times its budgets, with exits that the paper does not describe": []},
    **{name: {"a network of 64,102 parameters, in the table 1.8 M": []} for name in ("cifar10_cnn", "cifar10_cnn_lg")},
}


def runs_of(setting: str, row: str) -> list[tuple[str, list[str]]]:
    """Return the note, and recipe and overrides, of each run that may have printed a cell; none for costs."""
    phrases = setting.split("; ")
    if not all(phrase in PHRASES for phrase in phrases):
        return []
    words = [word for phrase in phrases for word in PHRASES[phrase]]
    notes = [NOTES[phrase] for phrase in phrases if phrase in NOTES]
    if words[0] == HELD_OUT or "=" in words[0]:
        run = [*METHODS.get(f"{row}; {phrases[-1]}", METHODS[row]), *words]
        if row == "HeteroFL":
            slimmable = ["methods/slimmable", *run[1:]]
            codes = {
                "by HeteroFL's code": run,
                "by SplitMix's code of HeteroFL, which also trains narrower widths": slimmable,
            }
            return [("; ".join([*notes, note]), run) for note, run in codes.items()]
    elif row in ("Standalone", "FedAvg", "LG-FedAvg"):
        data, _, split = setting.partition(" ")
        run = BASELINES.get(f"{row}; {setting}", BASELINES[f"{row}; {data}"])
        run = [*run, "partition.name=iid"] if split == "IID" else run
    else:
        run = [*words, f"levels.mix={row}"]
    variants = VARIANTS.get(run[0], {"": list[str]()}).items()
    return [("; ".join([*notes, note]).strip("; "), [*run, *more]) for note, more in variants]


def table_of_runs() -> str:
    """Return the content of `published_runs.csv`."""
    with CELLS.open(newline="", encoding="utf-8") as file:
        cells = dict.fromkeys((cell["setting"], cell["row"]) for cell in csv.DictReader(file))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEAD)
    for setting, row in cells:
        for note, run in runs_of(setting, row):
            digest = fingerprint(keys_of_recipe(load(run[0], run[1:]).source))
            writer.writerow((setting, row, note, shlex.join(run), digest))
    return text.getvalue()


if __name__ == "__main__":
    RUNS.write_text(table_of_runs(), encoding="utf-8")
