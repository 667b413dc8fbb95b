"""Readers of run folders, without TensorFlow: facts of checkpoints, metrics, times, and progress.

Modules:

    early_stopping   Early stopping of a run, from its recipe and its metrics
    facts            The info of a checkpoint: the recipe, the environment and the metrics so far
    history          Reads run folders, finished or running, and groups runs that differ only in their seed
    overview         Overview of runs from their folders: reads no arrays, writes nothing, needs no TensorFlow
    published        Results reported by papers and ports, and the runs that match them
    timeline         The first rounds of a run on the clock of its fleet: `timeline.jsonl`, which `report` draws
    timings          Durations of local training: `timings.jsonl`
    tracker_process  Program that logs the metrics of a run to MLflow or Weights & Biases while the run trains
    trackers         Live logging to the trackers of `--log`
"""
