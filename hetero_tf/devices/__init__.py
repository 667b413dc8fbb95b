"""Deployment: the rounds of a recipe on a fleet of devices, which Flower connects.

`deployed` is the learning process of a recipe whose clients are devices; the rest of the package uses it like any
other. It sends requests to a `Fleet`; `grid` implements one over Flower's network. `device_index` selects the values to
transfer, `messages` checks responses. On a device, `tensorflow_client` or `litert_client` responds. `apps` contains the
server and client apps that Flower runs; `processes` starts Flower's programs. Only `grid`, `apps` and `flower_child`
import Flower.
"""
