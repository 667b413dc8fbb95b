"""Unequal devices in simulated time: the device of each client, and the time and energy of its work.

Everything is a pure function of (recipe, client), and of the round where speeds change from round to round. `*.yaml`
are the shipped fleets, see `LICENCES.md`.
"""
