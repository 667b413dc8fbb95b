"""Sweeps: one recipe with many values. Each combination is a run in a separate folder; several runs are parallel.

`definition` reads a sweep, `expansion` creates its runs, `sweep_folder` stores it, `pool` executes the runs, and `cost`
estimates their time. Each run is a process of the normal program. The same command resumes a killed sweep, and a failed
run does not stop the others.

Modules:

    definition     Definition of a sweep: a YAML file, or flags
    expansion      Expands a sweep into runs with folder, overrides and recipe; all are checked before one starts
    launcher       Starts the runs of a sweep
    outcome        Outcomes of the runs of a sweep, as text and as JSON
    pool           Trains the runs of a sweep as parallel processes, and shows their progress
    run_costs      Costs of the runs of a sweep, from their models and the shapes of their data
    slurm          Submits the runs of a sweep as jobs of a Slurm cluster, through submitit
    sweep_folder   The folder of a sweep: its definition, its log, and a folder for each run
    time_estimate  Estimates the time of a sweep from short runs
"""
