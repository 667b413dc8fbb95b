"""A run from start to end in its folder: begins or resumes, trains, measures, seals, and tells."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path

from hetero_tf import console as consoles
from hetero_tf import data, hardware, parts, resume, states
from hetero_tf import process as processes
from hetero_tf.errors import NotFinite
from hetero_tf.store import environment, metrics, plain_json, sealed
from hetero_tf.store.run_folder import RunFolder

LOWER_IS_BETTER = ("global_loss", "local_loss", "global_perplexity")


@dataclass(frozen=True)
class Settings:
    """What the command line adds to a recipe.

    Attributes:
        run_dir: Folder of the run.
        data_dir: Folder of the data, or None.
        threads: Clients in flight.
        allow_other_machine: Resume although the bits may differ from the run so far.
    """

    run_dir: Path
    data_dir: Path | None
    threads: int
    allow_other_machine: bool


@dataclass(frozen=True)
class Progress:
    """Where a run stands: the state, and the metrics of the last and the best evaluation (with their "round")."""

    state: processes.State
    last: dict
    best: dict


def train(recipe, settings, console):
    """Runs a recipe to its last round, from wherever the run folder stands.

    Returns:
        The summary as a dict, ready for JSON.

    Raises:
        BadInput: The folder holds a run of another recipe, data set or machine, or a file of it was changed.
        Locked, DiskProblem, NotFinite: See `errors`.
    """
    run = RunFolder(settings.run_dir)
    with resume.held(run):
        before = resume.known(run)
        resume.check_recipe(run, recipe, before)
        process = _build(recipe, settings, run, before)
        _announce(process, console)
        facts = _facts(process, settings)
        resume.check_environment(run, before, facts, settings.allow_other_machine, console.say)
        progress = _restore(run, process, console)
        resume.cut_metrics(run, before, console.say)
        if before is None or not run.partition.exists():
            process.partition.save(run.partition)
        resume.write_copies(run, recipe, facts, console.say)
        console.log = run.log
        return _finish(run, process, _train_rounds(run, process, progress, facts, console), facts, console)


def build_process(recipe, settings, run=None):
    """The learning process; with the data and the partition of `run` where it has begun.

    Raises:
        BadInput: The data are not those of the run.
    """
    return _build(recipe, settings, run, None if run is None else resume.known(run))


def _build(recipe, settings, run, before):
    dataset = data.load(recipe.data.loader, recipe.data.fallback, settings.data_dir)
    partition = resume.stored_partition(run, dataset, before, lambda: parts.split(recipe, dataset))
    return processes.learning_process(recipe, dataset, partition, parallel=settings.threads)


def _announce(process, console):
    """Says what is trained on what, and says it loudly if a stand-in took the data's place."""
    dataset, partition = process.dataset, process.partition
    if dataset.stand_in_for is not None:
        console.say(f"*** NOT THE REAL DATA: {dataset.source} ***")
    else:
        console.say(f"data: {dataset.source}")
    sizes = partition.summary()["train_examples"]
    console.say(f"clients: {len(partition.train)}, {process.recipe.round.clients} active a round, "
                f"{sizes['min']} to {sizes['max']} {'rows of text' if dataset.train.y is None else 'examples'} each")


def _facts(process, settings):
    """What the bits of this run depend on."""
    extra = {"device": hardware.devices(), "precision": process.recipe.precision, "data": process.dataset.sha256,
             "partition": process.partition.sha256}
    return environment.environment({"intra_op": 1, "inter_op": settings.threads}, extra)


def _restore(run, process, console):
    found = states.open_newest(run.checkpoints, process)
    if found is None:
        return Progress(process.initialize(), {}, {})
    state, _, info, skipped = found
    for sentence in skipped:
        console.say(f"skipped: {sentence}")
    console.say(f"resumed {run.path} after round {state.round}")
    if state.round >= process.recipe.rounds:
        console.say(f"all {process.recipe.rounds} rounds are done; --set rounds=N trains more")
    return Progress(state, info["last"], resume.best_there(run, info["best"], console.say))


def _train_rounds(run, process, progress, facts, console):
    """The loop over calls of the compiled round; every call ends where something is measured or sealed."""
    recipe, clock = process.recipe, console.clock
    began, first = clock(), progress.state.round
    while progress.state.round < recipe.rounds:
        stop = _next_stop(recipe, progress.state.round)
        started = clock()
        try:
            state, rows, examples = _advance(process, progress.state, stop)
        except NotFinite:
            if progress.state.round > first:
                _seal(run, recipe, progress, {}, facts, always=True)
            raise
        seconds = max(clock() - started, 1e-6)
        statistics = {}
        if state.round == recipe.rounds or state.round % recipe.evaluate.every == 0:
            measured, statistics = process.evaluate(state)
            rows[-1] |= measured
            progress = dataclasses.replace(progress, last={"round": state.round, **plain_json.finite(measured)})
        for row in rows:
            metrics.append(run.metrics, row)
        progress = _seal(run, recipe, dataclasses.replace(progress, state=state), statistics, facts)
        left = (clock() - began) / (state.round - first) * (recipe.rounds - state.round)
        console.progress(_line(process, rows[-1], examples / seconds, left))
    return progress


def _next_stop(recipe, done):
    """The next round after which something is measured or sealed."""
    stops = [done - done % every + every for every in (recipe.evaluate.every, recipe.checkpoint.every)]
    return min(*stops, recipe.rounds)


def _advance(process, state, stop):
    """Trains up to round `stop`; repeats a round once, with another cohort, if too many clients were lost.

    Returns:
        State, one row of metrics per round, and the number of examples (tokens) that were trained on.
    """
    planned = [process.plan(round) for round in range(state.round, stop)]
    after, rows = process.run(state, planned)
    lost = [index for index, row in enumerate(rows) if _too_many_lost(process, row)]
    if lost and lost[0] > 0:
        return _advance(process, state, state.round + lost[0])
    if lost:
        planned = [process.plan(state.round, attempt=1)]
        after, rows = process.run(state, planned)
        if _too_many_lost(process, rows[0]):
            raise NotFinite(
                f"round {state.round + 1}: {rows[0]['lost']} of {process.recipe.round.clients} clients returned NaN or "
                "infinite weights, also with another cohort; the state before this round is kept. Lower "
                f"optimizer.learning_rate. Received: learning_rate={rows[0]['learning_rate']:g}")
    names = [{"round": state.round + index + 1, **row} for index, row in enumerate(rows)]
    return after, names, sum(int(process.examples(plan).sum()) for plan in planned)


def _too_many_lost(process, row):
    return row["lost"] >= process.recipe.round.lost_share * sum(row["levels"].values())


def _seal(run, recipe, progress, statistics, facts, always=False):
    """Writes the state if one is due, and the best one if this evaluation is the best so far."""
    state, last = progress.state, progress.last
    improved = last.get("round") == state.round and _better(recipe.evaluate.best, last, progress.best)
    due = always or state.round == recipe.rounds or state.round % recipe.checkpoint.every == 0
    if not (improved or due):
        return progress
    about = {"last": last, **resume.seal(run, recipe, facts)}
    values = states.packed(state, statistics)
    if improved:
        progress = dataclasses.replace(progress, best=last)
        sealed.save(run.best, state.round, values, {**about, "best": last}, keep=1)
    if due:
        sealed.save(run.checkpoints, state.round, values, {**about, "best": progress.best}, recipe.checkpoint.keep)
    return progress


def _better(name, found, best):
    if found[name] is None:
        return False
    if not best:
        return True
    return found[name] < best[name] if name in LOWER_IS_BETTER else found[name] > best[name]


def _line(process, row, speed, left):
    """One line of progress."""
    mix = " ".join(f"{name}{count}" for name, count in row["levels"].items())
    shown = {name: value for name, value in row.items()
             if name not in ("round", "levels", "lost", "learning_rate", "gradient_norm")}
    lost = f"  {row['lost']} clients lost" if row["lost"] else ""
    unit = "tokens" if process.dataset.kind == "text" else "examples"
    return (f"round {row['round']}/{process.recipe.rounds}  {consoles.duration(left)} left  {consoles.figures(shown)}{lost}"
            f"  {speed:,.0f} {unit}/s  {mix}")


def _finish(run, process, progress, facts, console):
    """Says how it ended; the summary of the run, ready for JSON."""
    dataset = process.dataset
    summary = {"run_dir": str(run.path), "rounds": progress.state.round, "data": dataset.source,
               "stand_in_for": dataset.stand_in_for, "fingerprint": environment.fingerprint(facts),
               "last": progress.last, "best": progress.best}
    if dataset.stand_in_for is not None:
        console.say(f"*** NOT THE REAL DATA: trained on {dataset.source} ***")
    for name in ("last", "best"):
        if summary[name]:
            shown = {metric: value for metric, value in summary[name].items() if metric != "round"}
            console.say(f"{name}: round {summary[name]['round']}  {consoles.figures(shown)}")
    return summary
