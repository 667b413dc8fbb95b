"""Runs of a sweep: parallel, isolated, skipped and resumed; a killed sweep can be resumed."""

import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import cases
import fake_run
import programs
import pytest

from hetero_tf.base import hardware, registry
from hetero_tf.base.console import Console
from hetero_tf.base.errors import InputError
from hetero_tf.cli.commands import sweep
from hetero_tf.runs import checkpoints, metrics_file
from hetero_tf.runs.run_folder import RunFolder
from hetero_tf.sweeps import definition, pool
from hetero_tf.sweeps.definition import SweepFolder, expand
from hetero_tf.sweeps.pool import Launcher, Program

FAKE = str(Path(__file__).parents[1] / "support" / "fake_run.py")

# Runs a sweep of four runs with the fake program; its argument is the seconds of a round.
PROGRAM_CODE = (
    "import sys; from unittest import mock; from hetero_tf.cli import main; from hetero_tf.cli.commands import sweep; "
    f"from hetero_tf.sweeps.pool import Program; program = Program((sys.executable, {FAKE!r}, sys.argv[1], 'nothing'), "
    "(), 1, False); mock.patch.object(sweep, 'build_program', lambda flags, jobs: program).start(); "
    "sys.exit(main.main(['hetero_tf', 'sweep', '--recipe=digits', '--seeds=0-3', '--jobs=2', '--run_dir=s', "
    "'--set=rounds=6', '--json']))"
)


def sweep_of(seeds="0-3", rounds=3, more=()):
    parts = definition.from_flags("digits", [f"rounds={rounds}", *more], [], seeds)
    return parts, expand(parts, "typed")


def train(folder, runs, jobs=2, seconds=0.0, failing="nothing", threads=2):
    output = io.StringIO()
    program = Program((sys.executable, FAKE, str(seconds), failing), (), threads, False)
    return pool.train(runs, SweepFolder(folder), program, jobs, Console(output)), output.getvalue()


@pytest.fixture
def in_threads(monkeypatch):
    """Call the fake program instead of starting it: `test_launcher` and other tests here start programs."""

    def run(launcher, flags):
        output, program = io.StringIO(), launcher._program
        code = fake_run.main(*program.command[2:], *program.flags, *flags, output=output)
        return code, output.getvalue().splitlines()[-1].removeprefix("hetero_tf: ") if code else "", 0.0

    monkeypatch.setattr(Launcher, "run", run)


def test_each_run_has_a_folder_and_a_line(tmp_path):
    _, runs = sweep_of("0-2")
    outcomes, output = train(tmp_path, runs)
    assert [one.state for one in outcomes] == ["finished"] * 3
    assert sorted(os.listdir(tmp_path)) == [f"digits-seed={seed}" for seed in range(3)]
    lines = sorted(line.partition("  ")[2] for line in output.splitlines())
    assert [re.sub(r"[\d.]+ s$", "N s", line) for line in lines] == [
        f"digits-seed={seed}  finished  round 3  global_accuracy best 30 last 30  N s" for seed in range(3)
    ]
    result = outcomes[1].to_json()
    assert (result["name"], result["best"], result["round"], result["went_on_after"]) == ("digits-seed=1", 30.0, 3, 0)


def test_failed_run_is_reported_and_does_not_stop_others(tmp_path):
    _, runs = sweep_of("0-2")
    outcomes, output = train(tmp_path, runs, failing="seed=1")
    assert [one.state for one in outcomes] == ["finished", "failed", "finished"]
    assert outcomes[1].problem == "no luck today" and "digits-seed=1  failed: no luck today\n" in output
    again, _ = train(tmp_path, runs)
    assert [one.state for one in again] == ["skipped", "finished", "skipped"]


def test_runs_that_stopped_early_are_skipped_unless_their_patience_is_higher(in_threads, tmp_path):
    _, runs = sweep_of("0", rounds=3)
    train(tmp_path, runs)
    states = []
    for patience in (2, 3):
        more = ["early_stopping.metric=global_loss", f"early_stopping.patience={patience}"]
        outcomes, _ = train(tmp_path, sweep_of("0", rounds=5, more=more)[1])
        states += [outcome.state for outcome in outcomes]
    assert states == ["skipped", "finished"]


def test_finished_runs_are_skipped_and_others_resumed_with_their_threads(in_threads, tmp_path):
    _, runs = sweep_of("0-1", rounds=2)
    train(tmp_path, runs, threads=3)
    _, more = sweep_of("0-2", rounds=5)
    outcomes, output = train(tmp_path, more, threads=1)
    assert [outcome.resumed_after for outcome in outcomes] == [2, 2, 0]
    assert "digits-seed=0: resumes after round 2\n" in output and "  resumed after round 2\n" in output
    threads = [json.loads((one.folder / "environment.json").read_text())["threads"] for one in outcomes]
    assert [settings["inter_op"] for settings in threads] == [3, 3, 1]
    summary = pool.summarize(outcomes, tmp_path, 1.0)
    assert (summary["finished"], summary["failed"]) == (3, 0)
    assert pool.to_text(summary) == "3 of 3 runs are finished; resumed: digits-seed=0, digits-seed=1"


def test_run_of_another_process_is_left_to_it(in_threads, tmp_path):
    _, runs = sweep_of("0-1")
    with RunFolder(tmp_path / "digits-seed=1").lock():
        outcomes, output = train(tmp_path, runs)
    assert [one.state for one in outcomes] == ["finished", "running elsewhere"]
    message = f"{tmp_path / 'digits-seed=1'}: process {os.getpid()} uses this run folder"
    assert "/2  digits-seed=0  finished" in output
    assert f"/2  digits-seed=1  running elsewhere: {message}\n" in output and outcomes[1].problem == message
    assert [one.state for one in train(tmp_path, runs)[0]] == ["skipped", "finished"]


def test_finished_run_of_another_recipe_fails(in_threads, tmp_path):
    train(tmp_path, sweep_of("0")[1])
    outcomes, _ = train(tmp_path, sweep_of("0", more=("client.epochs=2",))[1])
    assert (
        outcomes[0].problem == f"{tmp_path / 'digits-seed=0'}: contains a run of another recipe (client.epochs: 5 -> 2)"
    )


def test_parallel_runs_are_limited(tmp_path, monkeypatch):
    together, most = [], []

    def run(launcher, flags):
        together.append(flags)
        most.append(len(together))
        time.sleep(0.05)
        together.pop()
        return 0, "", 0.05

    monkeypatch.setattr(Launcher, "run", run)
    for jobs in (1, 3):
        train(tmp_path, sweep_of("0-5")[1], jobs=jobs)
        assert max(most) == jobs
        most.clear()


def test_progress_counts_runs_and_estimates_by_rounds(tmp_path):
    _, runs = sweep_of("0-2", rounds=4)
    progress, shown = pool._Progress(runs, SweepFolder(tmp_path)), []
    display = SimpleNamespace(update=lambda *arguments: shown.append(arguments))
    progress.show(display, 5.0)
    progress.first[runs[0].name] = 1
    progress.end(pool.RunOutcome(runs[1], tmp_path, pool.FAILED))
    folder = tmp_path / runs[0].name
    folder.mkdir()
    for number in (1, 2, 3):
        metrics_file.append(folder / "metrics.jsonl", {"round": number})
    progress.show(display, 6.0)
    assert shown == [
        ("0/3 runs done  0 running", None, ""),
        # Two rounds in 6 s; one of this run and four of the last one are left.
        ("0/3 runs done  1 running  1 failed", 6.0 + 5 * 3.0, "digits-seed=0 3/4"),
    ]


def test_changed_definition_of_a_folder_is_a_note(tmp_path):
    folder, notes = SweepFolder(tmp_path / "s"), []
    with folder.lock(notes.append):
        folder.write_definition(sweep_of("0-1")[0], notes.append)
    more, _ = sweep_of("0-2", rounds=9)
    folder.write_definition(more, notes.append)
    assert notes == [f"note: {folder.definition_file} was changed"] and definition.reads(
        folder.definition_file.read_text(), "s"
    )


def test_folders_with_other_files_are_refused(tmp_path):
    (tmp_path / "thesis.txt").touch()
    with pytest.raises(InputError, match="thesis.txt.* and no sweep"), SweepFolder(tmp_path).lock(print):
        pass


@pytest.fixture
def working_folder(tmp_path, monkeypatch):
    """A working folder in which `sweep` starts the fake program."""
    monkeypatch.chdir(tmp_path)
    words = (sys.executable, FAKE, "0", "seed=7")
    monkeypatch.setattr(sweep, "build_program", lambda flags, jobs: Program(words, (), flags.threads // jobs, False))
    return tmp_path


def test_command_reports_results_and_exit_code(in_threads, working_folder, command):
    words = shlex.split("sweep --recipe=digits --set=rounds=2 --run_dir=s --jobs=2 --threads=2 --json")
    code, out, err = command(*words, "--seeds=0-1")
    result = json.loads(out)
    assert (code, result["finished"], result["failed"], len(result["runs"])) == (0, 2, 0, 2)
    assert err.startswith("2 runs in s, 2 in parallel; all recipes are valid\n")
    commands = ("compare s", "plot s --out curves.png", "report s --out report.html")
    assert err.endswith("next: " + "\n      ".join(f"hetero_tf {words}" for words in commands) + "\n")
    code, out, err = command(*words, "--seeds=0-1,7")
    assert code == 7 and [run["state"] for run in json.loads(out)["runs"]] == ["skipped", "skipped", "failed"]
    assert err.endswith(
        "hetero_tf: s: 1 of 3 runs did not finish (digits-seed=7: no luck today); the same command retries them\n"
    )
    assert "/3  digits-seed=7  failed: no luck today" in (working_folder / "s" / "log.txt").read_text()


@pytest.mark.long
def test_sweep_recipes_can_use_plugin_modules(working_folder, command, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    (working_folder / "own_windows.py").write_text("def keep(size, count, round, client, seed):\n    return None\n")
    monkeypatch.setattr(registry, "_registered", {kind: {} for kind in registry.KINDS})
    monkeypatch.setattr(hardware, "import_quietly", lambda: None)
    words = ["sweep", "--recipe=digits", "--sweep=round.submodel=prefix,own_windows", "--set=rounds=1"]
    message = "hetero_tf: sweep of digits: --set round.submodel=own_windows: round.submodel.name: "
    assert command(*words)[2].startswith(message)
    # The fake program does not get the module.
    runs = json.loads(command(*words, "--plugin=own_windows", "--json")[1])["runs"]
    assert [(run["state"], run["problem"]) for run in runs] == [("finished", ""), ("failed", "ended with exit code 1")]
    del sys.modules["own_windows"]


def test_parts_have_every_nth_run(in_threads, working_folder, command):
    words = ["sweep", "--recipe=digits", "--seeds=0-4", "--set=rounds=1", "--run_dir=it's", "--quiet", "--json"]
    parts = [json.loads(command(*words, "--only", part, "--commands")[1])["commands"] for part in ("1/2", "2/2")]
    assert [list(part) for part in parts] == [
        [f"digits-seed={seed}" for seed in seeds] for seeds in ((0, 2, 4), (1, 3))
    ]
    assert [run["name"] for run in json.loads(command(*words, "--only=2/2")[1])["runs"]] == list(parts[1])


def test_commands_are_quoted_and_have_absolute_folders(working_folder, command):
    words = ["sweep", "--recipe=digits", "--seeds=1", "--set=levels.widths={a: 1, b: 0.5}"]
    code, out, err = command(*words, "--set=levels.mix=a-b", "--run_dir=it's", "--commands", "--threads=3")
    (line,) = out.splitlines()
    assert (code, err) == (0, "") and shlex.split(line) == [
        *("cd", str(working_folder), "&&", "hetero_tf", "--recipe=digits"),
        *(f"--run_dir={working_folder}/it's/digits-seed=1", "--set=levels.widths={a: 1, b: 0.5}"),
        *("--set=levels.mix=a-b", "--set=seed=1", "--threads=3"),
    ]
    assert sorted(os.listdir("it's")) == ["sweep.lock", "sweep.yaml"]


def test_flags_override_a_file(in_threads, working_folder, command):
    (working_folder / "mine.yaml").write_text("recipe: digits\nset: {rounds: 9}\ngrid: {levels.mix: [a, a-b]}\n")
    code, out, _ = command("sweep", "mine.yaml", "--set", "rounds=1")
    assert code == 0 and "round 1  " in out
    assert sorted(os.listdir("runs/sweep-mine")) == [
        *("digits-levels.mix=a", "digits-levels.mix=a-b"),
        *("log.txt", "sweep.lock", "sweep.yaml"),
    ]


def test_recipes_are_values_of_a_sweep(working_folder, command):
    code, out, _ = command("sweep", "--sweep", "recipe=methods/heterofl,methods/fedrolex", "--seeds=0-1", "--commands")
    assert code == 0 and re.findall(r"--recipe=methods/(\w+) .*sweep-recipes/\1-seed=(\d)", out) == [
        *(("heterofl", "0"), ("heterofl", "1"), ("fedrolex", "0"), ("fedrolex", "1"))
    ]


@pytest.mark.parametrize(("words", "sentence"), cases.of_words(__file__, "COMMANDS"))
def test_invalid_arguments_are_refused_before_runs_start(working_folder, command, words, sentence):
    code, _, err = command("sweep", *words)
    assert code == 2 and err.startswith("hetero_tf: " + sentence.removesuffix("...")) and not os.listdir(working_folder)


@pytest.mark.long
def test_killed_sweep_stops_its_runs_and_resumes(tmp_path):
    """The sweep in a separate process, with the fake program."""
    # Rounds of a second, so that the kill comes before the end of the first two runs.
    program, options = [sys.executable, "-c", PROGRAM_CODE], {"cwd": tmp_path, "env": programs.environment()}
    sweep = subprocess.Popen([*program, "1"], stderr=subprocess.PIPE, **options)

    def running():
        # A run removes its older checkpoints, so the newest one is read.
        newest = [checkpoints.numbers(path / "checkpoints")[:1] for path in tmp_path.glob("s/digits*")]
        return sum(numbers[0] >= 2 for numbers in newest if numbers) == 2

    programs.wait_for(running)
    sweep.kill()
    sweep.wait()
    sweep.stderr.close()
    programs.wait_for(lambda: all(RunFolder(path).holder is None for path in tmp_path.glob("s/digits*")))
    done = subprocess.run([*program, "0"], capture_output=True, **options)
    assert done.returncode == 0, done.stderr
    runs = json.loads(done.stdout)["runs"]
    assert [run["round"] for run in runs] == [6] * 4 and [run["went_on_after"] > 1 for run in runs] == [True] * 2 + [
        False
    ] * 2


@pytest.mark.long
def test_resumed_sweep_equals_separate_runs(tmp_path):
    """The real program: SIGKILL to the sweep in the middle of its first runs, then the same command."""
    recipe = programs.recipe_file(tmp_path, programs.RECIPE.replace("epochs: 1", "epochs: 40"))
    words = ["sweep", "--recipe", recipe, "--seeds", "0-1", "--jobs", "2", "--threads", "2", "--run_dir", "s", "--json"]
    options = {"cwd": tmp_path, "env": programs.environment()}
    options |= {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    sweep = subprocess.Popen([sys.executable, "-m", "hetero_tf", *map(str, words)], **options)
    programs.wait_for(lambda: list(tmp_path.glob("s/*/checkpoints/round-000001.npz")), 600)
    sweep.kill()
    sweep.wait()
    done = programs.command(*words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert any(run["went_on_after"] or run["state"] == "skipped" for run in json.loads(done.stdout)["runs"])
    for seed in (0, 1):
        alone = ["--recipe", recipe, "--set", f"seed={seed}", "--threads", "1", "--run_dir", f"alone{seed}"]
        assert programs.shared().run(*alone, cwd=tmp_path).code == 0
        together = programs.contents(tmp_path / "s" / f"small-seed={seed}")
        assert together == programs.contents(tmp_path / f"alone{seed}")


def test_sweep_folder_can_be_moved(in_threads, tmp_path):
    _, runs = sweep_of("0", rounds=1)
    train(tmp_path / "s", runs)
    shutil.move(tmp_path / "s", tmp_path / "t")
    assert train(tmp_path / "t", runs)[0][0].state == "skipped"


@pytest.mark.long
def test_two_sweeps_share_a_folder(tmp_path):
    """Two programs at once: each run is trained once, and the same command ends with all runs."""
    program, options = [sys.executable, "-c", PROGRAM_CODE], {"cwd": tmp_path, "env": programs.environment()}
    sweeps = [
        subprocess.Popen([*program, "0.2"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options) for _ in "ab"
    ]
    outputs = [sweep.communicate() for sweep in sweeps]
    # A sweep that ends before the runs of the other one has unfinished runs.
    assert {sweep.returncode for sweep in sweeps} <= {0, 7}, outputs
    results = [json.loads(output)["runs"] for output, _ in outputs]
    for states in zip(*([run["state"] for run in runs] for runs in results), strict=True):
        assert states.count("finished") == 1 and set(states) - {"finished"} <= {"skipped", "running elsewhere"}
    assert (
        all(run["state"] == "skipped" for run in results[0]) + all(run["state"] == "skipped" for run in results[1]) == 0
    )
    again = subprocess.run([*program, "0.2"], capture_output=True, **options)
    assert again.returncode == 0 and {run["state"] for run in json.loads(again.stdout)["runs"]} == {"skipped"}
