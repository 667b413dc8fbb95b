"""The stored times of the clients of the first rounds."""

import numpy as np

from hetero_tf.planning.fleets.devices import ClientTimes
from hetero_tf.planning.timing import DROPPED, RETURNED, RoundTiming
from hetero_tf.runs import metrics_file


def test_clients_have_names_and_absolute_times_and_large_cohorts_are_truncated():
    count = metrics_file.MOST_CLIENTS + 1
    seconds = [np.full(count, number) for number in (1.0, 2.0, 3.0, 0.0)]
    kinds, levels = np.arange(count) % 2, np.arange(count) % 3
    statuses = (RETURNED, DROPPED) * count
    steps, times = np.ones(count, int), ClientTimes(*seconds)
    timing = RoundTiming(np.arange(count) + 5, kinds, levels, steps, statuses[:count], times, 6.0)
    row = metrics_file.timeline_row(("phone", "watch"), ("a", "b", "c"), 3, 10.0, timing)
    assert (row["round"], row["began"], row["ended"]) == (3, 10.0, 16.0)
    assert [each["client"] for each in row["clients"]] == list(range(5, 5 + metrics_file.MOST_CLIENTS))
    one, two, *_ = row["clients"]
    times = {"start": 10.0, "download": 1.0, "compute": 2.0, "upload": 3.0}
    assert one == {"client": 5, "device": "phone", "level": "a", "status": RETURNED, **times}
    assert (two["client"], two["device"], two["level"], two["status"]) == (6, "watch", "b", DROPPED)
