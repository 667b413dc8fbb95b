"""Contract of every plug-in of the package, except for layers and partitions; a new one is tested automatically."""

import pytest
from contract_cases import shipped

# Options without a default, or those that enable all terms; a list has several sets of options.
OPTIONS = {
    "adapters": {},
    "corrections": {"proximal": {"mu": 0.3}},
    "couplings": {"weighted": {"gamma": 0.5, "from_round": 2}, "mutual": {"floor": 1e-3}},
    "inputs": {},
    "losses": {},
    "masks": {},
    "merges": {"qfedavg": [{"q": 2.0}, {"q": 0.5}], "trimmed_mean": {"share": 0.4}},
    "metrics": {},
    "optimizers": {},
    "personalizations": {},
    "policies": {"deadline": {"seconds": 60.0}},
    "schedules": {"steps": {"at": (3, 7)}, "cosine": {"rounds": 20}, "exponential": {"factor": 0.99}},
    "selections": {"power_of_choice": {"candidates": 9}},
    "servers": {},
    "stages": {
        "blockwise": [{}, {"exit": "branch"}, {"peers": True}, {"buffered": True}, {"stem": "every"}],
        "joint": [{}, {"exits": "last"}],
        "nested": [{}, {"distill": True}],
    },
    "submodels": {},
    "tasks": {},
    "updates": {"clip": {"norm": 2.0}},
}
CHECKS = [check for kind, options in OPTIONS.items() for check in shipped(kind, options).args[1]]


@pytest.mark.parametrize("check", CHECKS, ids=str)
def test_a_plugin_keeps_the_contract(check):
    check()
