"""Sweeps: one recipe with many values. Each combination is a run in a separate folder; several runs are parallel.

`definition` reads a sweep, creates its runs and stores it, and `pool` executes the runs, each as a
process of the normal program. The same command resumes a killed sweep, and a failed run does not stop the others.
"""
