"""Trains the runs of a sweep as parallel processes, and shows their progress."""

import contextlib
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue

from hetero_tf.base.console import Console, ProgressDisplay
from hetero_tf.base.errors import Locked, UserError
from hetero_tf.recipe import changed_keys, keys_of
from hetero_tf.runs import environment, overview
from hetero_tf.runs.run_folder import RunFolder
from hetero_tf.sweeps.expansion import SweepRun
from hetero_tf.sweeps.launcher import Launcher, Program
from hetero_tf.sweeps.outcome import ELSEWHERE, FAILED, FINISHED, SKIPPED, RunOutcome, format_outcome
from hetero_tf.sweeps.sweep_folder import SweepFolder

# Seconds between two attempts to train a run that another process trains.
PAUSE = 1.0


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
        failed = sum(outcome.state == FAILED for outcome in self.ended)
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

    def end(self, outcome: RunOutcome) -> bool:
        """Count a run that ended; return False for one that another process trains. The caller has the lock."""
        self.running.pop(outcome.run.name, None)
        if outcome.state == ELSEWHERE:
            return False
        self.ended.append(outcome)
        self.rounds_left.pop(outcome.run.name, None)
        return True


def train(
    runs: Sequence[SweepRun], folder: SweepFolder, program: Program, jobs: int, console: Console
) -> list[RunOutcome]:
    """Train the unfinished runs, and print a line for each run that ends.

    Other processes may train runs of the same folder, also on other machines: each run has a lock. Wait for their runs,
    and resume those that they leave unfinished.

    Args:
        runs: The runs to train.
        folder: Folder of the sweep.
        program: Command of a run.
        jobs: Parallel runs.
        console: Output.

    Returns:
        Outcome of each run, in the order of `runs`.
    """
    progress = _Progress(len(runs), {run.name: run.recipe.rounds for run in runs})
    launchers: SimpleQueue[Launcher] = SimpleQueue()
    outcomes: dict[str, RunOutcome] = {}
    with ProgressDisplay(console) as display, contextlib.ExitStack() as stack, ThreadPoolExecutor(jobs) as pool:
        display.begin(progress.line())
        start = console.clock()

        def refresh():
            display.update(progress.line(), progress.expected(console.clock() - start), progress.details())

        def train_one(run):
            launcher = launchers.get()
            try:
                outcome = _train_run(run, folder.of(run), launcher, program.threads, progress, refresh, console)
            finally:
                launchers.put(launcher)
            with progress.lock:
                if progress.end(outcome):
                    console.progress(f"{len(progress.ended)}/{len(runs)}  {format_outcome(outcome)}")
                refresh()
            return outcome

        for _ in range(jobs):
            launchers.put(stack.enter_context(Launcher(program)))
        left = list(runs)
        while left:
            for outcome in pool.map(train_one, left):
                outcomes[outcome.run.name] = outcome
            elsewhere = [outcome for outcome in outcomes.values() if outcome.state == ELSEWHERE]
            if len(left) == len(runs):
                for outcome in elsewhere:
                    console.say(f"{outcome.run.name}: {outcome.problem}; waiting for it")
            left = [outcome.run for outcome in elsewhere]
            time.sleep(PAUSE if left else 0)
    return [outcomes[run.name] for run in runs]


def _train_run(run, folder, launcher, new_threads, progress, refresh, console):
    """Train one run to its end, and return its outcome."""
    try:
        done, is_finished, threads = read_progress(run, folder, new_threads)
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
    code, problem, seconds = launcher.run([*run_flags(run, folder), f"--threads={threads}"], on_round)
    state = FINISHED if code == 0 else ELSEWHERE if code == Locked.code else FAILED
    return RunOutcome(run, folder, state, done, seconds, problem)


def run_flags(run: SweepRun, folder: Path) -> list[str]:
    """Return the flags to train a run in a folder."""
    return [f"--recipe={run.path}", f"--run_dir={folder}", *(f"--set={override}" for override in run.overrides)]


def read_progress(run: SweepRun, folder: Path, threads: int) -> tuple[int, bool, int]:
    """Return the finished rounds of a run, whether it needs no more of them, and the threads that it must use.

    Raises:
        Locked: Another process trains the run.
        InputError: The folder is damaged, or contains a run of another recipe.
    """
    run_folder = RunFolder(folder)
    if (holder := run_folder.holder) is not None:
        raise Locked(f"{folder}: process {holder} uses this run folder")
    run_overview = overview.overview(folder) if overview.is_run(folder) else None
    if run_overview is None or (run_overview.state != overview.DAMAGED and not run_overview.round):
        return 0, False, threads
    is_damaged = run_overview.state == overview.DAMAGED
    is_finished = not is_damaged and overview.is_finished(run_folder, run_overview.round, keys_of(run.recipe))
    if is_finished:
        changed = changed_keys(run_folder.read_recipe(), run.recipe.source)
        if changed:
            raise UserError(f"{folder}: contains a run of another recipe ({'; '.join(changed)})")
    # For a damaged folder, the program reports the error.
    return run_overview.round, is_finished, _stored_threads(run_folder, threads)


def _stored_threads(run_folder, default):
    """Return the stored thread count of a run."""
    stored = environment.load(run_folder.environment)
    threads = 0 if stored is None else stored.threads.get("inter_op", 0)
    return threads if threads > 0 else default
