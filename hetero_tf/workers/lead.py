"""Processes that share a run: one leads it like any run, the others repeat its calls."""

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import keras
import numpy as np
import tensorflow as tf

from hetero_tf.base.errors import InputError, UserError, WorkerLost, error_from_graph
from hetero_tf.evaluation.fairness import ClientResults
from hetero_tf.models.state import State, flatten_state, unflatten_state
from hetero_tf.planning.plan import ARRAYS, Plan
from hetero_tf.process.learning_process import LearningProcess
from hetero_tf.workers.channel import Channel, RemoteCall
from hetero_tf.workers.cluster import Cluster

# Errors of a collective if another process stopped; errors of a model have other types.
LOST_WORKER_ERRORS = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
    tf.errors.FailedPreconditionError,
    tf.errors.InternalError,
    tf.errors.UnknownError,
)


@contextlib.contextmanager
def detecting_lost_workers() -> Iterator[None]:
    """Turn collective errors into WorkerLost.

    Raises:
        WorkerLost: Another process stopped or cannot be reached.
    """
    try:
        yield
    except LOST_WORKER_ERRORS as error:
        if (refusal := error_from_graph(error)) is not None:
            raise refusal from error
        raise WorkerLost(
            "another worker of this run stopped, hangs or cannot be reached; start the same command again on all "
            "workers: it resumes after the last finished round"
        ) from error


@dataclass(frozen=True)
class LeadProcess(LearningProcess):
    """A learning process whose calls are executed by all processes of a cluster.

    Attributes:
        channel: Channel to the other processes.
        synced_state: The state that the other processes have too, as a list of at most one.
    """

    channel: Channel
    synced_state: list[State]

    def compile(self) -> None:
        with self._broadcast_call("compile"):
            super().compile()

    def run(self, state: State, planned: Sequence[Plan]) -> tuple[State, list[dict]]:
        if len(planned) > 1:
            return super().run(state, planned)
        (plan,) = planned
        arrays = dict(zip(ARRAYS, plan.arrays()))
        with self._broadcast_call("run", state, arrays):
            after, rows = super().run(state, planned)
        self.synced_state[:] = [after]
        return after, rows

    def evaluate(self, state: State, levels: str | None = None) -> tuple[dict, dict]:
        with self._broadcast_call("evaluate", state, levels=levels):
            return super().evaluate(state, levels)

    def statistics(self, state: State, level: str | None = None) -> dict:
        with self._broadcast_call("statistics", state, level=level):
            return super().statistics(state, level)

    def network(self, state: State, level: str | None = None, statistics: dict | None = None) -> keras.Model:
        with self._broadcast_call("network", state, statistics or {}, level=level):
            return super().network(state, level, statistics)

    def client_results(self, state: State, level: str | None = None) -> ClientResults:
        with self._broadcast_call("client_results", state, level=level):
            return super().client_results(state, level)

    def end(self, problem: UserError | None = None) -> None:
        """End the other processes, with the same message and exit code if there is a problem."""
        if not isinstance(problem, WorkerLost):
            words = {"call": "end", "problem": problem and str(problem), "code": problem.code if problem else 0}
            with contextlib.suppress(WorkerLost), detecting_lost_workers():
                self.channel.send(words, {})

    @contextlib.contextmanager
    def _broadcast_call(self, call, state=None, arrays=None, **words):
        """Broadcast a call to the other processes, with the state if theirs differs."""
        sent = dict(arrays or {})
        if state is not None and not (self.synced_state and self.synced_state[0] is state):
            sent |= {f"state/{name}": value for name, value in flatten_state(state).items()}
            self.synced_state[:] = [state]
        with detecting_lost_workers():
            self.channel.send({"call": call, "round": state and state.round, **words}, sent)
            yield


def lead(process: LearningProcess, cluster: Cluster) -> LeadProcess:
    """Return the process as leader of a cluster, whose other processes repeat its calls.

    Raises:
        InputError: A worker has another recipe, data set, version or number of threads.
        WorkerLost: A worker stopped.
    """
    fields = {name: getattr(process, name) for name in process.__dataclass_fields__}
    return LeadProcess(**fields, channel=_open_channel(process, cluster), synced_state=[])


def follow(process: LearningProcess, cluster: Cluster, say: Callable[[str], None]) -> None:
    """Repeat the calls of the leading process until it ends.

    Raises:
        InputError: The leading process has another recipe, data set, version or number of threads.
        UserError: The leading process failed.
        WorkerLost: The leading process or another worker stopped.
    """
    channel, state = _open_channel(process, cluster), process.blank()
    say(f"worker {cluster.index} of {len(cluster.addresses)} follows worker 0 at {cluster.addresses[0]}")
    while True:
        with detecting_lost_workers():
            message = channel.receive()
            if message.words["call"] == "end":
                break
            state = _make_call(process, message, _read_state(message, state))
    if message.words["problem"]:
        raise UserError(f"worker 0 ended: {message.words['problem']}", message.words["code"])


def _read_state(message, current):
    sent = {name.removeprefix("state/"): value for name, value in message.arrays.items() if name.startswith("state/")}
    return unflatten_state(message.words["round"], sent, current) if sent else current


def _make_call(process: LearningProcess, message: RemoteCall, state: State) -> State:
    """Execute one call and return the state after it."""
    words, arrays = message.words, message.arrays
    # A refused call is refused on all processes, and the leading one reports it.
    with contextlib.suppress(UserError):
        if words["call"] == "compile":
            process.compile()
        elif words["call"] == "run":
            return process.run(state, [_read_plan(arrays)])[0]
        elif words["call"] == "evaluate":
            process.evaluate(state, words["levels"])
        elif words["call"] == "network":
            statistics = {name: value for name, value in arrays.items() if not name.startswith("state/")}
            process.network(state, words["level"], statistics or None)
        else:
            {"statistics": process.statistics, "client_results": process.client_results}[words["call"]](
                state, words["level"]
            )
    return state


def _read_plan(arrays):
    return Plan(**{name: arrays[name] for name in ARRAYS})


def _open_channel(process, cluster):
    """The channel of a cluster, after a check that all processes have the same recipe, data, versions and threads."""
    facts, count = _shared_facts(process), len(cluster.addresses)
    channel = Channel(process.setup.engine.replicas, count)
    with detecting_lost_workers():
        rows = channel.gather(np.concatenate(list(map(_digest, facts.values()))), cluster.index, count)
    # [workers, facts, words of a digest]
    digests = rows.reshape(count, len(facts), -1)
    for worker, differs in enumerate((digests != digests[0]).any(axis=2)):
        if differs.any():
            other = [name for name, differ in zip(facts, differs) if differ]
            raise InputError(
                f"all workers must have the same settings; worker {worker} has another "
                f"{' and another '.join(other)} than worker 0"
            )
    return channel


def _shared_facts(process):
    """Properties that must be equal on all workers, as text by name."""
    engine = process.setup.engine
    return {
        "recipe": process.recipe.source,
        "data set": process.dataset.sha256,
        "split of the data": process.partition.sha256,
        "number of --threads or kind of device": f"{engine.replicas.parallel} {engine.compiled}",
        "version of TensorFlow or Keras": f"{tf.__version__} {keras.__version__}",
    }


def _digest(fact):
    return np.frombuffer(hashlib.sha256(fact.encode()).digest(), np.int32)
