"""Preparation of TensorFlow, with a stand-in that says what was done to it; and the report of how clients are computed."""

import os
import sys
from types import SimpleNamespace

import programs
import pytest
from refusals import refusal

import hetero_tf
from hetero_tf.base import hardware
from hetero_tf.base.replicas import Replicas
from hetero_tf.rounds.engine import Engine, report

# It writes to the descriptor itself, as a library in C does, and counts as TensorFlow from its name.
TENSORFLOW = """
import gc, os
os.write(2, b"noise of the start")
collected, plots = gc.isenabled(), True
try:
    import matplotlib
except ImportError:
    plots = False
class config:
    def list_physical_devices(kind=None):
        os.write(2, b"noise of the devices")
        return []
"""


@pytest.fixture
def run(tmp_path):
    """`lines of Python -> what they print` in a process that finds the stand-in."""
    (tmp_path / "tensorflow.py").write_text(TENSORFLOW)
    (tmp_path / "matplotlib.py").touch()
    path = f"{tmp_path}:{programs.ROOT}"

    def start(*lines):
        script = "\n".join(["import gc, os, sys", "from hetero_tf.base import hardware", *lines])
        done = programs.python(script, env=programs.environment(PYTHONPATH=path))
        assert done.returncode == 0, done.stderr
        return done.stdout.split(), done.stderr

    return start


@pytest.mark.parametrize("keras_is_imported", [False, True])
def test_other_backends_of_keras_and_channels_first_are_refused(monkeypatch, keras_is_imported):
    settings = {"backend": "torch", "image_data_format": "channels_last"}
    keras = SimpleNamespace(config=SimpleNamespace(**{name: lambda name=name: settings[name] for name in settings}))
    monkeypatch.setitem(sys.modules, "keras", keras if keras_is_imported else None)
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    received = "torch" if keras_is_imported else "jax"
    for entry in (hetero_tf.learning_process, hetero_tf.static_norms, hetero_tf.load_model, hetero_tf.load_run):
        assert refusal(entry, "digits").endswith(f"remove the variable. Received: KERAS_BACKEND={received}")
    assert refusal(hardware.import_quietly).startswith("hetero_tf needs the backend `tensorflow` of Keras; set the")
    settings |= {"backend": "tensorflow", "image_data_format": "channels_first"}
    if keras_is_imported:
        assert refusal(hetero_tf.learning_process, "digits").endswith("in keras.json. Received: channels_first")


def test_import_is_quiet_hides_matplotlib_disables_the_collector_and_freezes_objects(run):
    printed, err = run(
        "hardware.import_quietly()",
        "os.write(2, b'mine')",
        "import matplotlib, tensorflow",
        "first = gc.get_freeze_count()",
        "hardware.import_quietly()",
        "print(tensorflow.collected, tensorflow.plots, gc.isenabled(), first > 0, gc.get_freeze_count() == first)",
    )
    assert printed == ["False", "False", "True", "True", "True"] and err == "mine"


def test_failed_import_restores_the_state(run, tmp_path):
    (tmp_path / "tensorflow.py").write_text("raise ImportError('no such processor')")
    printed, err = run(
        "try:",
        "    hardware.import_quietly()",
        "except ImportError as error:",
        "    print(str(error).replace(' ', '_'), gc.isenabled(), gc.get_freeze_count())",
        "os.write(2, b'mine')",
    )
    assert printed == ["no_such_processor", "True", "0"] and err == "mine"


CGROUPS = {
    "none": ({}, None),
    "version 2": ({"proc/self/cgroup": "0::/job/mine\n", "sys/fs/cgroup/job/memory.max": "4096"}, 4096),
    "version 2, of the container": ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "8192"}, 8192),
    "version 2, no limit": ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max"}, None),
    "version 1": (
        {
            "proc/self/cgroup": "3:cpu:/\n2:memory,pids:/mine\n",
            "sys/fs/cgroup/memory/mine/memory.limit_in_bytes": "9000",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
        },
        9000,
    ),
}


@pytest.mark.parametrize("files, limit", CGROUPS.values(), ids=CGROUPS)
def test_memory_limit_includes_control_groups(tmp_path, files, limit):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert hardware.memory_limit(tmp_path) == (machine if limit is None else limit)


def test_engine_report_is_plain_and_names_every_level():
    stacks = (SimpleNamespace(clients=1, models=()), SimpleNamespace(clients=5, models=()))
    recipe = SimpleNamespace(levels=SimpleNamespace(names=("a", "e", "f")), precision="float64")
    family = SimpleNamespace(recipe=recipe, submodel_of=(0, 1, 1))
    assert report(Engine(False, ("level a: why",), Replicas(3)), stacks, family) == {
        "clients_at_once": {"a": 1, "e": 5, "f": 5},
        "by_taps": [],
        "by_winograd": [],
        "by_function": [],
        "reasons": ["level a: why"],
        "compiled": False,
        "parallel": 3,
        "threads": 1,
        "precision": "float64",
        "device": hardware.device_type(),
        "replicas": 1,
    }


@pytest.mark.parametrize("device, skips", [("cpu", True), ("gpu", False)])
def test_graph_passes_are_skipped_without_a_gpu(monkeypatch, device, skips):
    options = {}
    monkeypatch.setattr(hardware, "device_type", lambda: device)
    monkeypatch.setattr("tensorflow.config.optimizer.set_experimental_options", options.update)
    hardware.skip_graph_passes()
    assert options == (dict.fromkeys(hardware.SKIPPED_PASSES, False) if skips else {})
