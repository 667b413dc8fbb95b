"""Asynchronous rounds as an eager loop that keeps the values of every client until they arrive, for tests."""

import dataclasses

import numpy as np

from hetero_tf.reference import ReferenceRounds


class StaleRounds(ReferenceRounds):
    """Keeps each result until it arrives, and adds what the rule says to the global weights of that time."""

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
            arrived = [each for each in waiting if each[0] == number]
            weights = self.add_arrived(weights, arrived, rule)
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
