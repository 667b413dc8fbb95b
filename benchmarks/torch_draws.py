#!/usr/bin/env python3
"""Draws of HeteroFL's authors for MNIST with two labels per client at level e: split, initial values, and cohorts.

    benchmarks/torch_draws.py draw FILE.npz [--seed 0]       # with PyTorch
    benchmarks/torch_draws.py write FILE.npz DIR [--norm ln] [--data_dir DIR]
    PYTHONPATH=benchmarks bin/hetero_tf --plugin torch_draws --recipe mnist_noniid --set levels.mix=e \\
        --set model.settings.norm=ln --set 'partition={name: file, clients: 100, path: DIR/partition.npz}' \\
        --set model.initial_weights=DIR/weights.npz --set 'round.selection={name: torch_draws, path: FILE.npz}'

Their code takes everything from one generator of PyTorch, in this order: the initial values; the labels of the clients;
for each label of a client one of the remaining shards of that label, of the training split and then of the test split;
and in each round the cohort. Each client of a cohort builds a network and shuffles its examples five times, the query
of the statistics builds one and shuffles all examples, and each of 101 loaders of test examples takes a seed. With
the PyTorch of the time (1.6) a shuffle is a permutation of the same generator.

`draw` needs PyTorch and NumPy, so hetero_tf may be in another environment. As a plug-in this file is the selection.
"""

import argparse
from pathlib import Path

import numpy as np

CLIENTS, ACTIVE, CLASSES, SHARDS, EPOCHS = 100, 10, 10, 20, 5
CHANNELS = (1, 4, 8, 16, 32)  # level e
# Examples of each digit in both splits of MNIST.
TRAIN = (5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949)
TEST = (980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009)


def choose(pool, count, rng, *, path: str):
    """Return the recorded clients of a round.

    Args:
        path: the file of `draw`
    """
    with np.load(path) as draws:
        return draws["cohorts"][pool.round]


def parse():
    """The arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    draw = commands.add_parser("draw", help="repeat the draws of a seed with PyTorch")
    write = commands.add_parser("write", help="write partition.npz and weights.npz of a file of `draw`")
    for each in (draw, write):
        each.add_argument("file", type=Path)
    draw.add_argument("--seed", type=int, default=0)
    draw.add_argument("--rounds", type=int, default=400)
    write.add_argument("folder", type=Path)
    write.add_argument("--norm", choices=("none", "in", "gn", "ln", "sbn"), default="ln")
    write.add_argument("--data_dir")
    return parser.parse_args()


def new_network():
    """The layers with initial values, in the order of their draws."""
    from torch import nn

    return [nn.Conv2d(*pair, 3, padding=1) for pair in zip(CHANNELS, CHANNELS[1:])] + [nn.Linear(CHANNELS[-1], CLASSES)]


def draw_shards(labels):
    """The shard of each label of each client; `labels` has those of each client, ascending."""
    import torch

    remaining, shards = [list(range(SHARDS)) for _ in range(CLASSES)], []
    for label in (label for of_client in labels for label in of_client):
        shards.append(remaining[label].pop(int(torch.randperm(len(remaining[label]))[0])))
    return shards


def draw_cohorts(sizes, rounds):
    """The clients of each round: int [rounds, ACTIVE]; `sizes` has the training examples of each client."""
    import torch

    def open_loader(examples=0):
        torch.empty((), dtype=torch.int64).random_()
        torch.randperm(examples)

    cohorts = []
    for _ in range(rounds):
        cohorts.append(torch.randperm(CLIENTS)[:ACTIVE].numpy())
        for client in cohorts[-1]:
            new_network()
            for _ in range(EPOCHS):
                open_loader(sizes[client])
        new_network()
        open_loader(sum(TRAIN))
        for _ in range(CLIENTS + 1):
            open_loader()
    return np.stack(cohorts)


def draw_all(args):
    """Draws with PyTorch, and writes the file."""
    import torch

    torch.manual_seed(args.seed)
    values = [parameter.detach().numpy() for layer in new_network() for parameter in layer.parameters()]
    slots = torch.arange(CLASSES).repeat(SHARDS)[torch.randperm(CLASSES * SHARDS)].reshape(CLIENTS, -1)
    labels = [sorted(set(of_client)) for of_client in slots.tolist()]
    shards = {"train": draw_shards(labels), "test": draw_shards(labels)}
    flat, owners = np.concatenate(labels), np.repeat(np.arange(CLIENTS), [len(of_client) for of_client in labels])
    sizes = np.bincount(owners, [shard_size(TRAIN[label], shard) for label, shard in zip(flat, shards["train"])])
    cohorts = draw_cohorts(sizes.astype(int).tolist(), args.rounds)
    arrays = {f"values/{index}": value for index, value in enumerate(values)}
    np.savez(args.file, **arrays, **shards, labels=flat, clients=owners, cohorts=cohorts)


def shard_size(examples, shard):
    """Number of examples in a shard of a label; the first ones have one of the remaining examples each."""
    return examples // SHARDS + (shard < examples % SHARDS)


def shard_ids(labels, label, shard):
    """Ids of the examples of a shard: consecutive ones of the label, and one of its last ones."""
    ids = np.flatnonzero(labels == label)
    size, rest = divmod(len(ids), SHARDS)
    ids = np.concatenate([ids[shard * size : (shard + 1) * size], ids[len(ids) - rest :][shard : shard + 1]])
    return ids.astype(np.int32)


def write_files(args):
    """Writes the partition and the initial values for hetero_tf."""
    import checkout  # noqa: F401  finds hetero_tf and its libraries

    from hetero_tf import recipe as recipes
    from hetero_tf.data.partitions.partition import ClientExamples, Partition
    from hetero_tf.run.data import load_data

    draws = np.load(args.file)
    data = load_data(recipes.load("mnist_noniid", ["levels.mix=e"]), args.data_dir)
    examples = {}
    for name, split, counts in (("train", data.train, TRAIN), ("test", data.test, TEST)):
        labels = np.asarray(split.y)
        assert np.array_equal(np.bincount(labels), counts), "these draws are for MNIST"
        ids = [shard_ids(labels, *pair) for pair in zip(draws["labels"], draws[name])]
        of_clients = [
            np.concatenate([ids[at] for at in np.flatnonzero(draws["clients"] == client)]) for client in range(CLIENTS)
        ]
        examples[name] = ClientExamples.from_lists(of_clients)
    mask = np.zeros((CLIENTS, CLASSES), bool)
    mask[draws["clients"], draws["labels"]] = True
    args.folder.mkdir(parents=True, exist_ok=True)
    Partition(**examples, label_mask=mask).save(args.folder / "partition.npz")
    np.savez(args.folder / "weights.npz", **initial_values(draws, args.norm))


def initial_values(draws, norm):
    """The values by the paths of the recipe's variables; the output layer begins without bias."""
    arrays, last = {}, len(CHANNELS) - 1
    for index, channels in enumerate(CHANNELS[1:]):
        kernel, bias = (draws[f"values/{2 * index + offset}"] for offset in (0, 1))
        arrays |= {
            f"{index}_0_padded_conv2d/kernel": kernel.transpose(2, 3, 1, 0),
            f"{index}_0_padded_conv2d/bias": bias,
        }
        if norm != "none":
            ones = np.ones(channels, np.float32)
            arrays |= {f"{index}_2_norm/{norm}/gamma": ones, f"{index}_2_norm/{norm}/beta": 0 * ones}
    return arrays | {"5_0_dense/kernel": draws[f"values/{2 * last}"].T, "5_0_dense/bias": np.zeros(CLASSES, np.float32)}


if __name__ == "__main__":
    arguments = parse()
    draw_all(arguments) if arguments.command == "draw" else write_files(arguments)
