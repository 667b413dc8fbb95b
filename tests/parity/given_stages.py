"""Stages of a vector file: the production division with unit costs that result in them.

The tiny networks of the vectors have other shares of memory than the network whose budgets the stages come from.
"""

import dataclasses
import json
from fractions import Fraction

from hetero_tf.methods.stages import blockwise

DRAWN = False


def divide(outline, level, *, shares, units: str, exit: str = "link", peers: bool = False):
    """Return the stages of `blockwise` under the level's budget; below 1 the listed ones.

    Args:
        units: JSON `{level: [units of each stage]}`, units numbered from 1 after the stem; leading units without a
            stage are skipped
        exit: as in blockwise
        peers: as in blockwise
    """
    if level.budget >= 1:
        return blockwise.divide(outline, level, shares=shares, exit=exit, peers=peers)
    stages, body = json.loads(units)[level.name], outline.trunk[1:-1]
    # Every stage fills a budget of 1; a unit without a stage exceeds it.
    shares = {**dict.fromkeys(outline.trunk, 0), **dict.fromkeys(body, 2)}
    for stage in stages:
        shares.update({body[unit - 1]: Fraction(1, len(stage)) for unit in stage})
    whole = Fraction(sum(shares.values()))
    shares, level = {unit: one / whole for unit, one in shares.items()}, dataclasses.replace(level, budget=1 / whole)
    level = dataclasses.replace(level, tolerance=0.0)
    return blockwise.divide(outline, level, shares=shares, exit=exit, peers=peers)
