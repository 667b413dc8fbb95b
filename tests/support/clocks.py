"""Clocks of rounds with known times."""

import numpy as np
import tiny

from hetero_tf import recipe
from hetero_tf.planning.timing import RoundClock

# Level a takes 2 s, level b 0.5 s for a step; no transfers.
LEVELS = "fleet={assign: levels, devices: {a: {seconds_per_step: 2}, b: {seconds_per_step: 0.5}}}"
# A link, operations and watts; a step of an example takes 1 s at level a.
PHONE = "fleet={devices: {phone: {seconds_per_step: 1, gflops: 1.0e-9, down_mbit: 8, up_mbit: 4, train_watts: 3, radio_watts: 2}}}"


def clock_of(*overrides, flops=((1.0,), (0.5,)), size=0):
    loaded = recipe.loads(tiny.IMAGES, overrides=("levels.mix=a1-b1", *overrides))
    return RoundClock(loaded, 40_000, np.array([size, size // 2]), np.array([size, size // 2]), np.array(flops))


def deadline(seconds, late="drop"):
    return f"round.policy={{name: deadline, seconds: {seconds}, late: {late}}}"
