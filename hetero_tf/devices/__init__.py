"""Deployment: the rounds of a recipe on a fleet of devices, which Flower connects.

`device_rounds` has the round runner of a process whose clients are devices. It sends requests through `waiting`, which
waits for the devices of a network. `device_index` selects the values to transfer, `messages` checks responses. On a
device, `machine` builds a `tensorflow_client`, or one that trains with LiteRT by `on_device`. `fleet_api` serves and
uses Flower's API of devices; only this file imports private modules of Flower. `measured_fleet` measures a device, and
the devices of a run, as classes of a fleet of the simulator.
"""
