"""Rounds with adapters that are trained and merged by the rules of `round.adapters`, in NumPy.

They take models and plans of a process with the default rule. The sums of products, their coverage and the SVD are
written out; nothing of the package's merge is used, only the order of the adapters.
"""

import itertools

import numpy as np
import oracle

from hetero_tf.models.adapter_pairs import find_adapters


class AdapterRounds(oracle.Oracle):
    """The rounds of a process by a rule; adapters are `.../a` and `.../b` with the kernel of `bases`.

    Args:
        bases: `{path of a, without the last letter: (path of the base, scale)}`.
    """

    def __init__(self, process, rule, bases):
        super().__init__(process)
        self.rule, self.bases = rule, bases

    def run_round(self, weights, plan, round):
        self.fixed = {"ffa": "a", "rolora": "ba"[(round + 1) % 2]}.get(self.rule)
        self.sent = []
        top = self.process.recipe.levels.global_level
        adapters = find_adapters(self.process.family.training_model(top, self.process.dataset.classes))
        merged, metrics = super().run_round(weights, plan, round)
        for stem, (base, scale) in self.bases.items():
            if self.fixed:
                merged[stem + self.fixed] = weights[stem + self.fixed]
            if self.rule in ("products", "flexlora", "flora"):
                product, old = self.mean_product(weights, stem), flat(weights, stem)
                if self.rule == "flora":
                    number = [each.a[:-1] for each in adapters].index(stem)
                    draws = oracle.uniform([int(self.process.seed), round, number], [old[0].size])
                    order = np.argsort(draws, kind="stable")
                    merged[stem + "a"] = weights[stem + "a"].ravel()[order].reshape(weights[stem + "a"].shape)
                    merged[stem + "b"] = np.zeros_like(weights[stem + "b"])
                    merged[base] = weights[base] + scale * product.reshape(weights[base].shape)
                else:
                    left, singular, right = np.linalg.svd(product, full_matrices=False)
                    rank = old[0].shape[1]
                    merged[stem + "a"] = left[:, :rank].reshape(weights[stem + "a"].shape)
                    b = singular[:rank, None] * right[:rank]
                    merged[stem + "b"] = b.reshape(weights[stem + "b"].shape)
        return merged, metrics

    def train_client(self, *arguments):
        self.sent.append({})
        return super().train_client(*arguments)

    def step(self, path, value, gradient, slots, rate, step):
        is_fixed = path[:-1] in self.bases and path[-1] == self.fixed
        return value if is_fixed else super().step(path, value, gradient, slots, rate, step)

    def add(self, total, count, path, value, axes, client):
        before = total.copy(), count.copy()
        super().add(total, count, path, value, axes, client)
        self.sent[-1][path] = total - before[0], count - before[1]

    def mean_product(self, weights, stem):
        """The mean product over the clients that have a rank, or over all; the old one where there is no client."""
        a, b = flat(weights, stem)
        clients = [(flat(sent, stem, 0), flat(sent, stem, 1)) for sent in self.sent]
        ranks = [int(covered[0].any(axis=0).sum()) for _, covered in clients]
        edges = sorted({0, *(self.rank(level, stem) for level in self.process.recipe.levels.names)})
        mean = np.zeros((a.shape[0], b.shape[1]))
        for first, end in itertools.pairwise(edges if self.rule == "products" else (0, edges[-1])):
            total, count, part = np.zeros_like(mean), np.zeros_like(mean), slice(first, end)
            for (values, covered), rank in zip(clients, ranks):
                if rank > first:
                    total += values[0][:, part] @ values[1][part]
                    count += np.outer(covered[0].any(axis=1), covered[1].any(axis=0))
            mean += np.where(count > 0, total / np.maximum(count, 1), a[:, part] @ b[part])
        return mean

    def rank(self, level, stem):
        """The rank of an adapter at a level."""
        return next(v.shape[-1] for v in self.model(level).variables if v.path == stem + "a")


def flat(values, stem, index=None):
    """The factors of an adapter as matrices; `index`: of a pair in `values`."""
    a, b = (values[stem + factor] if index is None else values[stem + factor][index] for factor in "ab")
    return a.reshape(-1, a.shape[-1]), b.reshape(b.shape[0], -1)
