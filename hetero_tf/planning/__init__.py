"""Plans rounds on the host, in NumPy: cohort, levels, and the examples of each local step."""
