"""Runs of a sweep as processes of the program, several at a time, and what a person sees of them."""

import re
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from hetero_tf.base import children, exits, files
from hetero_tf.base.console import Console, Live
from hetero_tf.base.errors import Locked, UserError
from hetero_tf.recipe import changed_keys
from hetero_tf.runs import overview
from hetero_tf.store import plain_json
from hetero_tf.store.run_folder import RunFolder
from hetero_tf.sweeps.expansion import Run
from hetero_tf.sweeps.outcome import ELSEWHERE, FAILED, FINISHED, SKIPPED, Outcome, line_of
from hetero_tf.sweeps.sweep_folder import SweepFolder

# Runs of a sweep that was just killed need a moment to end and to let go of their folders.
PATIENCE, PAUSE = 3.0, 0.1
# The line of a round that is done; that of one that goes on does not say how much time is left.
_ROUND = re.compile(r"round (\d+)/(\d+)  .* left  ")
# How the lines begin that say why a run ends.
_SENTENCES = ("hetero_tf: ", "stopped by ")


@dataclass(frozen=True)
class Program:
    """How a run is started.

    Attributes:
        words: The program and the flags of every run.
        threads: Threads of a run that begins; one that goes on keeps its own, on which its bits depend.
    """

    words: tuple[str, ...]
    threads: int


@dataclass
class _Progress:
    """What is known of all runs; several threads write it."""

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
        """How far each run is."""
        return "  ".join(f"{name} {told}" for name, told in sorted(self.running.items()))

    def expected(self, took: float) -> float | None:
        """Seconds that the whole sweep takes, by the rounds that were trained since it began or went on."""
        left = sum(self.rounds_left.values())
        return took * (1 + left / self.rounds_done) if self.rounds_done else None


def train(runs: Sequence[Run], folder: SweepFolder, program: Program, jobs: int, console: Console) -> list[Outcome]:
    """Trains what is not finished yet, and says a line for each run that ends.

    Args:
        runs: All runs of the sweep.
        folder: Its folder, which this process has locked.
        program: How a run is started.
        jobs: Runs at a time.
        console: Where to say it.

    Returns:
        How each run ended, in the order of `runs`.
    """
    progress, clock = _Progress(len(runs)), console.clock
    progress.rounds_left = {run.name: run.recipe.rounds for run in runs}
    with Live(console) as live, ThreadPoolExecutor(jobs) as pool:
        live.begin(progress.line())
        began = clock()

        def show():
            live.tell(progress.line(), progress.expected(clock() - began), progress.details())

        def one(run):
            outcome = _one(run, folder.of(run), program, progress, show, console)
            with progress.lock:
                progress.ended.append(outcome)
                progress.running.pop(run.name, None)
                progress.rounds_left.pop(run.name, None)
                console.progress(f"{len(progress.ended)}/{len(runs)}  {line_of(outcome)}")
                show()
            return outcome

        return list(pool.map(one, runs))


def _one(run, folder, program, progress, show, console):
    """Trains one run to its end, or says why not."""
    try:
        done, threads = _standing(run, folder, program.threads)
    except Locked as locked:
        return Outcome(run, folder, ELSEWHERE, problem=str(locked))
    except UserError as refusal:
        return Outcome(run, folder, FAILED, problem=str(refusal))
    if done >= run.recipe.rounds:
        return Outcome(run, folder, SKIPPED, done)
    if done:
        console.say(f"{run.name}: goes on after round {done}")

    def seen(round, rounds):
        with progress.lock:
            # One line may tell of several rounds.
            progress.rounds_done += progress.rounds_left[run.name] - (rounds - round)
            progress.rounds_left[run.name] = rounds - round
            progress.running[run.name] = f"{round}/{rounds}"
            show()

    with progress.lock:
        progress.rounds_left[run.name] = run.recipe.rounds - done
        progress.running[run.name] = f"{done}/{run.recipe.rounds}"
        show()
    code, problem, seconds = start([*program.words, *words_of(run, folder), f"--threads={threads}"], seen)
    state = FINISHED if code == 0 else ELSEWHERE if code == Locked.code else FAILED
    return Outcome(run, folder, state, done, seconds, problem)


def words_of(run: Run, folder: Path) -> list[str]:
    """The flags by which the program trains a run in a folder."""
    return [f"--recipe={run.path}", f"--run_dir={folder}", *(f"--set={override}" for override in run.overrides)]


def _standing(run, folder, threads):
    """The rounds that a run has done, and the threads that it must have.

    Raises:
        Locked: Another process trains it.
        InputError: The folder is damaged, or holds a run of another recipe.
    """
    place, patience = RunFolder(folder), time.monotonic() + PATIENCE
    while place.holder is not None:
        if time.monotonic() > patience:
            raise Locked(f"{folder}: process {place.holder} works on this run folder")
        time.sleep(PAUSE)
    found = overview.overview(folder) if overview.is_run(folder) else None
    if found is None or (found.state != overview.DAMAGED and not found.round):
        return 0, threads
    if found.state == overview.FINISHED and found.round >= run.recipe.rounds:
        changed = changed_keys(place.read_recipe(), run.recipe.source)
        if changed:
            raise UserError(f"{folder}: holds a run of another recipe ({'; '.join(changed)})")
    # Of a damaged one the program itself says what is wrong.
    return found.round, _threads(place, threads)


def _threads(place, otherwise):
    """The threads with which a run began."""
    try:
        facts = plain_json.parse(files.read_bytes(place.environment, plain_json.LIMIT), place.environment)
        threads = facts["threads"]["inter_op"]
    except (UserError, KeyError, TypeError):
        return otherwise
    return threads if type(threads) is int and threads > 0 else otherwise


def start(words: Sequence[str], seen: Callable[[int, int], None]) -> tuple[int, str, float]:
    """Starts the program and waits for it.

    Args:
        words: The program and its flags.
        seen: Called with the number of a round that is done, and how many there are.

    Returns:
        Its exit code, its last sentence where that is not 0, and the seconds that it took.
    """
    began, sentence = time.monotonic(), ""
    with children.start(words) as process, exits.before_exit(lambda: children.stop(process)):
        for line in children.lines(process):
            if match := _ROUND.match(line):
                seen(int(match[1]), int(match[2]))
            sentence = line.strip() if line.startswith(_SENTENCES) else sentence
        code = process.wait()
    problem = sentence.removeprefix(_SENTENCES[0]) or children.ended(code)
    return code, problem if code else "", time.monotonic() - began
