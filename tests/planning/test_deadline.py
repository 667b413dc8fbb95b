"""Deadlines that no client can meet."""

import numpy as np
import pytest
from clocks import LEVELS, PHONE, clock_of, deadline
from refusals import refusal

from hetero_tf.planning.plan import Division
from hetero_tf.run.checks import check_deadline

JOINT = Division((1, 1), False)


def check(clock, sizes=(9, 9, 9, 9), division=JOINT):
    check_deadline(clock, np.asarray(sizes), division, (0,))


@pytest.mark.parametrize(
    ("seconds", "late", "needed"),
    [(2.9, "drop", "3"), (3, "drop", None), (0.4, "partial", "0.5"), (0.5, "partial", None)],
)
def test_deadline_that_excludes_every_client_is_rejected(seconds, late, needed):
    # Two epochs of three steps.
    clock = clock_of(LEVELS, deadline(seconds, late))
    if needed is None:
        check(clock)
        return
    assert refusal(check, clock) == (
        f"round.policy.seconds: the deadline excludes every client: the fastest needs {needed} s. Set at least "
        f"{needed}. Received: {seconds:g}"
    )
    check(clock_of(LEVELS.replace("{assign", "{jitter: 1, assign"), deadline(seconds, late)))


def test_fastest_client_decides_whether_the_deadline_is_possible():
    flops = ((1.0, 4.0), (0.5, 2.0))
    stages = Division((2, 2), False)
    for late, needed in (("drop", 2 * 2 * (1 + 1) + 2 * 3 * 0.5 + 2 * 3 * 2), ("partial", 2 * 2 * 1 + 2 * 3 * 0.5)):
        # Two epochs of a client with three examples in two steps of batches of two, at level b.
        text = refusal(
            check, clock_of(PHONE, deadline(1, late), "client.batch_size=2", flops=flops), (3, 9, 9, 9), stages
        )
        assert f"the fastest needs {needed:g} s" in text
    drawn = refusal(check, clock_of(PHONE, deadline(1), flops=flops), (3, 9, 9, 9), Division((2, 2), True))
    assert "the fastest needs 5 s" in drawn
    narrow = clock_of(LEVELS, deadline(2), "levels.assignment=fixed")
    assert "needs 3 s" in refusal(check, narrow) and refusal(check, narrow, (3, 3, 9, 9)).endswith("Received: 2")
