"""Entry point of the runs that `sweep` starts: the normal program, which exits together with the sweep.

Its standard input is a pipe. The pipe closes when the sweep ends, even by SIGKILL; then the run exits as after a
signal. Files on disk are complete at any moment.

With `--fork DESCRIPTOR` it imports TensorFlow once and forks for each run. TensorFlow starts its threads with the first
operation or query for devices, which only the forks make.
"""

import gc
import os
import signal
import sys
import time


def train(words: list[str]) -> int:
    """Train one run in this process, and return the exit code."""
    start = time.monotonic()
    from hetero_tf.base.processes import exit_with_parent
    from hetero_tf.cli.main import main

    exit_with_parent(0)
    sys.argv = [__file__, *words]
    return main(start=start)


def serve(results: int) -> None:
    """Import what a run imports, then fork for each run; see `serve_forks`."""
    from hetero_tf.base import hardware, processes

    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        # Ctrl-C ends this process without a traceback; a fork handles it.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    hardware.import_quietly(list_devices=False)
    import hetero_tf.cli.commands.training
    import hetero_tf.run.experiment  # noqa: F401

    # Collections in a fork would copy the memory that it shares with this process.
    gc.freeze()
    processes.serve_forks(results, train)


if __name__ == "__main__":
    # The file is started by its path, so that Python does not search the working folder for modules.
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    if sys.argv[1:2] == ["--fork"]:
        serve(int(sys.argv[2]))
    else:
        sys.exit(train(sys.argv[1:]))
