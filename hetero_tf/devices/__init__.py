"""Deployment: the rounds of a recipe on a fleet of devices, which Flower connects.

`device_rounds` has the round runner of a process whose clients are devices. It sends requests to a `Fleet`; `waiting`
implements one over a network, and `grid` is Flower's. `device_index` selects the values to transfer, `messages` checks
responses. On a device, `tensorflow_client` or `litert_client` responds. `apps` contains the server and client apps that
Flower runs; `processes` starts Flower's programs. `calibration` measures a device, `measured_fleet` the devices of a
run, each as a fleet of the simulator. Only `grid`, `apps` and `flower_child` import Flower.
"""
