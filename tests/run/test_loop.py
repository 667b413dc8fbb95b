"""The rounds of a run: planned ahead, the best kept, clients that diverge, stopped at non-finite weights."""

import dataclasses
import io
import threading
from types import SimpleNamespace

import numpy as np
import programs
import pytest
import runs
import stub_rounds
import tiny
from each import for_each
from refusals import refusal

from hetero_tf import recipe
from hetero_tf.base import processes
from hetero_tf.base.console import Console
from hetero_tf.base.constraints import Plugin
from hetero_tf.base.errors import InputError, NotFinite
from hetero_tf.base.metrics import all_metrics, format_short
from hetero_tf.run import experiment, learning_process, loop
from hetero_tf.run.federation import OVERFLOW
from hetero_tf.run.learning_process import LearningProcess, State
from hetero_tf.run.resume import arrays_of, open_best, open_newest
from hetero_tf.runs import checkpoints, overview
from hetero_tf.runs.run_folder import RunFolder

# Without static batch normalisation, which only costs time here.
RECIPE = programs.RECIPE.replace("sbn", "none")
train_stub = runs.train_stub


def test_several_rounds_a_call_give_the_same_weights(train, tmp_path):
    many = ("evaluate.every=3", "checkpoint.every=2", "checkpoint.keep=3")
    for name, more in (("one", ()), ("many", many)):
        train(tmp_path / name, RECIPE, "rounds=7", "levels.mix=a", *more)
    assert runs.arrays(tmp_path / "one" / "checkpoints") == runs.arrays(tmp_path / "many" / "checkpoints")
    one, many = (runs.rows(tmp_path / name) for name in ("one", "many"))
    assert [row["round"] for row in many if "global_loss" in row] == [3, 6, 7]
    for full, row in zip(one, many, strict=True):
        assert {name: full[name] for name in row} == row
    for name, remaining in (("one", [7, 6]), ("many", [7, 6, 4])):
        assert checkpoints.numbers(tmp_path / name / "checkpoints")[: len(remaining)] == remaining


@pytest.mark.parametrize(
    ("metric", "best"), [("global_accuracy", 2), ("global_loss", 3), ("local_loss", 3), ("local_worst_decile", 2)]
)
def test_best_round_is_the_first_best_one_by_its_metric(train_stub, tmp_path, monkeypatch, metric, best):
    monkeypatch.setattr(stub_rounds, "stub_metric", lambda name, round: (3.0, 5.0, 1.0, 5.0, 1.0)[round - 1])
    summary, output = train_stub(tmp_path, RECIPE, "rounds=5", f"evaluate.best={metric}")
    assert f"best: {format_short(metric, 5.0 if best == 2 else 1.0).rstrip()}  traffic " in output
    assert not any(hidden in output for hidden in ("bytes", "train_flops", "local_mean", "local_std"))
    assert summary["best"]["round"] == best and checkpoints.numbers(tmp_path / "checkpoints") == [5, 4, best]


def test_first_evaluation_without_the_metric_of_the_best_round_says_so(train_stub, tmp_path, monkeypatch):
    monkeypatch.setattr(stub_rounds, "stub_metric", lambda name, round: np.nan if name == "global_accuracy" else 1.0)
    overrides = ("rounds=3", "early_stopping={patience: 9, metric: global_accuracy}")
    for best in ((), ("evaluate.best=global_loss",)):
        _, output = train_stub(tmp_path / str(len(best)), RECIPE, *overrides, *best)
        assert (
            output.count("note: global_accuracy is undefined or infinite in round 1, which counts as no improve") == 1
        )


def test_a_run_in_which_no_client_returns_says_so(train_stub, tmp_path):
    late = ("fleet={devices: {any: {seconds_per_step: 9}}}", "round.policy={name: deadline, seconds: 1}")
    assert "note: no client has returned" in train_stub(tmp_path, RECIPE, "rounds=1", *late)[1]


def test_nothing_is_written_after_the_state_that_a_signal_saves(train_stub, tmp_path, monkeypatch):
    """A handler has saved the state, and the process has not ended yet: the thread that trains goes on."""
    loops = []
    monkeypatch.setattr(stub_rounds, "stub_metric", lambda name, round: -float(round))

    class Signalled(Console):
        def progress(self, text, keep=True, details=""):
            if text.startswith("round 2/"):
                loops.append(processes._ACTIONS[-1].__self__)
                handler = threading.Thread(target=processes.run_actions)
                handler.start()
                handler.join()

    arguments = (tmp_path, RECIPE, "rounds=5", "checkpoint.every=5")
    training = threading.Thread(target=train_stub, args=arguments, kwargs={"console": Signalled(io.StringIO())})
    training.start()
    training.join(1)
    rounds, saved = [row["round"] for row in runs.rows(tmp_path)], checkpoints.numbers(tmp_path / "checkpoints")
    was_running = training.is_alive()
    if was_running:
        loops[0]._save_lock.release()
    training.join()
    assert (rounds, saved, was_running) == ([1, 2], [2, 1], True)
    # A disk that does not end the write of a checkpoint: the message of the signal may not say that it is saved.
    monkeypatch.setattr(loop, "MAX_SAVE_SECONDS", 0.01)
    with loops[0]._save_lock, processes.before_exit(loops[0]._save_and_stop):
        assert not processes.run_actions()
    with processes.before_exit(int):
        assert processes.run_actions()


def test_best_round_is_saved_and_can_be_evaluated_again(train, tmp_path):
    metric = "local_worst_decile"
    more = ("rounds=6", "optimizer.learning_rate=0.4", "levels.mix=a", f"evaluate.best={metric}")
    summary, _ = train(tmp_path, programs.RECIPE, *more)
    best = max(runs.rows(tmp_path), key=lambda row: (row[metric], -row["local_loss"], -row["round"]))
    assert summary["best"] == {name: best[name] for name in summary["best"]}
    settings = experiment.Settings(tmp_path, None, 2, False, "")
    process = experiment.build_process(recipe.loads(RunFolder(tmp_path).read_recipe()), settings, RunFolder(tmp_path))
    opened = open_best(RunFolder(tmp_path), process)
    state, info = opened.state, opened.checkpoint.info
    assert state.round == best["round"] and info["best"]["round"] == best["round"] and opened.checkpoint.skipped == ()
    measured, again = process.evaluate(state)
    assert {name: best[name] for name in measured} == measured
    of_global = again["a"]
    assert all(np.array_equal(opened.statistics["a"][name], value) for name, value in of_global.items()) and of_global


@for_each(name for name, metric in all_metrics().items() if metric.selects)
def test_the_line_of_a_round_fits_in_80_columns_and_is_aligned(name):
    process = SimpleNamespace(recipe=SimpleNamespace(rounds=1000), selection_metric=name)
    values = (100.0, 7.1, None) if all_metrics()[name].unit else (0.01234567, 1234.5, None)
    rows = [{"round": 10**n, name: value, "loss": 0.01234, "non_finite": 0} for n, value in enumerate(values)]
    lines = [loop._round_line(process, row, 3605) for row in rows]
    assert max(map(len, lines)) < 80 and len({line.index("loss 0.0123  1:00:05 h left") for line in lines}) == 1
    last = {"round": 1000, "loss": None, "non_finite": 2}
    assert loop._round_line(process, last, 0) == "round 1000/1000  loss -       2 diverged"
    timed = [loop._round_line(process, {**rows[0], "device_seconds": seconds}, 3605) for seconds in (4.5, 360_000.0)]
    assert timed[0].endswith("loss 0.0123  device 4.5 s  1:00:05 h left") or len(lines[0]) > 65
    assert timed[1] in (lines[0], lines[0].replace("  1:00:05", "  device 100:00:00 h  1:00:05")) and len(timed[1]) < 80


EARLY = ("rounds=9", "early_stopping={patience: 2, metric: global_loss, min_delta: 1000}")


def test_early_stopping_ends_a_run_and_survives_a_kill(train_stub, tmp_path):
    summary, output = train_stub(tmp_path / "whole", RECIPE, *EARLY, "checkpoint.every=5")
    loss = runs.rows(tmp_path / "whole")[0]["global_loss"]
    sentence = (
        "stopped early after round 3: global_loss has not improved for 2 evaluations "
        f"(best: {loss:.4g}); use --set early_stopping.patience=N to train more\n"
    )
    assert (summary["rounds"], summary["stopped_early"]) == (3, True) and sentence in output
    assert checkpoints.numbers(tmp_path / "whole" / "checkpoints") == [3, 2]
    with pytest.raises(runs.Stopped):
        train_stub(tmp_path / "killed", RECIPE, *EARLY, console=runs.StoppingConsole(2))
    summary, output = train_stub(tmp_path / "killed", RECIPE, *EARLY)
    assert summary["rounds"] == 3 and "after round 2\n" in output and sentence in output
    assert runs.rows(tmp_path / "killed") == runs.rows(tmp_path / "whole")
    before = programs.contents(tmp_path / "killed")
    assert sentence in train_stub(tmp_path / "killed", RECIPE, *EARLY)[1]
    assert (
        programs.contents(tmp_path / "killed") == before and overview.overview(tmp_path / "killed").state == "finished"
    )


def test_a_run_that_stopped_early_continues_with_more_patience(train_stub, tmp_path):
    train_stub(tmp_path / "run", RECIPE, *EARLY)
    summary, _ = train_stub(tmp_path / "run", RECIPE, *EARLY, "early_stopping.patience=4")
    assert summary["rounds"] == 5 and overview.overview(tmp_path / "run").state == "finished"
    summary, output = train_stub(tmp_path / "run", RECIPE, "rounds=6")
    assert (summary["rounds"], summary["stopped_early"]) == (6, False) and "stopped early" not in output
    train_stub(tmp_path / "plain", RECIPE, "rounds=6")
    assert programs.contents(tmp_path / "run") == programs.contents(tmp_path / "plain")


def test_a_hopeless_learning_rate_stops_at_once(train, tmp_path):
    with pytest.raises(NotFinite) as refusal:
        train(tmp_path / "run", RECIPE, "optimizer.learning_rate=1.0e9", "client.epochs=20", "levels.mix=a")
    assert refusal.value.code == 6
    assert str(refusal.value) == (
        "round 1: 2 of 2 clients returned NaN or infinity, also with a second cohort; the state before this "
        "round is kept. Lower optimizer.learning_rate, or that of round.server. Received: 1e+09"
    )
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_last_finite_state_is_saved_between_two_checkpoints(train_stub, tmp_path):
    """Rounds 1 to 3 are good; the rate of round 4 is hopeless."""
    hopeless = RECIPE + "schedule: {name: steps, at: [3], factor: 1.0e+9}\n"
    more = ("checkpoint.every=50", "evaluate.every=2", "client.epochs=20")
    for rounds in (50, 60):
        with pytest.raises(NotFinite, match="^round 4: 2 of 2 clients returned NaN"):
            train_stub(tmp_path / "run", hopeless, *more, f"rounds={rounds}")
        assert checkpoints.numbers(tmp_path / "run" / "checkpoints") == [3, 2]
        assert [row["round"] for row in runs.rows(tmp_path / "run")] == [1, 2, 3]
    with pytest.raises(InputError, match=r"another recipe \(schedule.at: \[3\] -> \[30\]\)"):
        train_stub(tmp_path / "run", hopeless.replace("[3]", "[30]"), *more, "rounds=50")
    train_stub(tmp_path / "good", RECIPE, "rounds=3", "client.epochs=20")
    remaining, good = (runs.arrays(tmp_path / name / "checkpoints") for name in ("run", "good"))
    assert remaining and all(good[name] == value for name, value in remaining.items())


@dataclasses.dataclass(frozen=True)
class Attempt:
    round: int
    attempt: int
    rate_factor: float = 1.0


class Diverging:
    """A process of which some clients diverge: `diverged[round][attempt]` of 4."""

    class recipe:
        privacy = None

        class round:
            clients, non_finite_share, server, policy = 4, 0.5, Plugin("replace"), Plugin("wait")

    def __init__(self, diverged):
        self.diverged, self.calls = diverged, []

    def plan(self, round, attempt=0, state=None):
        return Attempt(round, attempt)

    def run(self, state, planned):
        self.calls.append(planned)
        rows = [
            {"non_finite": self.diverged[plan.round][plan.attempt], "levels": {"a": 4}, "learning_rate": 0.1}
            for plan in planned
        ]
        return type(state)(state.round + len(planned), {}), rows


def test_clients_that_diverge_are_counted_and_a_bad_round_is_drawn_again():
    process = Diverging([[0], [1], [2, 1], [0]])
    begin = State(0, {})
    state, rows, trained = learning_process.advance(process, begin, [Attempt(round, 0) for round in range(4)])
    # Half of the clients of round 3 diverge, so the call ends before it.
    assert (state.round, [row["non_finite"] for row in rows]) == (2, [0, 1])
    assert trained == [Attempt(0, 0), Attempt(1, 0)]
    state, rows, trained = learning_process.advance(process, state, [Attempt(2, 0), Attempt(3, 0)])
    assert trained == [Attempt(2, 1)]
    assert state.round == 3 and rows == [{"round": 3, "non_finite": 1, "levels": {"a": 4}, "learning_rate": 0.1}]
    assert process.calls[-1] == [Attempt(2, 1)]
    state, rows, _ = learning_process.advance(process, state, [Attempt(3, 0)])
    assert state.round == 4 and rows[0]["non_finite"] == 0
    with pytest.raises(NotFinite, match="^round 1: 3 of 4 clients returned NaN or infinity, also with a second"):
        learning_process.advance(Diverging([[4, 3]]), begin, [Attempt(0, 0)])


def test_a_bad_round_of_an_asynchronous_policy_is_not_drawn_again(monkeypatch):
    monkeypatch.setattr(Diverging.recipe.round, "policy", Plugin("immediate"))
    with pytest.raises(NotFinite, match="NaN or infinity; the state before this round is kept"):
        learning_process.advance(Diverging([[4, 0]]), State(0, {}), [Attempt(0, 0)])


def test_a_round_whose_merge_overflows_is_drawn_again_and_then_ends_the_run():
    process = Diverging([[0], [0, 0], [0, 0]])
    run, overflowing = process.run, {Attempt(1, 0), Attempt(2, 0), Attempt(2, 1)}

    def overflow(state, planned):
        after, rows = run(state, planned)
        return after, [{**row, "failure": OVERFLOW} if key in overflowing else row for row, key in zip(rows, planned)]

    process.run = overflow
    state, rows, trained = learning_process.advance(
        process, State(0, {}), [Attempt(0, 0), Attempt(1, 0), Attempt(2, 0)]
    )
    assert trained == [Attempt(0, 0)] and state.round == 1
    state, rows, trained = learning_process.advance(process, state, [Attempt(1, 0), Attempt(2, 0)])
    assert trained == [Attempt(1, 1)] and state.round == 2 and "failure" not in rows[0]
    assert refusal(learning_process.advance, process, state, [Attempt(2, 0)], kind=NotFinite) == (
        "round 3: the merge of the clients' finite weights overflowed to NaN or infinity, also with a second cohort; "
        "the state before this round is kept. Lower optimizer.learning_rate, or that of round.server. Received: 0.1"
    )


def test_planning_ahead_gives_the_same_state(train_stub, tmp_path, monkeypatch):
    planned, run, plan = [], LearningProcess.run, LearningProcess.plan
    ready = [threading.Event() for _ in range(7)]

    def watched_plan(self, round, cohort=None, attempt=0, state=None):
        planned.append((round, threading.current_thread()))
        ready[round].set()
        return plan(self, round, cohort, attempt, state)

    def watched_run(self, state, plans):
        behind = state.round + len(plans)
        assert behind == 7 or ready[behind].wait(30), "the next call is planned while this one runs"
        return run(self, state, plans)

    more = ("rounds=7", "evaluate.every=3")
    with monkeypatch.context() as patch:
        patch.setattr(LearningProcess, "plan", watched_plan)
        patch.setattr(LearningProcess, "run", watched_run)
        train_stub(tmp_path, RECIPE, *more, "checkpoint.every=2")
    assert [round for round, _ in planned] == list(range(7))
    assert threading.current_thread() not in {thread for _, thread in planned}
    alone = runs.built(RECIPE, *more)
    state = alone.initialize()
    for _ in range(7):
        state, _ = alone.next(state)
    actual = open_newest(tmp_path / "checkpoints", alone).state
    assert actual.round == 7 and tiny.same(tiny.arrays(actual), tiny.arrays(state))


def test_repeated_round_gets_a_new_plan(train_stub, tmp_path, monkeypatch):
    """The first cohort of round 3 diverges within a call of four rounds."""
    made, calls, run, plan = [], [], LearningProcess.run, LearningProcess.plan

    def named_plan(self, round, cohort=None, attempt=0, state=None):
        made.append(((round, attempt), plan(self, round, cohort, attempt, state)))
        return made[-1][1]

    def diverging_run(self, state, plans):
        calls.append([next(name for name, known in made if known is one) for one in plans])
        after, rows = run(self, state, plans)
        return after, [row | ({"non_finite": 2} if name == (2, 0) else {}) for row, name in zip(rows, calls[-1])]

    every = ("evaluate.every=4", "checkpoint.every=4")
    with monkeypatch.context() as patch:
        patch.setattr(LearningProcess, "plan", named_plan)
        patch.setattr(LearningProcess, "run", diverging_run)
        train_stub(tmp_path, RECIPE, *every)
    assert calls == [[(0, 0), (1, 0), (2, 0), (3, 0)], [(0, 0), (1, 0)], [(2, 0), (3, 0)], [(2, 1)], [(3, 0)]]
    alone = runs.built(RECIPE, *every)
    state = alone.initialize()
    for number in range(4):
        state, _ = alone.run(state, [alone.plan(number, attempt=int(number == 2))])
    actual = open_newest(tmp_path / "checkpoints", alone).state
    assert actual.round == 4 and tiny.same(tiny.arrays(actual), tiny.arrays(state))
    assert [row["round"] for row in runs.rows(tmp_path)] == [1, 2, 3, 4]


def test_error_in_planning_ends_the_run_after_the_previous_rounds(train_stub, tmp_path, monkeypatch):
    plan = LearningProcess.plan

    def failing(self, round, cohort=None, attempt=0, state=None):
        if round == 2:
            raise InputError("round 3: cannot be planned")
        return plan(self, round, cohort, attempt, state)

    with monkeypatch.context() as patch, pytest.raises(InputError, match="^round 3: cannot be planned$"):
        patch.setattr(LearningProcess, "plan", failing)
        train_stub(tmp_path, RECIPE)
    assert [row["round"] for row in runs.rows(tmp_path)] == [1, 2]
    summary, output = train_stub(tmp_path, RECIPE)
    assert summary["rounds"] == 4 and "after round 2\n" in output


def test_metrics_that_are_not_finite_do_not_stop_a_run(train_stub, tmp_path, monkeypatch):
    """exp(loss) of a bad model is infinite; that round is never the best."""
    evaluate = LearningProcess.evaluate

    def spoiled(process, state):
        measured, statistics = evaluate(process, state)
        return ({name: float("inf") for name in measured} if state.round == 2 else measured), statistics

    monkeypatch.setattr(LearningProcess, "evaluate", spoiled)
    summary, output = train_stub(tmp_path, RECIPE, "rounds=2", "evaluate.every=2")
    assert summary["best"] == {} and summary["last"]["global_loss"] is None
    assert runs.rows(tmp_path)[1]["global_loss"] is None and "best:" not in output
    assert "last: round 2  global_loss -" in (tmp_path / "log.txt").read_text()
    again, _ = train_stub(tmp_path, RECIPE, "rounds=3", "evaluate.every=2")
    assert again["best"]["round"] == 3


def test_a_checkpoint_holds_finite_values_alone():
    """Statistics that overflowed are measured again; a state that did is never written."""
    state = State(3, {"w": np.ones(2, np.float32)}, {"velocity": {"w": np.zeros(2, np.float32)}})
    good, bad = {"mean": np.zeros(2)}, {"mean": np.zeros(2), "variance": np.array([1, np.inf])}
    of_both, of_narrow = ["server/velocity/w", "statistics/mean", "weights/w"], "level_statistics/b/mean"
    assert sorted(arrays_of(state, {"a": good, "b": bad}, "a")) == of_both
    assert sorted(arrays_of(state, {"a": bad, "b": good}, "a")) == [of_narrow, "server/velocity/w", "weights/w"]
    state.server["velocity"]["w"][1] = np.nan
    assert refusal(arrays_of, state, {"a": good}, "a", kind=NotFinite) == (
        "round 3 is not saved: 'server/velocity/w' holds NaN or infinite values; the last checkpoint is kept"
    )
