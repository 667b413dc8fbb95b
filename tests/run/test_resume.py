"""A run continues with the devices and the plug-ins with which it started."""

import programs
import pytest
import runs

from hetero_tf.base import registry
from hetero_tf.base.errors import InputError
from hetero_tf.run.experiment import Settings, build_process
from hetero_tf.runs.run_folder import RunFolder

RECIPE = programs.RECIPE.replace("sbn", "none")
train_stub = runs.train_stub


TRACE = "seconds_per_step,dropout\n" + "".join(f"{client / 10 + 0.1},0.4\n" for client in range(10))


def test_a_run_keeps_the_trace_of_its_fleet(train_stub, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    trace = tmp_path / "devices.csv"
    trace.write_text(TRACE)
    started = ("fleet={trace: devices.csv}", "round.policy={name: over_selection, factor: 1.5}")
    train_stub(tmp_path / "whole", RECIPE, *started, "rounds=4")
    train_stub(tmp_path / "run", RECIPE, *started, "rounds=2")
    trace.write_text(TRACE.replace("0.4", "0.0"))
    with pytest.raises(InputError, match=r"devices.csv: is not the trace with which .*run started; put the original"):
        train_stub(tmp_path / "run", RECIPE, *started, "rounds=4")
    trace.unlink()
    train_stub(tmp_path / "run", RECIPE, *started, "rounds=4")
    assert runs.rows(tmp_path / "run") == runs.rows(tmp_path / "whole")
    run = RunFolder(tmp_path / "run")
    assert run.trace.read_text() == TRACE
    process = build_process(runs.recipe.loads(run.read_recipe()), Settings(run.path, None, 1, False, ""), run)
    assert process.clock is not None
    run.trace.write_text("seconds_per_step\n" + "1\n" * 10)
    with pytest.raises(InputError, match=r"fleet_trace.csv: is not the trace with which"):
        train_stub(tmp_path / "run", RECIPE, *started, "rounds=4")


def test_a_changed_plugin_file_is_a_difference(train_stub, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(registry, "_registered", {kind: {} for kind in registry.KINDS})
    source = tmp_path / "halved_prefix.py"
    keep = "def keep(size, count, round, client, seed):\n    return tf.range(count)\n"
    source.write_text(f"import tensorflow as tf\n\n\n{keep}")
    registry.register_plugin("halved_prefix")
    train_stub(tmp_path / "run", RECIPE, "round.submodel=halved_prefix", "rounds=1")
    source.write_text(source.read_text().replace("tf.range(count)", "size - 1 - tf.range(count)"))
    with pytest.raises(InputError, match=r"settings.plugin halved_prefix was '\w{16}', is '\w{16}'"):
        train_stub(tmp_path / "run", RECIPE, "round.submodel=halved_prefix", "rounds=2")
