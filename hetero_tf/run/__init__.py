"""A run in its folder: the loop over rounds, checkpoints, and the checks before a run is resumed.

Modules:

    best              Validates the best checkpoint against the run's metrics
    callbacks         Trains in Python, without a run folder
    calls             One call of the compiled round: its planned rounds, and the repetition of a failed round
    checkpoint        Converts a state to the arrays of a checkpoint and back
    data_description  The description of the data in a run folder, with its own sha256
    experiment        Runs a recipe in its folder: starts or resumes, builds, trains, and reports
    keras_callbacks   Calls Keras callbacks during a training in Python
    live_curves       A callback that draws curves in a notebook while a process trains
    load_run          Loads a run folder
    loop              The training loop: plans a call of the compiled round while the previous one runs
    readme            README.txt of a run folder: its files, and the commands for it
    resume            Checks of a run folder before its run is resumed
"""
