"""Rounds that the processes of a cluster share: one leads the run, the others repeat its calls."""

import contextlib
import dataclasses
import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from hetero_tf.base.errors import InputError, UserError, WorkerLost, error_from_graph
from hetero_tf.models.state import State, flatten_state, unflatten_state
from hetero_tf.run.federation import Federation
from hetero_tf.run.learning_process import LearningProcess, Plan
from hetero_tf.run.simulated_rounds import SimulatedRounds
from hetero_tf.workers.channel import Channel, RemoteCall
from hetero_tf.workers.cluster import Cluster

# Prefix of the arrays of a state in a message.
STATE = "state/"
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
class WorkerRounds(SimulatedRounds):
    """Rounds of the process that leads a cluster: all processes make each call of the graph together.

    Attributes:
        channel: Channel to the other processes.
        synced_state: The state that the other processes have too, as a list of at most one.
    """

    channel: Channel
    synced_state: list[State]

    def prepare(self) -> None:
        with self._broadcast_call("prepare"):
            super().prepare()

    def run(self, state: State, planned: Sequence[Plan]) -> tuple[State, list[dict]]:
        rows = []
        for plan in planned:
            with self._broadcast_call("run", state, plan.arrays()):
                state, row = super().run(state, [plan])
            self.synced_state[:] = [state]
            rows += row
        return state, rows

    def client_losses(self, state: State, clients: np.ndarray) -> np.ndarray:
        with self._broadcast_call("client_losses", state, {"clients": clients}):
            return super().client_losses(state, clients)

    def evaluate(self, state: State, levels: str | None = None) -> tuple[dict, dict]:
        with self._broadcast_call("evaluate", state, levels=levels):
            return super().evaluate(state, levels)

    @contextlib.contextmanager
    def _broadcast_call(self, call, state=None, arrays=None, **words):
        """Broadcast a call to the other processes, with the state if theirs differs."""
        sent = dict(arrays or {})
        if state is not None and not (self.synced_state and self.synced_state[0] is state):
            sent |= {f"{STATE}{name}": value for name, value in flatten_state(state).items()}
            self.synced_state[:] = [state]
        with detecting_lost_workers():
            self.channel.send({"call": call, "round": state and state.round, **words}, sent)
            yield


def follow(federation: Federation, cluster: Cluster, say: Callable[[str], None]) -> None:
    """Repeat the calls of the leading process until it ends.

    Raises:
        InputError: The leading process has another recipe, data set, version or number of threads.
        UserError: The leading process failed.
        WorkerLost: The leading process or another worker stopped.
    """
    rounds, channel, state = SimulatedRounds(federation), _open_channel(federation, cluster), federation.blank()
    say(f"worker {cluster.index} of {len(cluster.addresses)} follows worker 0 at {cluster.addresses[0]}")
    while True:
        with detecting_lost_workers():
            message = channel.receive()
            if message.words["call"] == "end":
                break
            state = _make_call(rounds, message, _read_state(message, state))
    if message.words["problem"]:
        raise UserError(f"worker 0 ended: {message.words['problem']}", message.words["code"])


def _read_state(message, current):
    sent = {name.removeprefix(STATE): value for name, value in message.arrays.items() if name.startswith(STATE)}
    return unflatten_state(message.words["round"], sent, current) if sent else current


def _make_call(rounds: SimulatedRounds, message: RemoteCall, state: State) -> State:
    """Execute one call and return the state after it."""
    words, arrays = message.words, message.arrays
    # A refused call is refused on all processes, and the leading one reports it.
    with contextlib.suppress(UserError):
        match words["call"]:
            case "prepare":
                rounds.prepare()
            case "run":
                plan: dict[str, Any] = {name: arrays[name] for name in arrays if not name.startswith(STATE)}
                return rounds.run(state, [Plan(**plan)])[0]
            case "client_losses":
                rounds.client_losses(state, arrays["clients"])
            case "evaluate":
                rounds.evaluate(state, words["levels"])
    return state


@contextlib.contextmanager
def leading(process: LearningProcess, cluster: Cluster) -> Iterator[LearningProcess]:
    """Lead the other processes of a cluster; end them after the block, with its error if it raises one.

    Raises:
        InputError: A worker has another recipe, data set, version or number of threads.
        WorkerLost: A worker stopped.
    """
    channel = _open_channel(process, cluster)
    try:
        yield dataclasses.replace(process, build_runner=lambda federation: WorkerRounds(federation, channel, []))
    except UserError as problem:
        if not isinstance(problem, WorkerLost):
            _end(channel, str(problem), problem.code)
        raise
    _end(channel, None, 0)


def _end(channel, problem, code):
    """End the other processes, with the same message and exit code if there is a problem."""
    with contextlib.suppress(WorkerLost), detecting_lost_workers():
        channel.send({"call": "end", "problem": problem, "code": code}, {})


def _open_channel(federation, cluster):
    """The channel of a cluster, after a check that all processes have the same recipe, data, versions and threads."""
    facts, count = _shared_facts(federation), len(cluster.addresses)
    channel = Channel(federation.setup.engine.replicas, count)
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


def _shared_facts(federation):
    """Properties that must be equal on all workers, as text by name."""
    engine = federation.setup.engine
    return {
        "recipe": federation.recipe.source,
        "data set": federation.dataset.sha256,
        "split of the data": federation.partition.sha256,
        "number of --threads or kind of device": f"{engine.replicas.parallel} {engine.compiled}",
        "version of TensorFlow or Keras": f"{tf.__version__} {keras.__version__}",
    }


def _digest(fact):
    return np.frombuffer(hashlib.sha256(fact.encode()).digest(), np.int32)
