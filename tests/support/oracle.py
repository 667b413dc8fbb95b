"""The reference round with everything that compiled rounds of one network can have, for tests.

`hetero_tf.reference` has the round of HeteroFL; this adds other sub-models, optimizers, random numbers and inputs. Nothing
here calls the package's cut, local training, merge, inputs or random numbers; the label axis is never cut, so agreement
also shows that cutting it changes nothing.
"""

import dataclasses

import numpy as np
import oracle_terms

from hetero_tf.reference import ReferenceRounds


def play(process, weights, planned, first_round=0):
    """Runs the planned rounds; returns the new weights by path, and (mean loss, mean gradient norm) per round."""
    weights = {path: np.asarray(value) for path, value in weights.items()}
    return Oracle(process).run(weights, planned, first_round)


class Oracle(ReferenceRounds):
    """The rounds of a process, one client after another."""

    def axis(self, size, count, round, client):
        return coordinates(self.process, size, count, round, client)

    def counted(self, merged, shape):
        return [counting(self.process, axis, size) for axis, size in zip(merged, shape)]

    def batch(self, rows, start, key):
        return batch(self.process, rows, start, key)

    def prepare_step(self, model, key):
        seed_dropout(model, key)

    def step(self, path, value, gradient, slots, rate, step):
        method, zeros = self.process.recipe.optimizer.method, np.zeros_like(value)
        value, slots[path] = oracle_terms.moved(method, value, gradient, slots.get(path, (zeros, zeros)), rate, step)
        return value


class StaleRounds(ReferenceRounds):
    """Asynchronous rounds: each result waits until it arrives and changes the weights of that time as the rule says."""

    def play(self, weights, plans, rule):
        waiting = []
        for number, plan in enumerate(plans):
            for slot in range(len(plan.clients)):
                one = dataclasses.replace(
                    plan, **{name: array[slot : slot + 1] for name, array in plan.arrays().items()}
                )
                self.sums = []
                self.run_round(weights, one, number)
                waiting.append((number + plan.delays[slot], int(plan.delays[slot]), weights, self.sums))
            weights = self.add_arrived(weights, [each for each in waiting if each[0] == number], rule)
        return weights

    def merge(self, weights, total, count):
        self.sums.append((total, count))
        return weights

    def add_arrived(self, weights, arrived, rule):
        new = {}
        for path, value in weights.items():
            change, clients, factors = (np.zeros_like(value) for _ in range(3))
            for _, staleness, start, [(total, count)] in arrived:
                origin, factor = (start if rule.adds == "changes" else weights)[path], rule.factors[staleness]
                change += factor * (total[path] - count[path] * origin)
                clients += count[path]
                factors += factor * count[path]
            divisor = {"clients": clients, "factors": factors}.get(rule.divisor, rule.divisor)
            new[path] = np.where(clients > 0, value + change / np.where(clients > 0, divisor, 1), value)
        return new


def coordinates(process, size, count, number, client):
    """The global coordinates of one axis. Label axes are kept whole, they are never shorter here."""
    if count == size:
        return np.arange(size)
    if process.recipe.round.submodel.name == "prefix":
        return np.arange(count)
    if process.recipe.round.submodel.name == "rolling":
        return (np.arange(count) - number) % size
    return np.sort(np.argsort(uniform([int(process.seed), number, client, size], [size]), kind="stable")[:count])


def counting(process, merged_index, size):
    """The part of an axis whose mean includes a client: the merged part, or, with zeros, all of an unlabelled axis."""
    if process.recipe.round.uncovered == "left_out" or size - process.dataset.classes in (0, 1):
        return merged_index
    return np.arange(size)


def batch(process, rows, start, key):
    """Model inputs and targets of one step."""
    train_split, options = process.dataset.train, process.recipe.input.options
    if train_split.y is None:
        tokens = train_split.x[rows, start : start + options["segment"]]
        return np.where(uniform(key, tokens.shape) < options["mask_share"], process.dataset.classes, tokens), tokens
    if process.recipe.input.name == "table":
        return standard_rows(process.dataset, rows).astype(process.recipe.precision), train_split.y[rows]
    pixels = train_split.x[rows]
    values = pixels.astype(process.recipe.precision) / (255 if pixels.dtype == np.uint8 else 1)
    return ((values - options["mean"]) / options["std"]).astype(process.recipe.precision), train_split.y[rows]


def standard_rows(dataset, rows):
    """Rows of a table with mean 0 and deviation 1 over all training rows; constant columns are 0."""
    x = dataset.train.x.astype(np.float64)
    spread = x.std(axis=0)
    return (x[rows] - x.mean(axis=0)) / np.where(spread > 0, spread, 1)


def seed_dropout(model, key):
    """Set two words in every dropout layer, hashed from the key of the step and the index of the layer."""
    for index, variable in enumerate(model.non_trainable_variables):
        if variable.path.endswith("seed_generator_state"):
            variable.assign((hashed([*key, index], 2) >> np.uint32(1)).astype(np.int32))


def uniform(key, shape):
    """The package's random numbers in [0, 1)."""
    return ((hashed(key, np.prod(shape)) >> np.uint32(8)) * 2.0**-24).reshape(shape)


def hashed(key, count):
    """The package's hash, written out: MurmurHash3's finaliser over the words of the key and a counter."""

    def mix(value):
        for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
            value = (value ^ (value >> np.uint32(shift))) * np.uint32(factor)
        return value

    golden, state = np.uint32(0x9E3779B1), np.full(1, 0x9E3779B1, np.uint32)
    for word in key:
        state = mix(state ^ np.uint32(word & 0xFFFFFFFF)) + golden
    return mix(mix(np.arange(count, dtype=np.uint32) * golden + state))
