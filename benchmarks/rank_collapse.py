#!/usr/bin/env python3
"""Compares the merges of adapters of unequal rank over many rounds: do they reach a target, and do high ranks last?

    benchmarks/rank_collapse.py [--rounds 5 20 60] [--seeds 0 1 2] [--transformer 8] [--rules mean products ...]

The first table is synthetic: 12 clients of the ranks 8, 4 and 2 fit products of factors to one target of rank 8, each
with noise, by gradient steps, in float64. It has the error relative to the target, and the share of the energy of the
result beyond rank 2, means over the seeds. The rules are those of `round.adapters`, and `zeros`, the mean of factors in
which missing ranks are zeros. With `--transformer` a second table has the perplexity of the Transformer of the recipe
tiny/wikitext2_lora after this many rounds, and the mean share of energy beyond rank 1 over its adapters. Its ranks are
8, 2 and 1, and its base is not trained before.
"""

import argparse
import itertools
import sys

import checkout  # noqa: F401  finds hetero_tf and its libraries
import numpy as np
import tensorflow as tf

from hetero_tf import recipe
from hetero_tf.base import registry
from hetero_tf.methods.adapters import AdapterMerge
from hetero_tf.models.adapter_pairs import find_adapters
from hetero_tf.run.learning_process import learning_process

RULES = [*registry.names("adapters"), "zeros"]
SIZE, RANKS = 32, [8] * 4 + [4] * 4 + [2] * 4
NOISE, RATE, STEPS = 0.1, 0.1, 20


def parse():
    """The arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", nargs="*", type=int, default=[5, 20, 60], help="rounds of the synthetic clients")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--transformer", type=int, default=0, help="rounds of the Transformer")
    parser.add_argument("--rules", nargs="+", choices=RULES, default=RULES)
    return parser.parse_args()


def target(rng):
    """A matrix whose singular values fall from 1 to 0.5."""
    left, right = (np.linalg.qr(rng.normal(size=(SIZE, max(RANKS))))[0] for _ in range(2))
    return left * np.linspace(1, 0.5, max(RANKS)) @ right.T


def train(a, b, goal, factors):
    """Gradient steps of some of the factors towards a goal."""
    for _ in range(STEPS):
        error = a @ b - goal
        steps = {"a": error @ b.T, "b": a.T @ error}
        a, b = (value - RATE * steps[name] * (name in factors) for name, value in (("a", a), ("b", b)))
    return a, b


def padded(a, b):
    """The factors with zeros at the ranks that a client lacks."""
    missing = max(RANKS) - a.shape[1]
    return np.pad(a, [[0, 0], [0, missing]]), np.pad(b, [[0, missing], [0, 0]])


def mean_product(factors, by_ranks):
    """The mean of products over all clients, or of each range of ranks over those that have it."""
    edges = sorted({0, *RANKS}) if by_ranks else [0, max(RANKS)]
    total = np.zeros((SIZE, SIZE))
    for first, end in itertools.pairwise(edges):
        clients = [each for each, rank in zip(factors, RANKS) if rank > first]
        total += sum(a[:, first:end] @ b[first:end] for a, b in clients) / len(clients)
    return total


def result_of(name, rounds, seed):
    """The kernel after some rounds, and the target."""
    rule = AdapterMerge() if name == "zeros" else registry.find("adapters", name).merge()
    rng = np.random.default_rng(seed)
    goal = target(rng)
    goals = [goal + NOISE * rng.normal(size=goal.shape) / SIZE**0.5 for _ in RANKS]
    base, a = np.zeros_like(goal), rng.normal(size=(SIZE, max(RANKS))) / SIZE**0.5
    b = np.zeros((max(RANKS), SIZE))
    for number in range(rounds):
        turn = rule.trained[number % len(rule.trained)]
        factors = [
            padded(*train(a[:, :rank], b[:rank], each - base, turn)) for each, rank in zip(goals, RANKS, strict=True)
        ]
        clients = np.sum([np.arange(max(RANKS)) < rank for rank in RANKS], axis=0)
        clients = len(RANKS) if name == "zeros" else clients
        sums = [sum(values) for values in zip(*factors)]
        mean = sums[0] / clients, sums[1] / np.reshape(clients, [-1, 1])
        if rule.combine is None:
            a, b = mean
        else:
            product = mean_product(factors, rule.products == "ranks")
            (a, b), change = rule.combine((a, b), mean, product, tf.constant([seed, number, 0]))
            a, b, base = np.asarray(a), np.asarray(b), base if change is None else base + change
    return base + a @ b, goal


def energy_beyond(matrix, rank):
    """The share of the squared singular values after the first ones."""
    squares = np.linalg.svd(matrix)[1] ** 2
    return squares[rank:].sum() / squares.sum()


def synthetic(args):
    """Print the table of the synthetic clients."""
    print("| merge | " + " | ".join(f"error, {rounds} rounds" for rounds in args.rounds) + " | energy beyond rank 2 |")
    print("| --- " * (len(args.rounds) + 2) + "|")
    for name in args.rules:
        errors = []
        for rounds in args.rounds:
            results = [result_of(name, rounds, seed) for seed in args.seeds]
            errors.append([np.linalg.norm(kernel - goal) / np.linalg.norm(goal) for kernel, goal in results])
        energy = np.mean([energy_beyond(kernel, min(RANKS)) for kernel, _ in results])
        cells = " | ".join(f"{np.mean(each):.3f} ({min(each):.3f} to {max(each):.3f})" for each in errors)
        print(f"| {name} | {cells} | {energy:.3f} |", flush=True)
    goal = energy_beyond(target(np.random.default_rng(0)), min(RANKS))
    print(f"| the target | {'| ' * len(args.rounds)}| {goal:.3f} |")


def transformer(args):
    """Print the table of the Transformer."""
    print("| merge | perplexity | energy beyond rank 1 | MB of a run |\n| --- | --- | --- | --- |")
    for name in args.rules:
        key = "round.uncovered=zeros" if name == "zeros" else f"round.adapters={name}"
        # AdamW at the recipe's rate hardly moves factors in a few rounds.
        overrides = [key, f"rounds={args.transformer}", "optimizer.learning_rate=0.02", "schedule=constant"]
        process = learning_process(recipe.load("tiny/wikitext2_lora", overrides))
        state, sent = process.initialize(), 0
        before = state.weights
        for _ in range(args.transformer):
            state, row = process.next(state)
            sent += row["bytes_down"] + row["bytes_up"]
        adapters = find_adapters(process.family.training_model("a", process.dataset.classes))
        energy = np.mean([energy_beyond(_kernel_change(state.weights, before, each), 1) for each in adapters])
        metrics, _ = process.evaluate(state)
        print(f"| {name} | {metrics['global_perplexity']:.3f} | {energy:.4f} | {sent / 1e6:.2f} |", flush=True)


def _kernel_change(weights, before, adapter):
    """The change of the kernel that the model computes with, as a matrix [channels, outputs]."""
    a, b = np.asarray(weights[adapter.a]), np.asarray(weights[adapter.b])
    change = adapter.scale * a.reshape(-1, a.shape[-1]) @ b.reshape(b.shape[0], -1)
    base = np.asarray(weights[adapter.base]) - np.asarray(before[adapter.base])
    return change + base.reshape(change.shape)


if __name__ == "__main__":
    arguments = parse()
    if arguments.rounds:
        synthetic(arguments)
    if arguments.transformer:
        transformer(arguments)
    sys.exit(0)
