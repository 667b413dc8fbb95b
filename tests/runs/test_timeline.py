"""The stored times of the clients of the first rounds."""

import dataclasses
import json

import numpy as np
import pytest

from hetero_tf.base.files import Damaged
from hetero_tf.planning.fleets.devices import ClientTimes
from hetero_tf.planning.timing import DROPPED, RETURNED, RoundTiming
from hetero_tf.runs import metrics_file
from hetero_tf.runs.metrics_file import ClientSpan, RoundSpan


def span(round, clients=1, **values):
    """A round of ten seconds."""
    defaults = {"device": "phone", "level": "a", "download": 1.0, "compute": 5.0, "upload": 2.0, "status": "returned"}
    began = 10.0 * (round - 1)
    times = defaults | {"start": began} | values
    return RoundSpan(round, began, began + 10, [ClientSpan(client=client, **times) for client in range(clients)])


def append(path, *spans):
    for each in spans:
        metrics_file.append(path, dataclasses.asdict(each))


def test_first_rounds_are_stored_and_the_last_repetition_counts(tmp_path):
    path, spans = tmp_path / "timeline.jsonl", [span(round) for round in range(1, metrics_file.MOST_ROUNDS + 3)]
    assert metrics_file.read_spans(path) == []
    append(path, spans[0], span(2, level="b"))
    # A resumed run repeats rounds.
    append(path, *spans[1:])
    assert metrics_file.read_spans(path) == spans[: metrics_file.MOST_ROUNDS]
    assert spans[1].clients[0].end == 18.0


@pytest.mark.parametrize("changes", [{"began": -1}, {"ended": 1e99}, {"clients": [{}]}])
def test_other_content_is_refused(tmp_path, changes):
    path = tmp_path / "timeline.jsonl"
    append(path, span(1))
    path.write_text(json.dumps(json.loads(path.read_text()) | changes) + "\n")
    with pytest.raises(
        Damaged, match=r"timeline.jsonl: (began|ended|clients).* (must be|is missing).*; delete the file$"
    ):
        metrics_file.read_spans(path)


def test_spans_have_names_and_absolute_times_and_large_cohorts_are_truncated():
    count = metrics_file.MOST_CLIENTS + 1
    seconds = [np.full(count, number) for number in (1.0, 2.0, 3.0, 0.0)]
    kinds, levels = np.arange(count) % 2, np.arange(count) % 3
    statuses = (RETURNED, DROPPED) * count
    steps, times = np.ones(count, int), ClientTimes(*seconds)
    timing = RoundTiming(np.arange(count) + 5, kinds, levels, steps, statuses[:count], times, 6.0)
    round_span = RoundSpan.of(("phone", "watch"), ("a", "b", "c"), 3, 10.0, timing)
    assert (round_span.round, round_span.began, round_span.ended) == (3, 10.0, 16.0)
    assert [each.client for each in round_span.clients] == list(range(5, 5 + metrics_file.MOST_CLIENTS))
    one, two, *_ = round_span.clients
    assert (one.device, one.level, one.start, one.end, one.status) == ("phone", "a", 10.0, 16.0, RETURNED)
    assert (two.client, two.device, two.level, two.status) == (6, "watch", "b", DROPPED)
