"""Runners of shared rounds: on several devices of this process, and on several worker processes."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from hetero_tf.base.console import Console, ProgressDisplay
from hetero_tf.base.errors import UserError
from hetero_tf.process.data import load_data, split
from hetero_tf.process.learning_process import LearningProcess, learning_process
from hetero_tf.recipe.schema import Recipe
from hetero_tf.run.experiment import Build, Runner
from hetero_tf.workers import lead
from hetero_tf.workers.cluster import PATIENCE, Cluster, connect, mirrored, open_port_warning


def on_devices(count: int) -> Runner:
    """Returns a runner that shares each round among `count` devices of this process."""

    @contextlib.contextmanager
    def runner(build: Build, console: Console, display: ProgressDisplay) -> Iterator[LearningProcess]:
        strategy = mirrored(count)
        display.begin("building the models")
        yield build(strategy, count)

    return runner


def on_workers(cluster: Cluster) -> Runner:
    """Returns a runner that shares each round among the processes of a cluster, which this one leads."""

    @contextlib.contextmanager
    def runner(build: Build, console: Console, display: ProgressDisplay) -> Iterator[LearningProcess]:
        strategy = _connect(cluster, console)
        display.begin("building the models")
        process = lead.lead(build(strategy, 1), cluster)
        try:
            yield process
        except UserError as problem:
            process.end(problem)
            raise
        process.end()

    return runner


def follow(recipe: Recipe, cluster: Cluster, data_dir: Path | None, threads: int, console: Console) -> None:
    """Makes the calls that the leading process of a cluster makes, without a run folder.

    Raises:
        InputError: The leading process has another recipe, data set or number of threads.
        UserError: The leading process ended with a problem.
        WorkerLost: The leading process or another worker is gone.
    """
    with ProgressDisplay(console) as display:
        display.begin("reading the data")
        dataset = load_data(recipe, data_dir)
        partition = split(recipe, dataset)
        strategy = _connect(cluster, console)
        display.begin("building the models")
        process = learning_process(recipe, dataset, partition, parallel=threads, strategy=strategy)
        display.begin("doing what worker 0 does")
        lead.follow(process, cluster, console.say)


def _connect(cluster, console):
    """The strategy of a cluster, once all of its processes are there."""
    console.say(f"warning: {open_port_warning(cluster)}")
    others = len(cluster.addresses) - 1
    console.say(f"waiting for {others} other worker{'s' * (others > 1)}, {PATIENCE / 60:g} minutes at most")
    return connect(cluster)
