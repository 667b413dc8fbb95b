"""The command line: wrong words get one sentence and an exit code, and what it prints can be piped and parsed."""

import json
import os
import re
import subprocess
import sys

import cases
import programs
import pytest
from each import for_each
from refusals import raising, refusal

from hetero_tf.base import hardware, processes, registry
from hetero_tf.base.version import __version__
from hetero_tf.cli import commands, flags, main

R = "--recipe=small.yaml"
# Words => the sentence; with "..." at its end only its beginning is compared.
WRONG = [
    *cases.of_words(__file__, "COMMANDS"),
    (["--recipe=a\x1b[2Jb\x07\udcff.yaml"], "a\\x1b[2Jb\\x07\\udcff.yaml: unknown recipe; known: audio_tones..."),
    (["export", "--run_dir=begun", "--out=a\udcff"], "--out must be a printable UTF-8 path, because TensorFlow writes into it. Received: a\\udcff"),
    (["\x9btrain"], "unknown command '\\x9btrain'; did you mean 'train'?"),
]  # fmt: skip


VALUES = """state=last task=regression levels=all threads=1 jobs=2 top=2 worker=0 client=0 patience=9 deadline=9
quorum=0.5 over_selection=0.5 devices=2 local=2 export_version=3 port=0 batch=2 as=csv x=megabytes baseline=a columns=last
width=3 on=slurm reach=1 set=seed=1"""
VALUES = dict(word.split("=", 1) for word in VALUES.split())


@for_each(commands.COMMANDS)
def test_commands_accept_only_their_flags(command):
    defined = flags.define_flags()
    for flag in (name for name in defined if name != "h"):
        word = f"--{flag}" if defined[flag].boolean else f"--{flag}={VALUES.get(flag, 'x')}"
        if flag in (*commands.COMMANDS[command].flag_names, *commands.COMMON):
            assert flags.parse(["hetero_tf", command, word])[0] == command
            continue
        others = ", ".join(name for name, each in commands.COMMANDS.items() if flag in each.flag_names)
        message = f"--{flag} has no effect on {command}; it is a flag of {' and '.join(others.rsplit(', ', 1))}"
        assert refusal(flags.parse, ["hetero_tf", command, word]) == message


def test_a_flag_before_the_command_is_refused_too():
    assert refusal(flags.parse, ["hetero_tf", "--level=a", "list"]).startswith("--level has no effect on list; ")


DESCRIBE = "hetero_tf.cli.commands.results.describe_recipe"


def tree(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if "__pycache__" not in path.parts)


@pytest.fixture
def folder_of_runs(tmp_path, monkeypatch):
    """A current folder with a good recipe and some things that stand in the way."""
    programs.recipe_file(tmp_path)
    for name in ("foreign", "empty", "begun"):
        (tmp_path / name).mkdir()
    (tmp_path / "begun" / "recipe.yaml").write_text(programs.RECIPE)
    texts = {
        "afile": "x",
        "foreign/thesis.txt": "x",
        "bad.yaml": "name: [\n",
        "own_nothing.py": "x = 1\n",
        "own_raises.py": 'raise RuntimeError("no luck")\n',
        "own_syntax.py": "def f(:\n",
        "own_exit.py": "raise SystemExit(3)\n",
        "prefix.py": "def keep(size, count, round, client, seed):\n    return None\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delenv("HETERO_TF_DATA", raising=False)
    # These change the whole process, which here is that of the tests.
    monkeypatch.setattr(processes, "install_handlers", lambda *sentences: None)
    monkeypatch.setattr(hardware, "configure_threads", lambda threads: None)
    yield tmp_path
    for name in [name for name in sys.modules if name == "prefix" or name.startswith("own_")]:
        del sys.modules[name]


@pytest.mark.parametrize(("words", "sentence"), WRONG, ids=[" ".join(words) or "nothing" for words, _ in WRONG])
def test_invalid_arguments_are_reported(folder_of_runs, capsys, words, sentence):
    before, sentence = tree(folder_of_runs), sentence.replace("{here}", str(folder_of_runs))
    assert main.main(["hetero_tf", *words]) == 2
    out, err = capsys.readouterr()
    assert out == "" and "Traceback" not in err
    if sentence.endswith("..."):
        assert err.startswith("hetero_tf: " + sentence.removesuffix("..."))
    else:
        assert err == f"hetero_tf: {sentence}\n"
    assert tree(folder_of_runs) == before


def test_read_only_disk_exits_with_3(folder_of_runs, capsys, monkeypatch):
    monkeypatch.setattr("pathlib.Path.mkdir", raising(OSError(30, "Read-only file system")))
    assert main.main(["hetero_tf", R, "--run_dir=new"]) == 3
    assert capsys.readouterr().err == (
        "hetero_tf: new: could not create: Read-only file system; choose a folder that can be written\n"
    )


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (MemoryError("no room"), 4, "MemoryError: no room; out of memory; lower client.batch_size, "),
        (
            type("ResourceExhaustedError", (Exception,), {})("OOM when\nallocating"),
            4,
            "ResourceExhaustedError: OOM when allocating; out of memory; lower client.batch_size, ",
        ),
        (OSError(28, "No space left on device"), 3, "OSError: [Errno 28] No space left on device; check the disk"),
        (RecursionError("deep"), 1, "RecursionError: deep; this is a bug in hetero_tf; --debug shows the traceback"),
        (KeyError("surprise"), 1, "KeyError: 'surprise'; this is a bug in hetero_tf; --debug shows the traceback"),
    ],
)
def test_unexpected_errors_are_one_sentence(folder_of_runs, capsys, monkeypatch, error, code, text):
    monkeypatch.setattr("hetero_tf.cli.commands.training.train", raising(error))
    assert main.main(["hetero_tf", R]) == code
    err = capsys.readouterr().err
    assert err.startswith(f"hetero_tf: {text}") and err.count("\n") == 1
    assert main.main(["hetero_tf", R, "--debug"]) == code
    assert "Traceback" in capsys.readouterr().err


def test_unexpected_errors_name_the_plugins_that_may_cause_them(folder_of_runs, capsys, monkeypatch):
    monkeypatch.setattr(
        registry, "_registered", registry._registered | {"losses": {"mine": "hetero_tf.methods.losses.huber"}}
    )
    monkeypatch.setattr("hetero_tf.cli.commands.training.train", raising(KeyError("surprise")))
    assert main.main(["hetero_tf", R]) == 1
    assert capsys.readouterr().err == (
        "hetero_tf: KeyError: 'surprise'; a plug-in breaks its contract, which hetero_tf.testing.check_plugin tests: "
        "mine (losses); or this is a bug in hetero_tf; --debug shows the traceback\n"
    )


@pytest.mark.long
def test_training_names_a_plugin_that_reduces_over_its_rows(tmp_path):
    lines = (
        "import tensorflow as tf",
        "def update(weights, start, steps, key):",
        "    return weights * 0 + tf.reduce_mean(weights, 0)",
    )
    (tmp_path / "own_mean.py").write_text("\n".join(lines) + "\n")
    programs.recipe_file(tmp_path, programs.RECIPE.replace("sbn", "none"))
    words = ["--recipe", "small.yaml", "--plugin", "own_mean", "--set", "client.update=own_mean", "--set", "rounds=1"]
    run = programs.shared().run(*words, cwd=tmp_path)
    assert run.code == 0, run.err
    assert (
        "note: a plug-in violates the contract of its kind: own_mean (updates): batched clients must get the values of "
        "single ones; rows are some of a round's clients, and padding"
    ) in " ".join(run.out.split())


def test_errors_of_the_planning_thread_are_one_sentence(folder_of_runs, capsys, monkeypatch):
    monkeypatch.setattr("hetero_tf.run.simulated_rounds.plan_round", raising(KeyError("surprise")))
    monkeypatch.setattr("hetero_tf.run.simulated_rounds.SimulatedRounds.prepare", lambda rounds: None)
    assert main.main(["hetero_tf", R, "--run_dir=run"]) == 1
    err = capsys.readouterr().err
    assert err == "hetero_tf: KeyError: 'surprise'; this is a bug in hetero_tf; --debug shows the traceback\n"


def test_a_line_end_in_a_name_begins_no_message(folder_of_runs, capsys):
    (folder_of_runs / "damaged\nhetero_tf: done").mkdir()
    (folder_of_runs / "damaged\nhetero_tf: done" / "recipe.yaml").write_text("name: [")
    assert main.main(["hetero_tf", "--recipe=small.yaml\nhetero_tf: done"]) == 2
    assert main.main(["hetero_tf", "list", "."]) == 0
    out, err = capsys.readouterr()
    assert r"damaged\nhetero_tf: done" in out and "\nhetero_tf: done" not in out + err


def test_python_m_ignores_the_working_folder(tmp_path):
    """As far as it can: Python itself has looked there for the package."""
    for name in ("absl", "yaml", "numpy", "difflib"):
        (tmp_path / f"{name}.py").write_text("open('RUN', 'a').write(__name__)")
    done = programs.command("--recipe=missing", cwd=tmp_path)
    assert (done.returncode, done.stderr[:35]) == (2, "hetero_tf: missing: unknown recipe;")
    assert not (tmp_path / "RUN").exists()


@pytest.mark.parametrize("words", [["--version"], ["--recipe=missing"], [R, "--threads=x"]])
@pytest.mark.parametrize("closed", [("stdout",), ("stderr",), ("stdin", "stdout", "stderr")])
def test_closed_streams_do_not_matter(folder_of_runs, monkeypatch, words, closed):
    for name in closed:
        monkeypatch.setattr(sys, name, None)
    assert main.main(["hetero_tf", *words]) == (0 if words == ["--version"] else 2)


def test_unread_errors_keep_the_exit_code(folder_of_runs):
    reading, writing = os.pipe()
    os.close(reading)
    done = programs.command("--recipe=missing", capture_output=False, stdout=subprocess.DEVNULL, stderr=writing)
    os.close(writing)
    assert done.returncode == 2


@pytest.mark.long
@pytest.mark.parametrize("closed", ["", ">&- 2>&- <&-"])
def test_unprintable_output_does_not_stop_the_work(tmp_path, closed):
    """Folder names are not text, and the output accepts only ASCII or is closed."""
    folder = tmp_path / os.fsdecode(b"\xff\xc3\xa9\x1b")
    folder.mkdir()
    recipe = programs.recipe_file(folder)
    env = programs.environment(LC_ALL="C", PYTHONIOENCODING="ascii", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    line = f'"$@" --set rounds=1 {closed}'
    program = (sys.executable, "-m", "hetero_tf") if closed else programs.STUB
    words = ["sh", "-c", line, "sh", *program, "--recipe", recipe, "--run_dir", folder / "run"]
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=600)
    assert (done.returncode, done.stderr) == (0, "")
    log = (folder / "run" / "log.txt").read_text(encoding="utf-8")
    assert "done in" in log and "\x1b" not in log + done.stdout
    assert len((folder / "run" / "metrics.jsonl").open().readlines()) == 1
    assert ("\\udcff" in done.stdout) == (not closed)


def test_version_and_help_which_has_every_command_in_one_group(capsys, monkeypatch):
    monkeypatch.setattr(processes, "install_handlers", lambda *sentences: None)
    assert main.main(["hetero_tf", "--version"]) == 0
    assert capsys.readouterr().out == f"{__version__}\n"
    for words in (["--help"], ["-h"]):
        assert main.main(["hetero_tf", *words]) == 0
        out = capsys.readouterr().out
        assert max(map(len, out.splitlines())) < 80
        for name, command in commands.COMMANDS.items():
            assert re.search(rf"\n  {re.escape(command.usage)}\s+{re.escape(command.summary)}\n", out)
            assert command.usage.startswith("--recipe" if name == "train" else name)
    grouped = [name for names in commands.GROUPS.values() for name in names.split()]
    assert sorted(grouped) == sorted(commands.COMMANDS)
    assert flags.render_help(None).count("\n\n") == len(commands.GROUPS) + 1


@for_each(commands.COMMANDS)
def test_help_lists_exactly_the_flags_of_the_command(command, capsys, monkeypatch):
    monkeypatch.setattr(processes, "install_handlers", lambda *sentences: None)
    assert main.main(["hetero_tf", command, "--help"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"hetero_tf {commands.COMMANDS[command].usage}\n")
    shown = {line.split()[0].removeprefix("--") for line in out.splitlines() if line.startswith("  --")}
    assert shown == {*commands.COMMANDS[command].flag_names, *commands.COMMON}
    assert max(map(len, out.splitlines())) < 80
    # Each flag says its default, or that it has none.
    meanings = [flags.describe_flag(command, name) for name in commands.COMMANDS[command].flag_names]
    assert [text for text in meanings if not re.search("; (default|required) ?", text)] == []
    assert set(commands.COMMANDS[command].meanings) <= set(commands.COMMANDS[command].flag_names)


def test_shared_flags_have_a_meaning_and_default_per_command():
    def meaning(command, name):
        entry = flags.render_help(command).partition(f"\n  --{name} ")[2]
        return " ".join(re.split(r"\n(?! {27})", entry)[0].split())

    cores = hardware.core_count()
    assert meaning("serve", "threads") == f"requests to compute at the same time; default {cores}"
    assert meaning("train", "threads") == f"clients to train at the same time; default {cores}"
    assert meaning("compare", "out") == "output file of the table; default standard output"
    assert meaning("export", "out") == "folder to write into; default RUN_DIR/export"
    assert (
        meaning("flower", "patience") == "server: seconds after which a request without a response is lost; default 600"
    )
    assert meaning("evaluate", "state") == "<best|last>: checkpoint to use; default best"
    assert meaning("train", "allow_other_machine").endswith("; default false")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A finished run, made by the real command line with TensorFlow's own settings for its messages."""
    folder = tmp_path_factory.mktemp("cli")
    recipe = programs.recipe_file(folder)
    quiet = programs.environment(TF_CPP_MIN_LOG_LEVEL=None)
    done = programs.command("--recipe", recipe, "--run_dir", folder / "run", "--json", "--set", "rounds=2", env=quiet)
    (folder / "out").write_text(done.stdout)
    (folder / "err").write_text(done.stderr)
    assert done.returncode == 0, done.stderr
    return folder


def test_json_is_one_line_and_messages_go_to_standard_error(folder):
    line, rest = (folder / "out").read_text().split("\n", 1)
    summary = json.loads(line)
    assert rest == "" and summary["rounds"] == 2 and summary["last"]["round"] == 2
    assert summary["stand_in_for"] is None and summary["data"] == "synthetic images (seed 0)"
    assert {"run_dir", "best", "seconds"} < set(summary)
    engine = {"clients_at_once": {"a": 1, "b": 1}, "compiled": False, "parallel": hardware.core_count(), "threads": 1}
    engine |= {"precision": "float32", "device": "cpu", "replicas": 1}
    assert summary["engine"] == engine | {name: [] for name in ("by_taps", "by_winograd", "by_function", "reasons")}
    first = summary["first_round_s"]
    assert list(first) == ["start", "data", "build", "trace", "round", "total"] and min(first.values()) >= 0
    assert first["total"] == pytest.approx(sum(first.values()) - first["total"], abs=0.04)
    # TensorFlow was imported in it.
    assert first["start"] > 0.5


def test_a_run_prints_plain_lines_and_nothing_of_tensorflow(folder):
    text = (folder / "err").read_text()
    assert "\r" not in text and "\x1b" not in text
    lines = text.splitlines()
    firsts = [line.split(" ")[0] for line in lines]
    shown = "data: pictures: classes: clients: note: engine: ready round round best: done next: "
    assert " ".join(firsts) == shown
    parts = ", ".join(rf"{name} [\d.]+ s" for name in ("start", "data", "build", "trace", "first round"))
    assert re.fullmatch(rf"ready in [\d.]+ s: {parts}", lines[6])
    assert re.fullmatch(r"round 1/2  acc [\d. ]{4} %   loss [\d.]{1,6}", lines[7])
    assert re.fullmatch(r"round 2/2  acc [\d. ]{4} %   loss [\d.]{1,6}", lines[8])
    # Three numbers and two next steps.
    assert re.fullmatch(r"best: acc [\d.]+ %  traffic [\d.]+ [KM]?B", lines[9])
    assert re.fullmatch(r"done in [\d.]+ s; results: \S+run", lines[10])
    assert [line[6:].split()[1] for line in lines[11:]] == ["report", "export"]
    mark, *logged = (folder / "run" / "log.txt").read_text().splitlines()
    assert re.search(r" --recipe \S*small.yaml --run_dir \S*run --json --set rounds=2  \(starts\)$", mark)
    logged = [line[9:] for line in logged]
    assert logged[:7] + logged[12:] == lines[:7] + lines[10:]
    assert re.fullmatch(r"round 1/2  global_accuracy \S+  loss .*  a\d b\d", logged[7])
    assert [line.split(" ")[0] for line in logged[9:12]] == ["time:", "last:", "best:"]


def test_closed_pipe_is_not_a_crash(folder):
    """`| head -1`: the run continues without a reader and ends quietly."""
    os.mkfifo(folder / "pipe")
    words = ["--recipe", folder / "small.yaml", "--run_dir", folder / "stub", "--set", "rounds=3"]
    run = programs.shared().start(*words, stub=True, out=folder / "pipe")
    with open(folder / "pipe") as pipe:
        assert pipe.readline() == "data: synthetic images (seed 0)\n"
    assert run.wait() == 0 and run.err == ""
    assert [json.loads(line)["round"] for line in (folder / "stub" / "metrics.jsonl").open()] == [1, 2, 3]


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_full_standard_output_is_a_disk_problem(unbuffered):
    with open("/dev/full", "w") as full:
        options = {"stderr": subprocess.PIPE, "env": programs.environment(PYTHONUNBUFFERED=unbuffered)}
        done = programs.command("--version", capture_output=False, stdout=full, **options)
    assert done.returncode == 3
    assert done.stderr.startswith("hetero_tf: OSError: [Errno 28] No space left on device; ")
    assert done.stderr.count("\n") == 1


def test_evaluate_matches_the_training(folder):
    run = programs.shared().run("evaluate", "--run_dir", folder / "run", "--state", "last", "--json")
    assert run.code == 0, run.err
    result = json.loads(run.out)
    row = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").open()][result["round"] - 1]
    for name in ("global_accuracy", "global_loss", "local_accuracy", "local_loss"):
        assert result[name] == row[name]
    assert result["data"] == "synthetic images (seed 0)" and run.err.startswith(f"last: round {result['round']}  ")
    accuracy = result["baseline"]["global_accuracy"]
    assert f"for comparison: global_accuracy {accuracy:.4g} by always predicting " in run.err


@pytest.fixture(scope="module")
def all_levels(folder):
    """The result of `evaluate` for all levels, and its messages."""
    run = programs.shared().run("evaluate", "--run_dir", folder / "run", "--levels", "all", "--json")
    assert run.code == 0, run.err
    return json.loads(run.out), run.err


def test_evaluate_measures_all_levels_on_request(all_levels):
    result, messages = all_levels
    assert {"level_accuracy_a", "level_accuracy_b", "level_loss_a", "level_loss_b"} <= set(result)
    assert result["level_accuracy_a"] == result["global_accuracy"] and result["level_loss_a"] != result["level_loss_b"]
    assert f"level_accuracy_b {result['level_accuracy_b']:.4g}" in messages and "level_loss" not in messages


@pytest.mark.long
def test_exported_level_contains_its_metrics(folder, all_levels, tmp_path):
    measured, _ = all_levels
    for level in ("b", "a"):
        words = ["export", "--run_dir", folder / "run", "--level", level, "--out", tmp_path]
        run = programs.shared().run(*words)
        assert run.code == 0, run.err
        loss, accuracy = (measured[f"level_{name}_{level}"] for name in ("loss", "accuracy"))
        export_info = json.loads((tmp_path / level / "1" / "export.json").read_text())
        assert export_info["measured"] == {
            "loss": pytest.approx(loss, rel=1e-5),
            "accuracy": pytest.approx(accuracy, rel=1e-6),
            "on": "the whole test set, by these files",
        }
        assert (export_info["level"], export_info["state"], export_info["round"]) == (level, "best", measured["round"])
        assert ({"last", "best"} <= export_info.keys()) == (level == "a")
        assert f": the model of level {level}, loss {loss:.4g}  accuracy {accuracy:.4g} on the test set" in run.out


def documented_keys(command):
    """The keys that a row of AGENTS.md names, per sentence of it."""
    text = (programs.ROOT / "AGENTS.md").read_text("utf-8")
    (cell,) = re.findall(rf"^\| {command} \| (.*) \|$", text, re.MULTILINE)
    return [re.findall("`([^`]+)`", part) for part in re.split("; of a |, and of a ", cell)]


def test_documented_keys_are_those_of_the_json_lines(folder):
    def result(*words):
        run = programs.shared().run(*words, "--json", cwd=folder)
        assert run.code == 0, run.err
        return json.loads(run.out)

    (keys,) = documented_keys("a run")
    assert keys == list(json.loads((folder / "out").read_text()))
    (keys,) = documented_keys("`describe`")
    assert keys == list(result("describe", "--recipe", "small.yaml"))
    about, of_a_run = documented_keys("`list`")
    assert of_a_run == list(result("list", folder / "run")["runs"][0]) and about == ["recipes", "DIR", "runs"]
    of_a_group, of_a_metric = documented_keys("`compare`")
    (row,) = result("compare", folder / "run")
    forms = {name.replace("METRIC", "global_accuracy") for name in of_a_metric}
    assert {*of_a_group} | forms == row.keys()


def test_fleet_flag_comes_before_the_changes_of_its_keys(folder_of_runs, monkeypatch):
    fleets = []
    monkeypatch.setattr(DESCRIBE, lambda recipe, flags, console: fleets.append(recipe.fleet))
    assert main.main(["hetero_tf", "describe", R, "--set=fleet.spread=0.5", "--fleet=uniform"]) == 0
    assert [list(fleet.devices) for fleet in fleets] == [["phone"]] and fleets[0].spread == 0.5


@pytest.mark.long
def test_last_good_state_is_usable_after_non_finite_weights(tmp_path):
    text = programs.RECIPE + "schedule: {name: steps, at: [2], factor: 1.0e+9}\n"
    path = programs.recipe_file(tmp_path, text.replace("epochs: 1", "epochs: 20"))
    run = programs.shared().run("--recipe", path, "--run_dir", "run", "--json", cwd=tmp_path, stub=True)
    assert run.code == 6 and run.out == "" and "Traceback" not in run.err
    assert run.err.splitlines()[-1].startswith("hetero_tf: round 3: 2 of 2 clients returned NaN or infinity")
    used = [
        programs.shared().run(command, "--run_dir", "run", "--state", "last", "--json", cwd=tmp_path)
        for command in ("evaluate", "export")
    ]
    assert [run.code for run in used] == [0, 0], used[1].err
    assert [json.loads(run.out)["round"] for run in used] == [2, 2]
    about = json.loads((tmp_path / "run" / "export" / "a" / "1" / "export.json").read_text())
    assert about["state"] == "last" and about["last"]["round"] == 2 and "environment" not in about


def test_describe_needs_no_run_and_draws_the_split(tmp_path, monkeypatch):
    programs.recipe_file(tmp_path)
    run = programs.shared().run("describe", "--recipe", "small.yaml", "--json", cwd=tmp_path)
    assert run.code == 0, run.err
    assert json.loads(run.out) and os.listdir(tmp_path) == ["small.yaml"]
    run = programs.shared().run("describe", "--recipe", "small.yaml", "--draw", "split.png", cwd=tmp_path)
    assert run.code == 0, run.err
    assert "drew the split into split.png: one column for each client" in run.out
    assert (tmp_path / "split.png").read_bytes().startswith(b"\x89PNG")
    run = programs.shared().run("describe", "--recipe", "small.yaml", "--draw", "no/split.png", cwd=tmp_path)
    assert run.code == 3
    assert run.err.startswith(
        "hetero_tf: no/split.png: could not write: No such file or directory; its folder does not"
    )


def test_export_of_an_unknown_level_writes_nothing(folder):
    run = programs.shared().run("export", "--run_dir", folder / "run", "--level", "z")
    assert (run.code, run.err) == (2, "hetero_tf: --level z: no such level; known: a, all, b\n")
    assert not (folder / "run" / "export").exists()
