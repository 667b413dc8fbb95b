"""A run in its folder: begin, extend, refuse, keep the best, stop at non-finite weights, announce stand-ins."""

import json
import re
import threading

import numpy as np
import programs
import pytest
import runs
import tiny
from runs import train  # noqa: F401

from hetero_tf import experiment, recipe, resume, states, training
from hetero_tf.data import tfds
from hetero_tf.data.dataset import NotAvailable
from hetero_tf.errors import BadInput, Locked, NotFinite
from hetero_tf.process import LearningProcess, State
from hetero_tf.store import sealed
from hetero_tf.store.run_folder import RunFolder

RECIPE = programs.RECIPE


def test_a_run_leaves_its_folder_and_a_summary(train, tmp_path):  # noqa: F811
    summary, said = train(tmp_path / "run", RECIPE)
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == [
        "best", "checkpoints", "environment.json", "log.txt", "metrics.jsonl", "partition.npz", "recipe.yaml",
        "run.lock"]
    found = runs.rows(tmp_path / "run")
    assert [row["round"] for row in found] == [1, 2, 3, 4]
    assert set(found[0]) == {"round", "loss", "gradient_norm", "lost", "levels", "learning_rate", "bytes_down",
                             "bytes_up", "bytes", "flops", "global_loss", "global_accuracy", "local_loss",
                             "local_accuracy", "local_mean", "local_worst_decile", "local_std", "local_std_noise"}
    assert summary["rounds"] == 4 and summary["data"] == "synthetic images (seed 0)" and summary["stand_in_for"] is None
    assert {name: found[3][name] for name in summary["last"]} == summary["last"]
    assert said.startswith(
        "data: synthetic images (seed 0)\nclients: 6, 2 active a round, 20 to 20 examples each\n"
        "engine: one by one at levels a, b; 2 in flight, 1 thread each; float32, cpu\nfirst round after ")
    assert json.loads(json.dumps(summary)) == summary


def test_another_recipe_is_refused_with_both_values(train, tmp_path):  # noqa: F811
    train(tmp_path, RECIPE)
    before = programs.contents(tmp_path)
    other = ("optimizer.learning_rate=0.1", "round.clients=3", "rounds=9")
    with pytest.raises(BadInput) as refusal:
        train(tmp_path, RECIPE, *other)
    assert str(refusal.value) == (
        f"{tmp_path}: holds a run of another recipe (round.clients: 2 -> 3; optimizer.learning_rate: 0.05 -> 0.1); "
        "choose another folder by --run_dir, or give the recipe that the run began with")
    assert programs.contents(tmp_path) == before


def test_more_rounds_extend_a_run_and_fewer_say_that_it_is_done(train, tmp_path):  # noqa: F811
    train(tmp_path / "long", RECIPE, "rounds=6")
    train(tmp_path / "short", RECIPE)
    summary, said = train(tmp_path / "short", RECIPE, "rounds=6")
    assert summary["rounds"] == 6 and f"resumed {tmp_path / 'short'} after round 4\n" in said
    assert programs.contents(tmp_path / "short") == programs.contents(tmp_path / "long")
    summary, said = train(tmp_path / "short", RECIPE, "rounds=2")
    assert summary["rounds"] == 6 and "all 2 rounds are done; --set rounds=N trains more\n" in said
    assert programs.contents(tmp_path / "short") == programs.contents(tmp_path / "long")


def test_several_rounds_a_call_give_the_same_weights(train, tmp_path):  # noqa: F811
    for name, more in (("one", ()), ("many", ("evaluate.every=3", "checkpoint.every=2"))):
        train(tmp_path / name, RECIPE, "rounds=7", *more)
    assert runs.arrays(tmp_path / "one" / "checkpoints") == runs.arrays(tmp_path / "many" / "checkpoints")
    one, many = (runs.rows(tmp_path / name) for name in ("one", "many"))
    assert [row["round"] for row in many if "global_loss" in row] == [3, 6, 7]
    for full, row in zip(one, many, strict=True):
        assert {name: full[name] for name in row} == row
    kept = sorted(path.name for path in (tmp_path / "many" / "checkpoints").iterdir())
    assert kept == ["round-000006", "round-000007"]


@pytest.mark.parametrize(("metric", "sign"), [("global_accuracy", 1), ("global_loss", -1), ("local_loss", -1)])
def test_the_best_round_is_kept_and_can_be_measured_again(train, tmp_path, metric, sign):  # noqa: F811
    text = RECIPE.replace("batch_size: 40}", "batch_size: 40, best: %s}" % metric)
    summary, _ = train(tmp_path, text, "rounds=6", "optimizer.learning_rate=0.4")
    found = runs.rows(tmp_path)
    best = max(found, key=lambda row: (sign * row[metric], -row["round"]))
    assert summary["best"] == {name: best[name] for name in summary["best"]}
    settings = experiment.Settings(tmp_path, None, 2, False)
    process = experiment.build_process(recipe.loads(RunFolder(tmp_path).read_recipe()), settings, RunFolder(tmp_path))
    state, statistics, info, skipped = states.open_newest(tmp_path / "best", process)
    assert state.round == best["round"] and info["best"]["round"] == best["round"] and skipped == ()
    measured, again = process.evaluate(state)
    assert {name: best[name] for name in measured} == measured
    assert all(np.array_equal(statistics[name], value) for name, value in again.items()) and again


@pytest.mark.parametrize(("name", "found", "best", "better"), [
    ("global_loss", 1.0, 2.0, True), ("global_loss", 2.0, 1.0, False), ("global_perplexity", 1.0, 2.0, True),
    ("local_loss", 2.0, 1.0, False), ("global_accuracy", 2.0, 1.0, True), ("local_accuracy", 1.0, 2.0, False),
    ("global_accuracy", 1.0, 1.0, False), ("global_loss", None, 1.0, False), ("global_accuracy", 0.0, None, True),
])
def test_better_knows_the_direction_of_each_metric(name, found, best, better):
    assert training.better(name, {name: found}, {} if best is None else {name: best}) == better


def test_a_hopeless_learning_rate_stops_at_once(train, tmp_path):  # noqa: F811
    with pytest.raises(NotFinite) as refusal:
        train(tmp_path / "run", RECIPE, "optimizer.learning_rate=1.0e9", "client.epochs=20")
    assert refusal.value.code == 6
    assert str(refusal.value) == (
        "round 1: 2 of 2 clients returned NaN or infinite weights, also with another cohort; the state before this "
        "round is kept. Lower optimizer.learning_rate. Received: learning_rate=1e+09")
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_the_last_good_state_is_kept_though_no_seal_was_due(train, tmp_path):  # noqa: F811
    """Rounds 1 to 3 are good; the rate of round 4 is hopeless."""
    hopeless = RECIPE + "schedule: {name: steps, at: [3], factor: 1.0e+9}\n"
    more = ("checkpoint.every=50", "evaluate.every=2", "client.epochs=20")
    for rounds in (50, 60):
        with pytest.raises(NotFinite, match="^round 4: 2 of 2 clients returned NaN"):
            train(tmp_path / "run", hopeless, *more, f"rounds={rounds}")
        assert [path.name for path in (tmp_path / "run" / "checkpoints").iterdir()] == ["round-000003"]
        assert [row["round"] for row in runs.rows(tmp_path / "run")] == [1, 2, 3]
    with pytest.raises(BadInput, match=r"another recipe \(schedule.at: \[3\] -> \[30\]\)"):
        train(tmp_path / "run", hopeless.replace("[3]", "[30]"), *more, "rounds=50")
    train(tmp_path / "good", RECIPE, "rounds=3", "client.epochs=20")
    kept, good = (runs.arrays(tmp_path / name / "checkpoints") for name in ("run", "good"))
    assert kept and all(good[name] == value for name, value in kept.items())


class Losing:
    """A process of which some clients are lost: `lost[round][attempt]` of 4."""

    class recipe:
        class round:
            clients, lost_share = 4, 0.5

    def __init__(self, lost):
        self.lost, self.calls = lost, []

    def plan(self, round, attempt=0):
        return round, attempt

    def examples(self, plan):
        return np.ones(4, int)

    def run(self, state, planned):
        self.calls.append(planned)
        rows = [{"lost": self.lost[round][attempt], "levels": {"a": 4}, "learning_rate": 0.1}
                for round, attempt in planned]
        return type(state)(state.round + len(planned), {}), rows


def test_lost_clients_are_counted_and_a_bad_round_is_drawn_again():
    process = Losing([[0], [1], [2, 1], [0]])
    begin = State(0, {})
    state, rows, examples = training.advance(process, begin, [(round, 0) for round in range(4)])
    # Round 3 loses half of its clients, so the call ends before it.
    assert (state.round, [row["lost"] for row in rows], examples) == (2, [0, 1], 8)
    state, rows, _ = training.advance(process, state, [(2, 0), (3, 0)])
    assert state.round == 3 and rows == [{"round": 3, "lost": 1, "levels": {"a": 4}, "learning_rate": 0.1}]
    assert process.calls[-1] == [(2, 1)]
    state, rows, _ = training.advance(process, state, [(3, 0)])
    assert state.round == 4 and rows[0]["lost"] == 0
    with pytest.raises(NotFinite, match="^round 1: 3 of 4 clients returned NaN or infinite weights, also with another"):
        training.advance(Losing([[4, 3]]), begin, [(0, 0)])


def built(*overrides):
    """The process of a recipe, as a run in this file builds it."""
    return experiment.build_process(recipe.loads(RECIPE, "test", overrides), experiment.Settings(None, None, 2, False))


def test_rounds_are_planned_while_the_one_before_runs_and_come_to_the_same(train, tmp_path, monkeypatch):  # noqa: F811
    planned, run, plan = [], LearningProcess.run, LearningProcess.plan
    ready = [threading.Event() for _ in range(7)]

    def watched_plan(self, round, cohort=None, attempt=0):
        planned.append((round, threading.current_thread()))
        ready[round].set()
        return plan(self, round, cohort, attempt)

    def watched_run(self, state, plans):
        behind = state.round + len(plans)
        assert behind == 7 or ready[behind].wait(30), "the next call is planned while this one runs"
        return run(self, state, plans)

    monkeypatch.setattr(LearningProcess, "plan", watched_plan)
    monkeypatch.setattr(LearningProcess, "run", watched_run)
    more = ("rounds=7", "evaluate.every=3")
    train(tmp_path, RECIPE, *more, "checkpoint.every=2")
    assert [round for round, _ in planned] == list(range(7))
    assert threading.current_thread() not in {thread for _, thread in planned}
    monkeypatch.undo()
    alone = built(*more)
    state = alone.initialize()
    for _ in range(7):
        state, _ = alone.next(state)
    found = states.open_newest(tmp_path / "checkpoints", alone)[0]
    assert found.round == 7 and tiny.same(tiny.arrays(found), tiny.arrays(state))


def test_a_repeated_round_is_planned_anew(train, tmp_path, monkeypatch):  # noqa: F811
    """The first cohort of round 3 is lost within a call of four rounds."""
    made, calls, run, plan = [], [], LearningProcess.run, LearningProcess.plan

    def named_plan(self, round, cohort=None, attempt=0):
        made.append(((round, attempt), plan(self, round, cohort, attempt)))
        return made[-1][1]

    def losing_run(self, state, plans):
        calls.append([next(name for name, known in made if known is one) for one in plans])
        after, rows = run(self, state, plans)
        return after, [row | ({"lost": 2} if name == (2, 0) else {}) for row, name in zip(rows, calls[-1])]

    monkeypatch.setattr(LearningProcess, "plan", named_plan)
    monkeypatch.setattr(LearningProcess, "run", losing_run)
    every = ("evaluate.every=4", "checkpoint.every=4")
    train(tmp_path, RECIPE, *every)
    assert calls == [[(0, 0), (1, 0), (2, 0), (3, 0)], [(0, 0), (1, 0)], [(2, 0), (3, 0)], [(2, 1)], [(3, 0)]]
    monkeypatch.undo()
    alone = built(*every)
    state = alone.initialize()
    for number in range(4):
        state, _ = alone.run(state, [alone.plan(number, attempt=int(number == 2))])
    found = states.open_newest(tmp_path / "checkpoints", alone)[0]
    assert found.round == 4 and tiny.same(tiny.arrays(found), tiny.arrays(state))
    assert [row["round"] for row in runs.rows(tmp_path)] == [1, 2, 3, 4]


def test_what_fails_in_planning_ends_the_run_after_the_rounds_before(train, tmp_path, monkeypatch):  # noqa: F811
    plan = LearningProcess.plan

    def failing(self, round, cohort=None, attempt=0):
        if round == 2:
            raise BadInput("round 3: cannot be planned")
        return plan(self, round, cohort, attempt)

    monkeypatch.setattr(LearningProcess, "plan", failing)
    with pytest.raises(BadInput, match="^round 3: cannot be planned$"):
        train(tmp_path, RECIPE)
    assert [row["round"] for row in runs.rows(tmp_path)] == [1, 2]
    monkeypatch.undo()
    summary, said = train(tmp_path, RECIPE)
    assert summary["rounds"] == 4 and "after round 2\n" in said


def test_the_first_call_is_timed_and_only_that(train, tmp_path):  # noqa: F811
    summary, said = train(tmp_path, RECIPE, "evaluate.every=3", "checkpoint.every=3", "rounds=3")
    parts = ", ".join(rf"{name} \d+\.\d" for name in ("start", "data", "build", "trace", "round"))
    (line,) = re.findall(rf"^first 3 rounds after \d+\.\d s: {parts}$", said, re.MULTILINE)
    assert line in (tmp_path / "log.txt").read_text().splitlines()
    assert list(summary["first_round_s"]) == ["start", "data", "build", "trace", "round", "total"]
    summary, said = train(tmp_path, RECIPE, "evaluate.every=3", "checkpoint.every=3", "rounds=3")
    assert summary["first_round_s"] is None and "\nfirst" not in said
    assert not any("first" in row or "start" in row for row in runs.rows(tmp_path))


def test_another_engine_or_number_of_threads_is_another_condition(train, tmp_path):  # noqa: F811
    train(tmp_path, RECIPE, "rounds=1")
    facts = json.loads((tmp_path / "environment.json").read_text())
    assert facts["settings"].items() >= {"clients_at_once": {"a": 1, "b": 1}, "compiled": False, "device": "cpu",
                                         "precision": "float32"}.items()
    assert facts["threads"] == {"inter_op": 2, "intra_op": 1}
    with pytest.raises(BadInput, match=r"begun under other conditions \(settings.clients_at_once was {'a': 1, 'b': 1}, "
                                       r"is {'a': 2, 'b': 2}\), so its numbers .* with --allow_other_machine$"):
        train(tmp_path, RECIPE, "rounds=2", "engine=cohort")
    with pytest.raises(BadInput, match=r"under other conditions \(threads.inter_op was 2, is 1\)"):
        train(tmp_path, RECIPE, "rounds=2", threads=1)
    with pytest.raises(BadInput, match=r"holds a run of another recipe \(precision: 'float32' -> 'float64'\)"):
        train(tmp_path, RECIPE, "rounds=2", "precision=float64", allow=True)
    # The name of the engine does not matter, but what it comes to.
    _, said = train(tmp_path, RECIPE, "rounds=2", "engine=slots")
    assert "after round 1\n" in said and "note: settings" not in said
    _, said = train(tmp_path, RECIPE, "rounds=3", "engine=cohort", allow=True)
    assert "note: settings.clients_at_once was {'a': 1, 'b': 1}, is {'a': 2, 'b': 2}\n" in said
    assert "engine: 2 clients at once at levels a, b; " in said
    assert train(tmp_path, RECIPE, "rounds=4", "engine=cohort")[0]["rounds"] == 4


def test_metrics_that_are_not_finite_do_not_stop_a_run(train, tmp_path, monkeypatch):  # noqa: F811
    """exp(loss) of a bad model is infinite; that round is never the best."""
    evaluate = LearningProcess.evaluate

    def spoiled(process, state):
        measured, statistics = evaluate(process, state)
        return ({name: float("inf") for name in measured} if state.round == 2 else measured), statistics

    monkeypatch.setattr(LearningProcess, "evaluate", spoiled)
    summary, said = train(tmp_path, RECIPE, "rounds=2", "evaluate.every=2")
    assert summary["best"] == {} and summary["last"]["global_loss"] is None
    assert runs.rows(tmp_path)[1]["global_loss"] is None and "last: round 2  global_loss -" in said
    again, _ = train(tmp_path, RECIPE, "rounds=3", "evaluate.every=2")
    assert again["best"]["round"] == 3


def test_stand_in_data_are_announced_loudly(train, tmp_path, monkeypatch):  # noqa: F811
    def missing(data_dir, **options):
        raise NotAvailable("mnist is not there and could not be fetched; put it there")

    monkeypatch.setattr(tfds, "load", missing)
    summary, said = train(tmp_path / "run", RECIPE, "data={name: tfds, dataset: mnist, fallback: digits}", "rounds=1")
    assert summary["stand_in_for"] == "mnist"
    assert summary["data"].endswith("standing in for mnist: mnist is not there and could not be fetched")
    loud = re.findall(r"^\*\*\* NOT THE REAL DATA: .* \*\*\*$", said, re.MULTILINE)
    assert len(loud) == 2 and said.startswith(loud[0]) and "trained on" in loud[1]
    assert loud[1] in (tmp_path / "run" / "log.txt").read_text()


def test_a_run_cannot_go_on_with_other_data(train, tmp_path):  # noqa: F811
    """A stand-in at first and the real data later: equal recipe, other examples."""
    path = tmp_path / "set.npz"
    text = re.sub(r"data: .*", f"data: {{name: npz, path: '{path}'}}", RECIPE)
    rng = np.random.default_rng(0)
    for number in range(2):
        x, y = rng.integers(0, 256, (120, 6, 6, 1), dtype=np.uint8), np.arange(120) % 4
        np.savez(path, x_train=x, y_train=y, x_test=x[:40], y_test=y[:40])
        if number == 0:
            train(tmp_path / "run", text, "rounds=1")
    with pytest.raises(BadInput, match="run: was trained on other data than these .*; give the same data, for example"):
        train(tmp_path / "run", text, "rounds=2", allow=True)


def test_a_stored_recipe_that_was_edited_is_not_measured_or_exported(train, tmp_path):  # noqa: F811
    train(tmp_path, RECIPE)
    run = RunFolder(tmp_path)
    info = sealed.load_newest(run.best).info
    resume.check_stored_recipe(run, info)
    run.recipe.write_text(run.read_recipe().replace("seed: 3", "seed: 4").replace("rounds: 4", "rounds: 5"))
    with pytest.raises(BadInput, match=r"recipe.yaml: was changed after the training \(seed: 3 -> 4\); put it"):
        resume.check_stored_recipe(run, info)


def test_a_new_folder_in_which_no_run_came_about_is_taken_away(tmp_path):
    run = RunFolder(tmp_path / "deep" / "er" / "run")
    with pytest.raises(BadInput, match="refused"), resume.held(run):
        (run.path / "environment.json").write_text("{}")
        raise BadInput("refused")
    assert list(tmp_path.iterdir()) == []
    run.path.mkdir(parents=True)
    with pytest.raises(BadInput, match="refused"), resume.held(run):
        raise BadInput("refused")
    assert run.path.is_dir(), "a folder that was there stays"


def test_a_folder_in_use_is_refused(train, tmp_path):  # noqa: F811
    with RunFolder(tmp_path / "run").lock(), pytest.raises(Locked, match="process [0-9]+ works on this run folder"):
        train(tmp_path / "run", RECIPE)


def test_a_lost_best_state_is_said_and_replaced(train, tmp_path):  # noqa: F811
    train(tmp_path, RECIPE)
    for path in (tmp_path / "best").glob("*/arrays.npz"):
        path.write_bytes(b"")
    summary, said = train(tmp_path, RECIPE)
    assert "note: the best state so far, of round" in said and "arrays.npz: has 0 bytes" in said
    assert summary["best"] == {} and summary["rounds"] == 4
    summary, said = train(tmp_path, RECIPE, "rounds=5")
    assert summary["best"]["round"] == 5
    assert [path.name for path in (tmp_path / "best").iterdir()] == ["round-000005"]


def test_a_state_sealed_by_another_version_is_refused(train, tmp_path):  # noqa: F811
    train(tmp_path / "run", RECIPE, "rounds=1")
    run = RunFolder(tmp_path / "run")
    found = sealed.load_newest(run.checkpoints)
    info = {name: value for name, value in found.info.items() if name != "environment"}
    sealed.save(run.checkpoints, found.round, found.arrays, info, keep=1)
    with pytest.raises(BadInput, match="round 1 was sealed without environment, so by another version of hetero_tf"):
        train(tmp_path / "run", RECIPE, "rounds=2")


def test_a_run_with_dropouts_and_partial_work_resumes_bit_by_bit(train, tmp_path):  # noqa: F811
    more = ("rounds=6", "client.epochs=3", "round.clients=4", "availability={dropout: 0.3, deadline: 0.5, "
            "late: partial, seconds_per_step: {a: 0.1, b: 0.1}, spread: 0.5}")
    train(tmp_path / "whole", RECIPE, *more)
    found = runs.rows(tmp_path / "whole")
    assert sum(row["dropped"] for row in found) > 0 and sum(row["partial"] for row in found) > 0
    for stop in (1, 4):
        with pytest.raises(runs.Stopped):
            train(tmp_path / f"cut{stop}", RECIPE, *more, console=runs.StoppingConsole(stop))
        train(tmp_path / f"cut{stop}", RECIPE, *more)
        assert programs.contents(tmp_path / f"cut{stop}") == programs.contents(tmp_path / "whole")


def test_bytes_add_up_over_the_rounds(train, tmp_path):  # noqa: F811
    train(tmp_path, RECIPE, "rounds=2")
    train(tmp_path, RECIPE, "rounds=5", "evaluate.every=1")
    found = runs.rows(tmp_path)
    spent = np.cumsum([row["bytes_down"] + row["bytes_up"] for row in found]).tolist()
    assert [row["bytes"] for row in found] == spent and spent[0] > 0


def test_a_run_from_given_weights_does_not_need_them_again(train, tmp_path):  # noqa: F811
    state = built().initialize()
    path = tmp_path / "weights.npz"
    np.savez(path, **{name: np.asarray(value) + 0.5 for name, value in state.weights.items()})
    given = RECIPE.replace("model:\n", f"model:\n  initial_weights: '{path}'\n")
    train(tmp_path / "run", given, "rounds=1")
    assert runs.arrays(tmp_path / "run" / "checkpoints") != {}
    path.unlink()
    summary, _ = train(tmp_path / "run", given, "rounds=2")
    assert summary["rounds"] == 2
    with pytest.raises(BadInput, match="weights.npz: cannot be opened"):
        train(tmp_path / "new", given)
    assert not (tmp_path / "new").exists()


def test_the_best_round_may_be_that_of_the_worst_clients(train, tmp_path):  # noqa: F811
    text = RECIPE.replace("batch_size: 40}", "batch_size: 40, best: local_worst_decile}")
    summary, said = train(tmp_path, text)
    found = runs.rows(tmp_path)
    assert summary["best"]["local_worst_decile"] == max(row["local_worst_decile"] for row in found)
    for hidden in ("bytes", "flops", "local_mean", "local_std"):
        assert hidden not in said
    assert "local_worst_decile" in said
