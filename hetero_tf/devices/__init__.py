"""Real deployment: the rounds of a recipe on a fleet of devices, which Flower connects.

`deployed` is the process of a recipe whose clients are devices: `run` and everything behind it see no difference. It
speaks to a `Fleet` (`fleet.py`), of which `grid.py` is the one over Flower's network; `placement` says which values
travel, `messages` checks what comes back. On a device, `tensorflow_client` or `litert_client` answers. `apps` is what
Flower runs, `launch` starts it. Only `grid`, `apps` and `child` import Flower.
"""
