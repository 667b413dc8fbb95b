"""Executions of shared rounds: on several devices of this process, or on several processes that the first one leads."""

import contextlib
import dataclasses
import hashlib
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from hetero_tf.base.console import Console, ProgressDisplay
from hetero_tf.base.errors import InputError, MemoryProblem, UserError, WorkerLost, error_from_graph
from hetero_tf.base.replicas import Replicas
from hetero_tf.models.state import State, flatten_state, unflatten_state
from hetero_tf.run.experiment import Build, Execution
from hetero_tf.run.federation import Federation
from hetero_tf.run.learning_process import LearningProcess, Plan
from hetero_tf.run.simulated_rounds import SimulatedRounds
from hetero_tf.workers.cluster import PATIENCE, Cluster, connect, mirrored, open_port_warning

# Maximum size of a message, whose length is sent as int32.
MAX_BYTES = 2**31 - 1
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


def on_devices(count: int) -> Execution:
    """Return the execution that shares each round among `count` devices of this process."""

    @contextlib.contextmanager
    def execution(build: Build, console: Console, display: ProgressDisplay) -> Iterator[LearningProcess]:
        strategy = mirrored(count)
        display.begin("building the models")
        yield build(strategy, count)

    return execution


def on_workers(cluster: Cluster) -> Execution:
    """Return the execution that shares each round among the processes of a cluster, which this one leads.

    The other processes end after the block, with its error if it raises one. The execution raises InputError if a
    worker has another recipe, data set, version or number of threads, and WorkerLost if one stopped.
    """

    @contextlib.contextmanager
    def execution(build: Build, console: Console, display: ProgressDisplay) -> Iterator[LearningProcess]:
        process = _build_process(build, cluster, console, display)
        channel = _open_channel(process, cluster)
        try:
            yield dataclasses.replace(process, build_runner=lambda federation: WorkerRounds(federation, channel, []))
        except UserError as problem:
            if not isinstance(problem, WorkerLost):
                _end(channel, str(problem), problem.code)
            raise
        _end(channel, None, 0)

    return execution


def follow(read_data: Callable[[], Build], cluster: Cluster, console: Console) -> None:
    """Repeat the calls of the leading process of a cluster until it ends, without a run folder.

    Args:
        read_data: Reads the data of the recipe, and returns the function that builds its process.

    Raises:
        InputError: The leading process has another recipe, data set, version or number of threads.
        UserError: The leading process failed.
        WorkerLost: The leading process or another worker stopped.
    """
    with ProgressDisplay(console) as display:
        display.begin("reading the data")
        federation = _build_process(read_data(), cluster, console, display)
        display.begin("doing what worker 0 does")
        rounds, channel, state = SimulatedRounds(federation), _open_channel(federation, cluster), federation.blank()
        console.say(f"worker {cluster.index} of {len(cluster.addresses)} follows worker 0 at {cluster.addresses[0]}")
        while True:
            with detecting_lost_workers():
                (call, *words), arrays = channel.receive()
                if call == "end":
                    break
                sent = {name.removeprefix(STATE): each for name, each in arrays.items() if name.startswith(STATE)}
                others: dict[str, Any] = {name: each for name, each in arrays.items() if not name.startswith(STATE)}
                state = unflatten_state(int(sent.pop("round")), sent, state) if sent else state
                # A refused call is refused on all processes, and the leading one reports it.
                with contextlib.suppress(UserError):
                    if call == "run":
                        state, _ = rounds.run(state, [Plan(**others)])
                    elif call == "prepare":
                        rounds.prepare()
                    else:
                        getattr(rounds, call)(state, *others.values(), *words)
        problem, code = words
        if problem:
            raise UserError(f"worker 0 ended: {problem}", code)


def _build_process(build, cluster, console, display):
    """Return the process of this worker once all workers are connected."""
    console.say(f"warning: {open_port_warning(cluster)}")
    others = len(cluster.addresses) - 1
    console.say(f"waiting for {others} other worker{'s' * (others > 1)}, {PATIENCE / 60:g} minutes at most")
    strategy = connect(cluster)
    display.begin("building the models")
    return build(strategy, 1)


def _end(channel, problem, code):
    """End the other processes, with the same message and exit code if there is a problem."""
    with contextlib.suppress(WorkerLost), detecting_lost_workers():
        channel.send(("end", problem, code), {})


@contextlib.contextmanager
def detecting_lost_workers() -> Iterator[None]:
    """Turn collective errors into WorkerLost."""
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
        synced_state: The state that the other processes have too, as a list of at most one.
    """

    channel: "Channel"
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
        with self._broadcast_call("evaluate", state, None, levels):
            return super().evaluate(state, levels)

    @contextlib.contextmanager
    def _broadcast_call(self, call, state=None, arrays=None, *words):
        """Broadcast a call to the other processes, with the state if theirs differs."""
        sent = dict(arrays or {})
        if state is not None and not (self.synced_state and self.synced_state[0] is state):
            sent |= {f"{STATE}{name}": value for name, value in {**flatten_state(state), "round": state.round}.items()}
            self.synced_state[:] = [state]
        with detecting_lost_workers():
            self.channel.send((call, *words), sent)
            yield


class Channel:
    """Sends a message from the first process to all others.

    A sum over all processes transfers it: all but the sender add zeros, so the bits are preserved.
    """

    def __init__(self, replicas: Replicas, processes: int):
        of_process = replicas.count // processes

        def summed(vector):
            # Only the first device of a process contributes.
            return replicas.all_reduce_sum(vector * tf.cast(replicas.number % of_process == 0, tf.int32))

        self._summed = replicas.compiled(summed, input_signature=[tf.TensorSpec([None], tf.int32)])

    def send(self, words: Any, arrays: Mapping[str, np.ndarray]) -> None:
        """Send a message; called by the first process."""
        packed = pack(words, arrays)
        self._summed(tf.constant([len(packed)], tf.int32))
        self._summed(tf.constant(packed))

    def receive(self) -> tuple[Any, dict[str, np.ndarray]]:
        """Wait for the next message; called by the other processes."""
        length = int(self._summed(tf.zeros([1], tf.int32))[0])
        return unpack(self._summed(tf.zeros([length], tf.int32)).numpy())

    def gather(self, row: np.ndarray, index: int, count: int) -> np.ndarray:
        """Gather a row of every process on all processes: int32 [count, len(row)]."""
        rows = np.zeros((count, len(row)), np.int32)
        rows[index] = row
        return self._summed(tf.constant(rows.ravel())).numpy().reshape(rows.shape)


def pack(words: Any, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return a message as an int32 array.

    Args:
        words: Values for JSON, such as the name of a call.

    Raises:
        MemoryProblem: The message is too long.
    """
    file = io.BytesIO()
    named: dict[str, Any] = {f"array/{name}": value for name, value in arrays.items()}
    np.savez(file, words=np.array(json.dumps(words)), **named)
    data = file.getvalue()
    if len(data) > MAX_BYTES:
        raise MemoryProblem(
            f"the message to the workers is too long: {len(data) / 2**30:.1f} GiB of {MAX_BYTES / 2**30:.0f}; train "
            "this recipe with one process"
        )
    return np.frombuffer(data + bytes(-len(data) % 4), np.int32)


def unpack(packed: np.ndarray) -> tuple[Any, dict[str, np.ndarray]]:
    """Return the words and the arrays of a message that `pack` encoded."""
    with np.load(io.BytesIO(packed.tobytes())) as archive:
        arrays = {name.removeprefix("array/"): archive[name] for name in archive.files if name != "words"}
        return json.loads(str(archive["words"])), arrays


def _open_channel(federation: Federation, cluster: Cluster) -> Channel:
    """Return the channel of a cluster, after a check that all processes have the same settings."""
    engine = federation.setup.engine
    settings = {
        "recipe": federation.recipe.source,
        "data set": federation.dataset.sha256,
        "split of the data": federation.partition.sha256,
        "number of --threads or kind of device": f"{engine.replicas.parallel} {engine.compiled}",
        "version of TensorFlow or Keras": f"{tf.__version__} {keras.__version__}",
    }
    facts = b"".join(hashlib.sha256(text.encode()).digest() for text in settings.values())
    count = len(cluster.addresses)
    channel = Channel(engine.replicas, count)
    with detecting_lost_workers():
        rows = channel.gather(np.frombuffer(facts, np.int32), cluster.index, count)
    # [workers, settings, words of a digest]
    digests = rows.reshape(count, len(settings), -1)
    for worker, differs in enumerate((digests != digests[0]).any(axis=2)):
        if differs.any():
            other = [name for name, differ in zip(settings, differs) if differ]
            raise InputError(
                f"all workers must have the same settings; worker {worker} has another "
                f"{' and another '.join(other)} than worker 0"
            )
    return channel
