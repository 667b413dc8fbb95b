"""Starts the processes of a cluster on this machine, and ends them all when one of them ends."""

import collections
import socket
import threading
import time
from collections.abc import Sequence

from hetero_tf.base import children
from hetero_tf.base.errors import Refusal, WorkerLost

# Seconds in which the others notice by themselves that one is gone, and between two looks at them.
PATIENCE, PAUSE = 15.0, 0.1


def run_together(words: Sequence[str], processes: int) -> None:
    """Runs a program as every worker of a cluster, and waits for all of them; the first one shows what it does.

    Args:
        words: The program and its flags, without those that say which worker it is.
        processes: How many.

    Raises:
        Refusal: One ended otherwise than well; it says which, with the exit code of the first one.
    """
    addresses = ",".join(f"127.0.0.1:{port}" for port in free_ports(processes))
    started = [_start([*words, f"--workers={addresses}", f"--worker={index}"], index) for index in range(processes)]
    try:
        _wait(started)
    finally:
        for process, _ in started:
            process.kill()
    codes = [process.wait() for process, _ in started]
    failed = next((index for index, code in enumerate(codes) if code), None)
    if failed is not None:
        told = [f"worker {index} {_ended(code, said)}" for index, (code, (_, said)) in enumerate(zip(codes, started))]
        code = codes[0] if codes[0] > 0 else WorkerLost.code
        raise Refusal(f"{'; '.join(told)}; the same command goes on after the last finished round", code)


def free_ports(count: int) -> list[int]:
    """Returns ports of this machine that nobody listens at."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def _start(words, index):
    """A worker, and the last lines of what it says where that is not shown."""
    process = children.start(words, shown=index == 0)
    if index == 0:
        return process, None
    said: collections.deque[str] = collections.deque(maxlen=1)

    def read():
        said.extend(line.strip() for line in process.stdout if line.strip())

    threading.Thread(target=read, daemon=True).start()
    return process, said


def _wait(started):
    """Waits until all have ended, or for a while after the first one that should not have."""
    until = None
    while any(process.poll() is None for process, _ in started):
        ended = [process.poll() for process, _ in started]
        if until is None and (ended[0] is not None or any(ended)):
            until = time.monotonic() + PATIENCE
        if until is not None and time.monotonic() > until:
            return
        time.sleep(PAUSE)


def _ended(code, said):
    """How a worker ended, in words."""
    if code == 0:
        return "ended well"
    # What the first one says is seen already.
    return children.ended(code) + (f" ({said[-1].removeprefix('hetero_tf: ')})" if said and code > 0 else "")
