"""Sweeps: one recipe with many values. Each combination is a run in a separate folder; several runs are parallel.

`definition` reads a sweep, creates its runs and stores it, and `pool` executes the runs, each as a process of the
program; `bench_rows` writes their results. The same command resumes a killed sweep; a failed run stops no other one.
"""
