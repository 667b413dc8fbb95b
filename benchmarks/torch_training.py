#!/usr/bin/env python3
"""Trains a recipe of the MNIST CNN with equal clients here and in a plain PyTorch loop, and compares every round.

    benchmarks/torch_training.py export FILE.npz --rounds 30 [--set model.settings.norm=ln] [--data_dir DIR]
    benchmarks/torch_training.py train FILE.npz

`export` trains `mnist_noniid` at level e, and writes the values before each round, the examples of every step, the
learning rates and the Global accuracy. `train` reads only this file: one client after the other, the masked loss,
clipping, momentum and weight decay of PyTorch, and the mean over clients, for the output layer over those that have the
label. It prints both accuracies of each round, and the largest difference of the values if a round of PyTorch starts
from the values before that round, relative to the largest value of a variable. All numbers are float64. Rounding grows
in each step, so the two accuracies part after some rounds, like those of two seeds.

hetero_tf does not require PyTorch, and `train` needs nothing else; install it in a separate environment.
"""

import argparse
from pathlib import Path

import numpy as np

NORMS = {"in": lambda channels: channels, "gn": lambda channels: 4, "ln": lambda channels: 1}


def parse():
    """The arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    export = commands.add_parser("export", help="train with hetero_tf, and write the file")
    export.add_argument("--rounds", type=int, default=30)
    export.add_argument("--set", action="append", default=[], help="overrides of the recipe mnist_noniid")
    export.add_argument("--data_dir")
    train = commands.add_parser("train", help="train with PyTorch what a file describes")
    for each in (export, train):
        each.add_argument("file", type=Path)
    return parser.parse_args()


def export_run(args):
    """Trains with hetero_tf, and writes the file."""
    import checkout  # noqa: F401  finds hetero_tf and its libraries

    from hetero_tf.base import hardware

    hardware.import_quietly()
    from hetero_tf import recipe as recipes
    from hetero_tf.run.data import load_data
    from hetero_tf.run.learning_process import learning_process

    settings = ["levels.mix=e", "model.settings.norm=ln", *args.set, "precision=float64", "evaluate.every=1"]
    recipe = recipes.load("mnist_noniid", settings)
    process = learning_process(recipe, load_data(recipe, args.data_dir))
    state = process.initialize()
    rows, accuracies, rates = [values_of(process, state)], [], []
    arrays = {}
    for number in range(args.rounds):
        plan = process.plan(number)
        arrays |= {f"rows/{number}": plan.rows, f"steps/{number}": plan.steps, f"clients/{number}": plan.clients}
        rates.append(process.learning_rate(number))
        state, _ = process.run(state, [plan])
        accuracies.append(process.evaluate(state)[0]["global_accuracy"])
        print(f"round {number + 1}: {accuracies[-1]:.2f} %", flush=True)
        rows.append(values_of(process, state))
    arrays |= {f"values/{index}": np.stack(of_rounds) for index, of_rounds in enumerate(zip(*rows))}
    data = process.dataset
    np.savez(
        args.file,
        **arrays,
        accuracies=accuracies,
        rates=rates,
        norm=recipe.model.settings["norm"],
        mask=process.partition.label_mask,
        train_x=data.train.x,
        train_y=data.train.y,
        test_x=data.test.x,
        test_y=data.test.y,
    )


def values_of(process, state):
    """The global values in the layout of PyTorch, in the order of the network."""
    order = {4: (3, 2, 0, 1), 2: (1, 0), 1: (0,)}
    values = (np.asarray(state.weights[path]) for path in process.paths)
    return [value.transpose(order[value.ndim]) for value in values]


def new_network(norm, values):
    """The CNN of the recipe in PyTorch, with these values."""
    import torch
    from torch import nn

    layers = []
    for kernel in (value for value in values if value.ndim == 4):
        channels, before = kernel.shape[:2]
        layers += [nn.MaxPool2d(2)] if layers else []
        layers += [nn.Conv2d(before, channels, 3, padding=1)]
        layers += [nn.GroupNorm(NORMS[norm](channels), channels)] if norm != "none" else []
        layers += [nn.ReLU()]
    classes, channels = values[-2].shape
    network = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes)).double()
    with torch.no_grad():
        for parameter, value in zip(network.parameters(), values, strict=True):
            parameter.copy_(torch.from_numpy(value))
    return network


def train_client(network, pixels, labels, rows, absent, rate):
    """Trains a network on the batches of one client; -1 in `rows` fills short batches."""
    import torch_networks

    optimizer = torch_networks.sgd(network, rate)
    for batch in rows:
        batch = batch[batch >= 0]
        torch_networks.masked_step(network, optimizer, pixels[batch], labels[batch], absent)
    return [parameter.detach().numpy() for parameter in network.parameters()]


def merge(values, clients, masks):
    """The mean of the clients' values; rows of the output layer of the clients that have the label, else unchanged."""
    merged = [np.mean(each, axis=0) for each in zip(*clients)]
    for at in (-2, -1):
        count = masks.sum(0).reshape([-1] + [1] * (values[at].ndim - 1))
        total = sum(np.where(mask.reshape(count.shape), client[at], 0) for client, mask in zip(clients, masks))
        merged[at] = np.where(count > 0, total / np.maximum(count, 1), values[at])
    return merged


def train_round(file, number, values, data):
    """The values after one round of PyTorch; `data`: the examples and their labels."""
    import torch

    masks, clients = file["mask"][file[f"clients/{number}"]], []
    for mask, rows, steps in zip(masks, file[f"rows/{number}"], file[f"steps/{number}"]):
        network, absent = new_network(str(file["norm"]), values), torch.from_numpy(~mask)
        batches = torch.from_numpy(rows[:steps].astype(np.int64))
        clients.append(train_client(network, *data, batches, absent, file["rates"][number]))
    return merge(values, clients, masks)


def train_run(args):
    """Trains with PyTorch, and prints the comparison."""
    import torch

    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    file = np.load(args.file)
    pixels, tests = (
        torch.from_numpy((file[name].reshape(-1, 1, 28, 28) / 255 - 0.1307) / 0.3081) for name in ("train_x", "test_x")
    )
    data, wanted = (pixels, torch.from_numpy(file["train_y"].astype(np.int64))), file["test_y"]
    of_rounds = [file[f"values/{index}"] for index in range(sum(name.startswith("values/") for name in file.files))]
    values = [each[0] for each in of_rounds]
    print("round  hetero_tf  PyTorch  difference of one round")
    for number, ours in enumerate(file["accuracies"]):
        values = train_round(file, number, values, data)
        alone = train_round(file, number, [each[number] for each in of_rounds], data)
        worst = max(
            np.abs(each[number + 1] - value).max() / np.abs(value).max() for each, value in zip(of_rounds, alone)
        )
        network = new_network(str(file["norm"]), values)
        with torch.no_grad():
            predicted = torch.cat([network(part) for part in tests.split(1000)]).argmax(1).numpy()
        print(f"{number + 1:5}  {ours:9.2f}  {100 * np.mean(predicted == wanted):7.2f}  {worst:.1e}", flush=True)


if __name__ == "__main__":
    arguments = parse()
    export_run(arguments) if arguments.command == "export" else train_run(arguments)
