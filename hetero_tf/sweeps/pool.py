"""Trains the runs of a sweep as parallel processes, and shows their progress."""

import re
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from hetero_tf.base import children, exits, files
from hetero_tf.base.console import Console, ProgressDisplay
from hetero_tf.base.errors import Locked, UserError
from hetero_tf.recipe import changed_keys
from hetero_tf.runs import facts, overview
from hetero_tf.store import plain_json
from hetero_tf.store.run_folder import RunFolder
from hetero_tf.sweeps.expansion import SweepRun
from hetero_tf.sweeps.outcome import ELSEWHERE, FAILED, FINISHED, SKIPPED, RunOutcome, format_outcome
from hetero_tf.sweeps.sweep_folder import SweepFolder

# After a sweep is killed, its runs need a moment to exit and unlock their folders.
PATIENCE, PAUSE = 3.0, 0.1
# Line of a finished round; lines of a running round do not show the loss.
_ROUND = re.compile(r"round +(\d+)/(\d+)  (?:.*  )?loss ")
# Prefixes of the lines with the reason why a run ended.
_MESSAGE_PREFIXES = ("hetero_tf: ", "stopped by ")


@dataclass(frozen=True)
class Program:
    """Command of a run.

    Attributes:
        words: The program and the flags of every run.
        threads: Threads of a new run; a resumed run keeps its count, on which its exact numbers depend.
    """

    words: tuple[str, ...]
    threads: int


@dataclass
class _Progress:
    """Progress of all runs, shared by threads."""

    total: int
    rounds_left: dict = field(default_factory=dict)
    rounds_done: int = 0
    running: dict = field(default_factory=dict)
    ended: list = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def line(self) -> str:
        failed = sum(outcome.state in (FAILED, ELSEWHERE) for outcome in self.ended)
        parts = [f"{len(self.ended) - failed}/{self.total} runs done", f"{len(self.running)} running"]
        parts += [f"{failed} failed"] if failed else []
        return "  ".join(parts)

    def details(self) -> str:
        """Return the progress of each running run."""
        return "  ".join(f"{name} {rounds}" for name, rounds in sorted(self.running.items()))

    def expected(self, elapsed: float) -> float | None:
        """Return the estimated seconds of the sweep, from the rounds trained since its start."""
        left = sum(self.rounds_left.values())
        return elapsed * (1 + left / self.rounds_done) if self.rounds_done else None


def train(
    runs: Sequence[SweepRun], folder: SweepFolder, program: Program, jobs: int, console: Console
) -> list[RunOutcome]:
    """Train the unfinished runs, and print a line for each run that ends.

    Args:
        runs: All runs of the sweep.
        folder: Folder of the sweep, locked by this process.
        program: Command of a run.
        jobs: Parallel runs.
        console: Output.

    Returns:
        Outcome of each run, in the order of `runs`.
    """
    progress, clock = _Progress(len(runs)), console.clock
    progress.rounds_left = {run.name: run.recipe.rounds for run in runs}
    with ProgressDisplay(console) as display, ThreadPoolExecutor(jobs) as pool:
        display.begin(progress.line())
        start = clock()

        def refresh():
            display.update(progress.line(), progress.expected(clock() - start), progress.details())

        def train_one(run):
            outcome = _train_run(run, folder.of(run), program, progress, refresh, console)
            with progress.lock:
                progress.ended.append(outcome)
                progress.running.pop(run.name, None)
                progress.rounds_left.pop(run.name, None)
                console.progress(f"{len(progress.ended)}/{len(runs)}  {format_outcome(outcome)}")
                refresh()
            return outcome

        return list(pool.map(train_one, runs))


def _train_run(run, folder, program, progress, refresh, console):
    """Train one run to its end, and return its outcome."""
    try:
        done, is_finished, threads = _read_progress(run, folder, program.threads)
    except Locked as locked:
        return RunOutcome(run, folder, ELSEWHERE, problem=str(locked))
    except UserError as refusal:
        return RunOutcome(run, folder, FAILED, problem=str(refusal))
    if is_finished:
        return RunOutcome(run, folder, SKIPPED, done)
    if done:
        console.say(f"{run.name}: resumes after round {done}")

    def on_round(round, rounds):
        with progress.lock:
            # One line may report several rounds.
            progress.rounds_done += progress.rounds_left[run.name] - (rounds - round)
            progress.rounds_left[run.name] = rounds - round
            progress.running[run.name] = f"{round}/{rounds}"
            refresh()

    with progress.lock:
        progress.rounds_left[run.name] = run.recipe.rounds - done
        progress.running[run.name] = f"{done}/{run.recipe.rounds}"
        refresh()
    code, problem, seconds = run_program([*program.words, *run_flags(run, folder), f"--threads={threads}"], on_round)
    state = FINISHED if code == 0 else ELSEWHERE if code == Locked.code else FAILED
    return RunOutcome(run, folder, state, done, seconds, problem)


def run_flags(run: SweepRun, folder: Path) -> list[str]:
    """Return the flags to train a run in a folder."""
    return [f"--recipe={run.path}", f"--run_dir={folder}", *(f"--set={override}" for override in run.overrides)]


def _read_progress(run, folder, threads):
    """Return the finished rounds of a run, whether it needs no more of them, and the threads that it must use.

    Raises:
        Locked: Another process trains the run.
        InputError: The folder is damaged, or contains a run of another recipe.
    """
    run_folder, patience = RunFolder(folder), time.monotonic() + PATIENCE
    while run_folder.holder is not None:
        if time.monotonic() > patience:
            raise Locked(f"{folder}: process {run_folder.holder} uses this run folder")
        time.sleep(PAUSE)
    run_overview = overview.overview(folder) if overview.is_run(folder) else None
    if run_overview is None or (run_overview.state != overview.DAMAGED and not run_overview.round):
        return 0, False, threads
    is_damaged = run_overview.state == overview.DAMAGED
    is_finished = not is_damaged and overview.is_finished(run_folder, run_overview.round, run.recipe)
    if is_finished:
        changed = changed_keys(facts.read_recipe(run_folder), run.recipe.source)
        if changed:
            raise UserError(f"{folder}: contains a run of another recipe ({'; '.join(changed)})")
    # For a damaged folder, the program reports the error.
    return run_overview.round, is_finished, _stored_threads(run_folder, threads)


def _stored_threads(run_folder, default):
    """Return the stored thread count of a run."""
    try:
        environment = plain_json.parse(
            files.read_bytes(run_folder.environment, plain_json.LIMIT), run_folder.environment
        )
        threads = environment["threads"]["inter_op"]
    except (UserError, KeyError, TypeError):
        return default
    return threads if type(threads) is int and threads > 0 else default


def run_program(command: Sequence[str], on_round: Callable[[int, int], None]) -> tuple[int, str, float]:
    """Run the program to its end.

    Args:
        command: The program and its flags.
        on_round: Called with the number of a finished round and the total.

    Returns:
        The exit code, the error message if the code is not 0, and the seconds.
    """
    start, message = time.monotonic(), ""
    with children.start(command) as process, exits.before_exit(lambda: children.stop(process)):
        for line in children.read_lines(process):
            if match := _ROUND.match(line):
                on_round(int(match[1]), int(match[2]))
            message = line.strip() if line.startswith(_MESSAGE_PREFIXES) else message
        code = process.wait()
    problem = message.removeprefix(_MESSAGE_PREFIXES[0]) or children.describe_exit(code)
    return code, problem if code else "", time.monotonic() - start
