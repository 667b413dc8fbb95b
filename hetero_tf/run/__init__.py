"""A run in its folder: the loop over rounds, checkpoints, and what a resumed run must agree with."""
