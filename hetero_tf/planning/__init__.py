"""Plans a round on the host, in NumPy: who takes part, at which level, with which examples in which order."""
