"""Executions of shared rounds: on several devices of this process, and on several worker processes."""

import contextlib
from collections.abc import Callable, Iterator

from hetero_tf.base.console import Console, ProgressDisplay
from hetero_tf.run.experiment import Build, Execution
from hetero_tf.run.learning_process import LearningProcess
from hetero_tf.workers import worker_rounds
from hetero_tf.workers.cluster import PATIENCE, Cluster, connect, mirrored, open_port_warning


def on_devices(count: int) -> Execution:
    """Return the execution that shares each round among `count` devices of this process."""

    @contextlib.contextmanager
    def execution(build: Build, console: Console, display: ProgressDisplay) -> Iterator[LearningProcess]:
        strategy = mirrored(count)
        display.begin("building the models")
        yield build(strategy, count)

    return execution


def on_workers(cluster: Cluster) -> Execution:
    """Return the execution that shares each round among the processes of a cluster, which this one leads."""

    @contextlib.contextmanager
    def execution(build: Build, console: Console, display: ProgressDisplay) -> Iterator[LearningProcess]:
        strategy = _connect(cluster, console)
        display.begin("building the models")
        with worker_rounds.leading(build(strategy, 1), cluster) as process:
            yield process

    return execution


def follow(read_data: Callable[[], Build], cluster: Cluster, console: Console) -> None:
    """Repeat the calls of the leading process of a cluster, without a run folder.

    Args:
        read_data: Reads the data of the recipe, and returns the function that builds its process.
        cluster: A cluster that another process leads.
        console: Prints progress.

    Raises:
        InputError: The leading process has another recipe, data set or number of threads.
        UserError: The leading process ended with a problem.
        WorkerLost: The leading process or another worker is gone.
    """
    with ProgressDisplay(console) as display:
        display.begin("reading the data")
        build = read_data()
        strategy = _connect(cluster, console)
        display.begin("building the models")
        process = build(strategy, 1)
        display.begin("doing what worker 0 does")
        worker_rounds.follow(process, cluster, console.say)


def _connect(cluster, console):
    """The strategy of a cluster, once all of its processes are there."""
    console.say(f"warning: {open_port_warning(cluster)}")
    others = len(cluster.addresses) - 1
    console.say(f"waiting for {others} other worker{'s' * (others > 1)}, {PATIENCE / 60:g} minutes at most")
    return connect(cluster)
