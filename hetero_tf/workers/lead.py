"""Processes that share a run: one leads it like any run, the others do what it does, call by call."""

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import keras
import numpy as np
import tensorflow as tf

from hetero_tf.base.errors import InputError, UserError, WorkerLost, error_from_graph
from hetero_tf.evaluation.fairness import ClientResults
from hetero_tf.models.state import State, from_named, named
from hetero_tf.planning.plan import ARRAYS, Plan
from hetero_tf.process.learning_process import LearningProcess
from hetero_tf.workers.channel import Channel, Message
from hetero_tf.workers.cluster import Cluster

# Errors by which a collective says that somebody is gone; what a model does wrong has other ones.
GONE = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
    tf.errors.FailedPreconditionError,
    tf.errors.InternalError,
    tf.errors.UnknownError,
)


@contextlib.contextmanager
def noticing() -> Iterator[None]:
    """Says it in one sentence where another process is gone.

    Raises:
        WorkerLost: It is.
    """
    try:
        yield
    except GONE as error:
        if (refusal := error_from_graph(error)) is not None:
            raise refusal from error
        raise WorkerLost(
            "another worker of this run stopped, hangs or cannot be reached; start the same command again on all "
            "workers: finished rounds are kept, and it goes on from there"
        ) from error


@dataclass(frozen=True)
class LeadProcess(LearningProcess):
    """A learning process whose calls all processes of a cluster make together; it is used like any other.

    Attributes:
        channel: To the other processes.
        held: The state that they have too, in a list.
    """

    channel: Channel
    held: list[State]

    def compile(self) -> None:
        with self._together("compile"):
            super().compile()

    def run(self, state: State, planned: Sequence[Plan]) -> tuple[State, list[dict]]:
        if len(planned) > 1:
            return super().run(state, planned)
        (plan,) = planned
        arrays = dict(zip(ARRAYS, plan.arrays()))
        with self._together("run", state, arrays):
            after, rows = super().run(state, planned)
        self.held[:] = [after]
        return after, rows

    def evaluate(self, state: State, levels: str | None = None) -> tuple[dict, dict]:
        with self._together("evaluate", state, levels=levels):
            return super().evaluate(state, levels)

    def statistics(self, state: State, level: str | None = None) -> dict:
        with self._together("statistics", state, level=level):
            return super().statistics(state, level)

    def network(self, state: State, level: str | None = None, statistics: dict | None = None) -> keras.Model:
        with self._together("network", state, statistics or {}, level=level):
            return super().network(state, level, statistics)

    def client_results(self, state: State, level: str | None = None) -> ClientResults:
        with self._together("client_results", state, level=level):
            return super().client_results(state, level)

    def end(self, problem: UserError | None = None) -> None:
        """Lets the other processes end, with the same sentence and exit code where there is a problem."""
        if not isinstance(problem, WorkerLost):
            words = {"call": "end", "problem": problem and str(problem), "code": problem.code if problem else 0}
            with contextlib.suppress(WorkerLost), noticing():
                self.channel.send(words, {})

    @contextlib.contextmanager
    def _together(self, call, state=None, arrays=None, **words):
        """Tells the other processes to make a call too, with the state where they have another one."""
        sent = dict(arrays or {})
        if state is not None and not (self.held and self.held[0] is state):
            sent |= {f"state/{name}": value for name, value in named(state).items()}
            self.held[:] = [state]
        with noticing():
            self.channel.send({"call": call, "round": state and state.round, **words}, sent)
            yield


def lead(process: LearningProcess, cluster: Cluster) -> LeadProcess:
    """Returns the same process, which the others of the cluster follow from now on.

    Raises:
        InputError: One of them was given something else.
        WorkerLost: One of them is gone.
    """
    fields = {name: getattr(process, name) for name in process.__dataclass_fields__}
    return LeadProcess(**fields, channel=_agreed(process, cluster), held=[])


def follow(process: LearningProcess, cluster: Cluster, say: Callable[[str], None]) -> None:
    """Does what the leading process does, until that ends.

    Raises:
        InputError: The leading process was given something else.
        UserError: It ended with a problem.
        WorkerLost: It is gone, or another worker.
    """
    channel, state = _agreed(process, cluster), process.blank()
    say(f"worker {cluster.index} of {len(cluster.addresses)} follows worker 0 at {cluster.addresses[0]}")
    while True:
        with noticing():
            message = channel.receive()
            if message.words["call"] == "end":
                break
            state = _do(process, message, _state_of(message, state))
    if message.words["problem"]:
        raise UserError(f"worker 0 ended: {message.words['problem']}", message.words["code"])


def _state_of(message, held):
    sent = {name.removeprefix("state/"): value for name, value in message.arrays.items() if name.startswith("state/")}
    return from_named(message.words["round"], sent, held) if sent else held


def _do(process: LearningProcess, message: Message, state: State) -> State:
    """Makes one call, and returns the state after it."""
    words, arrays = message.words, message.arrays
    # What is refused is refused everywhere, and the leading process says so.
    with contextlib.suppress(UserError):
        if words["call"] == "compile":
            process.compile()
        elif words["call"] == "run":
            return process.run(state, [_plan_of(arrays)])[0]
        elif words["call"] == "evaluate":
            process.evaluate(state, words["levels"])
        elif words["call"] == "network":
            given = {name: value for name, value in arrays.items() if not name.startswith("state/")}
            process.network(state, words["level"], given or None)
        else:
            {"statistics": process.statistics, "client_results": process.client_results}[words["call"]](
                state, words["level"]
            )
    return state


def _plan_of(arrays):
    return Plan(**{name: arrays[name] for name in ARRAYS})


def _agreed(process, cluster):
    """The channel of a cluster whose processes all have the same recipe, data, versions and threads."""
    facts, count = _facts(process), len(cluster.addresses)
    channel = Channel(process.parts.engine.replicas, count)
    with noticing():
        rows = channel.gather(np.concatenate(list(map(_digest, facts.values()))), cluster.index, count)
    # [workers, facts, words of a digest]
    digests = rows.reshape(count, len(facts), -1)
    for worker, differs in enumerate((digests != digests[0]).any(axis=2)):
        if differs.any():
            other = [name for name, differ in zip(facts, differs) if differ]
            raise InputError(
                f"all workers must be given the same; worker {worker} has another {' and another '.join(other)} than "
                "worker 0"
            )
    return channel


def _facts(process):
    """What must be equal on all workers, as text by name."""
    engine = process.parts.engine
    return {
        "recipe": process.recipe.source,
        "data set": process.dataset.sha256,
        "split of the data": process.partition.sha256,
        "number of --threads or kind of device": f"{engine.replicas.parallel} {engine.compiled}",
        "version of TensorFlow or Keras": f"{tf.__version__} {keras.__version__}",
    }


def _digest(fact):
    return np.frombuffer(hashlib.sha256(fact.encode()).digest(), np.int32)
