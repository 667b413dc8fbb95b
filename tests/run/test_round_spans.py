"""The clients of a round as the timeline stores them."""

import numpy as np

from hetero_tf import recipe
from hetero_tf.planning.fleets.devices import ClientTimes
from hetero_tf.planning.timing import DROPPED, RETURNED, RoundTiming
from hetero_tf.run.round_spans import round_span
from hetero_tf.runs.metrics_file import MOST_CLIENTS

FLEET = "fleet.devices={phone: {seconds_per_step: 1}, watch: {seconds_per_step: 2}}"


def timing(statuses):
    """Times of a round in which each client downloads for 1 s, trains for 2 s and uploads for 3 s."""
    count = len(statuses)
    seconds = [np.full(count, number) for number in (1.0, 2.0, 3.0, 0.0)]
    kinds, levels = np.arange(count) % 2, np.arange(count) % 3
    return RoundTiming(np.arange(count) + 5, kinds, levels, np.ones(count, int), statuses, ClientTimes(*seconds), 6.0)


def test_spans_have_names_and_absolute_times():
    span = round_span(recipe.load("tiny/digits", [FLEET]), 3, 10.0, timing((RETURNED, DROPPED)))
    assert (span.round, span.began, span.ended) == (3, 10.0, 16.0)
    one, two = span.clients
    assert (one.client, one.device, one.level, one.start, one.end, one.status) == (
        5,
        "phone",
        "a",
        10.0,
        16.0,
        RETURNED,
    )
    assert (two.client, two.device, two.level, two.status) == (6, "watch", "b", DROPPED)


def test_large_cohorts_are_truncated():
    count = MOST_CLIENTS + 1
    span = round_span(recipe.load("tiny/digits", [FLEET]), 1, 0.0, timing((RETURNED,) * count))
    assert [client.client for client in span.clients] == list(range(5, 5 + MOST_CLIENTS))
