"""Real deployment: the rounds of a recipe on a fleet of devices, which Flower connects.

`deployed` is the process of a recipe whose clients are devices: `run` and everything behind it see no difference. It
speaks to a `Fleet`, of which `grid.py` is the one over Flower's network; `device_index` says which values
travel, `messages` checks what comes back. On a device, `tensorflow_client` or `litert_client` answers. `apps` is what
Flower runs, `processes` starts it. Only `grid`, `apps` and `flower_child` import Flower.
"""
