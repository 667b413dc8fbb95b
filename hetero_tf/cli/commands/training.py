"""Commands that train: `train`, and `launch` with several logical devices of this machine."""

import os

from absl.flags import FlagValues

from hetero_tf.base.console import Console, format_duration
from hetero_tf.base.errors import InputError
from hetero_tf.base.formatting import quote_shell
from hetero_tf.cli.flags import program_name, shared_flags
from hetero_tf.cli.open_run import build_settings
from hetero_tf.recipe.schema import Recipe
from hetero_tf.run import experiment
from hetero_tf.run.experiment import Execution
from hetero_tf.runs import trackers
from hetero_tf.runs.published import describe_values_of


def train(recipe: Recipe, flags: FlagValues, console: Console, execution: Execution | None = None) -> dict:
    """Train, print the next commands, and return the summary, ready for JSON.

    Args:
        execution: Opens the process that runs the rounds, by default the one of the flags and TF_CONFIG.
    """
    if flags.log:
        trackers.check_trackers(flags.log)
    settings = build_settings(recipe, flags)
    is_shared = execution is None and (
        flags.workers or flags.worker is not None or flags.devices > 1 or "TF_CONFIG" in os.environ
    )
    if is_shared:
        from hetero_tf.workers import worker_rounds
        from hetero_tf.workers.cluster import read_cluster

        cluster = read_cluster(flags.workers, flags.worker, os.environ)
        if cluster is not None and flags.devices > 1:
            raise InputError("--devices has no effect with --workers: each worker uses all of its GPUs")
        if cluster is not None and not cluster.leads:
            worker_rounds.follow(lambda: experiment.read_data(recipe, settings), cluster, console)
            return {"worker": cluster.index}
        execution = worker_rounds.on_devices(flags.devices) if cluster is None else worker_rounds.on_workers(cluster)
    execution = with_contracts(execution or experiment.simulated, recipe, flags)
    _, _, summary = experiment.train(recipe, settings, console, execution)
    summary["seconds"] = round(console.elapsed(), 1)
    run_dir = settings.run_dir
    console.say(f"done in {format_duration(summary['seconds'])}; results: {run_dir}")
    console.say(*describe_values_of(run_dir))
    export_flags = f"--run_dir {quote_shell(run_dir)}{shared_flags(flags)}"
    console.say_lines(
        f"next: {program_name()} report {quote_shell(run_dir)} --open\n      {program_name()} export {export_flags}"
    )
    return summary


def with_contracts(execution: Execution, recipe: Recipe, flags: FlagValues) -> Execution:
    """Return an execution that checks the contracts of --plugin files, also if the process cannot be built."""
    if not flags.plugin:
        return execution
    from hetero_tf.testing import violated_contracts

    def checked_execution(build, console, display):
        def checked_build(strategy, devices):
            # The build configures TensorFlow.
            try:
                return build(strategy, devices)
            finally:
                console.say(*(f"note: {sentence}" for sentence in violated_contracts(recipe)))

        return execution(checked_build, console, display)

    return checked_execution


def launch(recipe: Recipe, flags: FlagValues, console: Console) -> dict:
    """Train on --local logical devices of this process; no port is opened."""
    if flags.local is None:
        raise InputError(f"--local is missing; try {program_name()} launch --local 2 --recipe digits")
    from hetero_tf.workers import worker_rounds

    return train(recipe, flags, console, worker_rounds.on_devices(flags.local))
