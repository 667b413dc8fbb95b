"""Merge of results that arrive one or more rounds after their clients have started.

A client that starts in round v trains from the global values of that round. If its result arrives in round v + s, its
staleness is s. The policy of the recipe fixes s before the round, so the graph keeps one sum for each later round
instead of the clients' values.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import tensorflow as tf

from hetero_tf.models.state import StateRows
from hetero_tf.rounds.submodel_cut import concat_columns


@dataclass(frozen=True)
class StaleMerge:
    """How stale results are merged.

    Attributes:
        factors: Factor of a result by its staleness; their number is the largest staleness + 1.
        adds: "changes", the difference of a client's values from those that it started with (FedBuff); "values", the
            difference from the current global values (FedAsync).
        divisor: What the sum of weighted differences of an entry is divided by: "clients", the summed client weights
            of those that cover it, without their factors; "factors", the same with their factors; or a fixed number.
    """

    factors: Sequence[float]
    adds: Literal["changes", "values"]
    divisor: Literal["clients", "factors"] | float

    @property
    def delays(self) -> int:
        """The largest staleness."""
        return len(self.factors) - 1


def merge_arrivals(
    rule: StaleMerge, state: StateRows, delays: tf.Tensor, total: tf.Tensor, coverage: tf.Tensor, learned: int
) -> tuple[tf.Tensor, tf.Tensor, dict[str, tf.Tensor]]:
    """Return the sums of the results that arrive in this round, and the pending sums after it.

    Args:
        state: The values before the round, with its pending sums.
        delays: int32 [D], the different delays of the clients that start in this round, 0 first.
        total: [D, values], sum of client weight * value over those clients, by delay.
        coverage: [D, values], the sum of their weights in the merge.
        learned: Number of learned values. Running statistics follow them; they are averages, so a round takes the mean
            of the arriving ones instead of adding changes, which could make a variance negative.

    Returns:
        total, coverage: [values] for `merge.merge_updates`: `total / coverage` is the old value plus the mean weighted
            difference. If all results are fresh with factor 1, both are bit-equal to the sums of a synchronous round.
        pending: As in `StateRows`.
    """
    # Pending sums of the results that arrive in this round.
    arrived = {name: concat_columns([rows[0] for rows in parts]) for name, parts in state.pending.items()}
    rules = [(slice(0, learned), rule)]
    if learned < state.weights.shape[0]:
        # FedAsync mixes them with its own factors.
        of_statistics = rule if rule.adds == "values" else StaleMerge(rule.factors, "values", "factors")
        rules.append((slice(learned, None), of_statistics))
    merged = [
        _merge_columns(
            each,
            state.weights[columns],
            {name: row[columns] for name, row in arrived.items()},
            tf.gather(tf.constant(each.factors, total.dtype), delays)[:, None],
            total[:, columns],
            coverage[:, columns],
        )
        for columns, each in rules
    ]
    total, coverage, later = tf.nest.map_structure(lambda *columns: concat_columns(columns), *merged)
    pending = {name: _add_later(parts, delays[1:] - 1, later[name]) for name, parts in state.pending.items()}
    return total, coverage, pending


def _merge_columns(rule, old, arrived, factors, total, coverage):
    """Return the sums of `merge_arrivals` for adjacent columns that have one rule, and those of the later results."""
    weighted, covered = factors * total, factors * coverage
    counted = coverage if rule.divisor == "clients" else covered
    later = weighted[1:] - covered[1:] * old if rule.adds == "changes" else weighted[1:]
    arriving_total, arriving_coverage = weighted[0], counted[0]
    if arrived:
        arriving_total += arrived["total"]
        arriving_coverage += arrived["coverage"]
    # The summed factors of those arrived values that are not differences yet.
    of_values = covered[0] if rule.adds == "changes" else arriving_coverage
    divisor = arriving_coverage
    if not isinstance(rule.divisor, str):
        divisor = tf.where(divisor > 0, tf.constant(rule.divisor, total.dtype), tf.zeros([], total.dtype))
    # The difference of the two products is exactly 0 if every result counts once.
    merged = arriving_total + (divisor * old - of_values * old)
    return merged, divisor, {"total": later, "coverage": counted[1:]}


def _add_later(parts, rows, later):
    """Return pending sums for the next round, to whose `rows` later results [rows, values] are added."""
    # Each part is copied once, since the rows of all results together are much larger than those of one round.
    split = tf.split(later, [part.shape[1] for part in parts], axis=1)
    return [
        tf.tensor_scatter_nd_add(tf.pad(part[1:], [[0, 1], [0, 0]]), rows[:, None], columns)
        for part, columns in zip(parts, split)
    ]
