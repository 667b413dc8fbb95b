"""Measures a state: the statistics query, the global test, the tests of single clients, and fairness."""
