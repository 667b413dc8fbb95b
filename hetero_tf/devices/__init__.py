"""Deployment: the rounds of a recipe on a fleet of devices, which Flower connects.

`device_rounds` has the round runner of a process whose clients are devices. It sends requests through `waiting`, which
waits for the devices of a network; `grid` is Flower's. `device_index` selects the values to transfer, `messages` checks
responses. On a device, `machine` builds a `tensorflow_client` or a `litert_client`, which responds. `fleet_api` serves
and uses Flower's API of devices; only this file and `grid` import Flower. `calibration` measures a device,
`measured_fleet` the devices of a run, each as a fleet of the simulator.
"""
