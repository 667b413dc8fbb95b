"""Sweeps: one recipe with many values, each combination a run in a folder of its own, several runs at a time.

`definition` reads what is asked for, `expansion` makes the runs of it, `folder` keeps it, `pool` runs them, and `cost`
measures how long that takes. Every run is a process of the ordinary program: a sweep that was killed goes on by the
same command, and a run that fails takes no other one with it.
"""
