"""Live logging to the trackers of `--log`: starts a process for each of them, which follows the metrics of the run."""

import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence

from hetero_tf.base import children
from hetero_tf.base.errors import InputError, did_you_mean, require_modules
from hetero_tf.runs import tracker_process
from hetero_tf.runs.run_folder import RunFolder

# Seconds after the last moment at which a process ends itself.
GRACE_SECONDS = 5
# The module that each tracker needs; its name is also the extra of this package.
TRACKERS = {"mlflow": "mlflow", "wandb": "wandb"}


def check_trackers(names: Sequence[str]) -> None:
    """Raise `InputError` unless trackers have these names, and their packages are installed."""
    for name in names:
        if name not in TRACKERS:
            raise InputError(f"--log: no such tracker{did_you_mean(name, TRACKERS)} Received: --log={name}")
        require_modules(f"--log {name}", [TRACKERS[name]], name)


@contextlib.contextmanager
def log_live(names: Sequence[str], run: RunFolder, say: Callable[[str], None]) -> Iterator[None]:
    """Log the metrics of a run to trackers while the block runs.

    Trackers run in other processes, so a slow server delays no round, and no error of a tracker ends the training.

    Args:
        names: Keys of `TRACKERS`.
        run: Folder of the run, with its recipe.
        say: Prints the messages of the processes.
    """
    followers = [_Follower(name, run, say) for name in names]
    outcome = ""
    try:
        yield
        outcome = tracker_process.FINISHED
    finally:
        for follower in followers:
            follower.end(outcome)
        for follower in followers:
            follower.wait()


class _Follower:
    """A process that logs the metrics of a run to one tracker."""

    def __init__(self, name: str, run: RunFolder, say: Callable[[str], None]):
        self._name, self._say = name, say
        self._process = children.start([sys.executable, tracker_process.__file__, name, str(run.path.absolute())])
        self._reader = threading.Thread(target=self._print_lines, name=f"log-{name}", daemon=True)
        self._reader.start()

    def _print_lines(self):
        for line in children.read_lines(self._process, lambda: self._process.poll() is not None):
            self._say(line)

    def end(self, outcome: str) -> None:
        """Report the outcome of the run. If a signal ends this process, its end of the pipe closes too."""
        assert self._process.stdin is not None
        # The process has ended after an error of the tracker.
        with contextlib.suppress(OSError):
            self._process.stdin.write(outcome)
            self._process.stdin.close()

    def wait(self) -> None:
        """Wait until the tracker has all rounds, at most for some seconds."""
        self._reader.join(tracker_process.MAX_FLUSH_SECONDS + GRACE_SECONDS)
        is_late = self._reader.is_alive()
        if is_late:
            self._process.kill()
        code = self._process.wait()
        # The process also stops itself, by an alarm.
        if is_late or code == -signal.SIGALRM:
            self._say(tracker_process.warning(self._name, "did not receive all rounds in time"))
        elif code < 0:
            self._say(tracker_process.warning(self._name, children.describe_exit(code)))
