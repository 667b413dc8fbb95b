"""Stages as a vector file names them: the production division, under costs of the units that lead to them.

The tiny nets of the vectors have other shares of memory than the net whose budgets the stages come from.
"""

import dataclasses
import json
from fractions import Fraction

from hetero_tf.methods.stages import blockwise

DRAWN = False


def divide(outline, level, *, shares, given: str, exit: str = "link", peers: bool = False):
    """The stages of `blockwise` under the level's budget; below 1 the given ones.

    Args:
        given: JSON `{level: [units of each stage]}`, units counted from 1 behind the stem; leading ones that stand in
            no stage are left out
        exit: as in blockwise
        peers: as in blockwise
    """
    if level.budget >= 1:
        return blockwise.divide(outline, level, shares=shares, exit=exit, peers=peers)
    stages, body = json.loads(given)[level.name], outline.trunk[1:-1]
    # Every stage fills a budget of 1; a unit that stands in none exceeds it.
    shares = {**dict.fromkeys(outline.trunk, 0), **dict.fromkeys(body, 2)}
    for stage in stages:
        shares.update({body[unit - 1]: Fraction(1, len(stage)) for unit in stage})
    whole = Fraction(sum(shares.values()))
    shares, level = {unit: one / whole for unit, one in shares.items()}, dataclasses.replace(level, budget=1 / whole)
    level = dataclasses.replace(level, tolerance=0.0)
    return blockwise.divide(outline, level, shares=shares, exit=exit, peers=peers)
