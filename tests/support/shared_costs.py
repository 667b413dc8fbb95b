"""Counts the operations of equal models once for all tests of a process: each count traces a model.

Tests of the count itself call `counting.forward`, which stays as it is.
"""

import functools
import json
import sys


def install():
    """Share the counts of model families from now on, if the module is imported; repeated calls change nothing."""
    module = sys.modules.get("hetero_tf.models.family")
    forward = getattr(module, "forward", None)
    if forward is None or hasattr(forward, "costs"):
        return

    @functools.wraps(forward)
    def shared(model, example):
        try:
            key = json.dumps(model.get_config(), default=str), str(model.inputs), example
        except NotImplementedError:
            return forward(model, example)
        if key not in shared.costs:
            shared.costs[key] = forward(model, example)
        return shared.costs[key]

    shared.costs = {}
    module.forward = shared
