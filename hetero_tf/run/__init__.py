"""A run in its folder: the loop over rounds, checkpoints, and the checks before a run is resumed."""
