"""Evaluation of a state: the statistics query, global metrics, per-client metrics, and fairness."""
