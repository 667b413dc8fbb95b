"""What a client can train under a budget: units packed into stages, the widest width, the greatest depth, members.

A budget is an exact share of what the full model takes of a client: of its training memory, of its multiply-adds, or
plainly of its size. It may exceed 1: such a client has room for more than one model.
"""

from hetero_tf.budgets.packing import Packing, Stage, pack, pack_levels, stage_work, with_ends
from hetero_tf.budgets.shares import (
    FAIR, LACK, MEASURES, SCENARIOS, SURPLUS, Need, Scenario, cap, exact_share, fits, greatest, members, scenario)

__all__ = ["FAIR", "LACK", "MEASURES", "SCENARIOS", "SURPLUS", "Need", "Packing", "Scenario", "Stage", "cap",
           "exact_share", "fits", "greatest", "members", "pack", "pack_levels", "scenario", "stage_work",
           "with_ends"]
