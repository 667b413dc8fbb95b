"""A plugin of pytest: which tests run, and how many operations they may trace.

A test file belongs to one layer, from the cheapest to the dearest:
    pure        without TensorFlow in the process, also while tests are collected
    math        eager arithmetic and small graphs
    graph       compiled rounds
    programs    whole commands, in this process or started by it
    export      exported models: written, converted, served

Options:
    --layer NAME,...   only the files of some layers
    --changed [REV]    only the files that can see what differs from a revision
    --all              also the tests marked `long`
    --part I/N         only the long tests of part I of N
    --examples N       the number of examples of each property test, drawn anew in each run
"""

import collections
import gc
import json
import os
import sys
import zlib

import import_graph
import pytest
import shared_models
import traces

LAYERS = ("pure", "math", "graph", "programs", "export")
# Layers with long files run first, so that no core is idle at the end.
ORDER = (None, "graph", "export", "programs", "math", "pure")
# The operations that the quick tests of a layer may trace, and those of one test.
LIMITS = json.loads((import_graph.TESTS / "operations.json").read_text())
# The layer of each folder of tests, and of files with another layer than their folder.
FOLDERS = {
    "pure": "base data planning project recipe reports runs",
    "math": "contracts layers models testing",
    "graph": "devices evaluation methods parity recipes rounds starter",
    "programs": "cli faults properties run sweeps workers",
    "export": "export",
}
FILES = {
    "pure": "devices/test_calibration devices/test_waiting methods/test_budgets sweeps/test_definition",
    "math": "base/test_graph_random base/test_hardware base/test_picture_decoding base/test_registry "
    "base/test_sound_files base/test_written_gradient data/test_audio data/test_codecs data/test_decoded "
    "data/test_folder data/test_in_memory data/test_parquet data/test_picture_files data/test_picture_masks "
    "data/test_table_dataset data/test_tfds data/test_tiny_imagenet planning/test_device_table planning/test_devices "
    "planning/test_plan planning/test_selection planning/test_timing recipe/test_fit "
    "recipe/test_fleet_files recipe/test_geometry recipe/test_schema reports/test_events",
    "graph": "base/test_metrics data/test_disk_array planning/test_asynchronous "
    "reports/test_describe reports/test_describe_loads reports/test_fleet_loads "
    "reports/test_fleet_times run/test_fine_tuning run/test_graph_constants run/test_learning_process "
    "run/test_notes run/test_portable_round run/test_precision "
    "run/test_selected_rounds run/test_stub_rounds run/test_task_process runs/test_overview "
    "runs/test_timings test_reference",
    "programs": "project/test_readme project/test_setup project/test_similarity project/test_suite recipe/test_naming "
    "runs/test_trackers",
    "export": "contracts/test_formats",
}
LAYER_OF = {name: layer for table in (FOLDERS, FILES) for layer, names in table.items() for name in names.split()}
IMPORTS_TENSORFLOW = "it imported TensorFlow: move it to a file of another layer, see tests/support/suite.py"
STARTED, HAD_TENSORFLOW = pytest.StashKey[int](), pytest.StashKey[bool]()
TRACED, SELECTED = pytest.StashKey[collections.Counter](), pytest.StashKey[set]()


def layer_of(path):
    """The layer of a test file; None if it has none."""
    name = path.relative_to(import_graph.TESTS).with_suffix("")
    return LAYER_OF.get(name.as_posix(), LAYER_OF.get(name.parts[0]))


def part_of(item, count):
    """The part of `count`, from 1 on, of a long test: that of its file.

    The pages of the project are cases of two files, and each takes minutes, so these tests have parts of their own.
    """
    has_pages = item.path.parent.name == "project"
    name = item.nodeid if has_pages else item.path.relative_to(import_graph.TESTS).as_posix()
    return zlib.crc32(name.encode()) % count + 1


def _layers(text):
    layers = text.split(",")
    if not set(layers) <= set(LAYERS):
        raise ValueError(text)
    return layers


def _part(text):
    part, count = map(int, text.split("/"))
    if not 1 <= part <= count:
        raise ValueError(text)
    return part, count


def pytest_addoption(parser):
    """Add the options that select tests."""
    group = parser.getgroup("selection of tests")
    group.addoption(
        "--layer", type=_layers, default=LAYERS, help=f"only layers, such as pure,math: {', '.join(LAYERS)}"
    )
    group.addoption("--changed", nargs="?", const="HEAD", metavar="REVISION", help="only what sees a change since then")
    group.addoption("--all", action="store_true", help="also run the tests marked `long`")
    group.addoption("--examples", type=int, metavar="N", help="random examples of each property test, see BUILD.md")
    group.addoption("--part", type=_part, metavar="I/N", help="run only the long tests of a part, such as 2/8")


def pytest_configure(config):
    """Find the test files that a change can reach; without the long tests, compute without oneDNN.

    TensorFlow rewrites each graph for oneDNN, which a tiny round does not repay.
    """
    config.stash[TRACED] = collections.Counter()
    if not (config.getoption("--all") or config.getoption("--part")):
        os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
    revision = config.getoption("--changed")
    if hasattr(config, "workerinput"):
        names = config.workerinput.get("selected")
        config.stash[SELECTED] = None if names is None else {import_graph.ROOT / name for name in names}
    elif revision:
        changed = import_graph.changed_files(revision)
        if changed is None:
            raise pytest.UsageError(f"--changed: git knows no revision {revision!r} here")
        config.stash[SELECTED] = set(import_graph.reached_tests(changed))
    else:
        config.stash[SELECTED] = None


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node):
    """Send the selected files to a process of xdist."""
    selected = node.config.stash[SELECTED]
    if selected is not None:
        node.workerinput["selected"] = [path.relative_to(import_graph.ROOT).as_posix() for path in selected]


def pytest_ignore_collect(collection_path, config):
    """Leave out files of other layers before they are imported."""
    if not collection_path.match("test_*.py") or not collection_path.is_relative_to(import_graph.TESTS):
        return None
    selected = config.stash[SELECTED]
    is_selected = selected is None or collection_path in selected
    return None if is_selected and layer_of(collection_path) in (None, *config.getoption("--layer")) else True


def pytest_collection_modifyitems(config, items):
    """Skip those that are not selected, and sort the others."""
    items.sort(key=lambda item: ORDER.index(layer_of(item.path)))
    part, hidden = config.getoption("--part"), os.environ["CUDA_VISIBLE_DEVICES"] in ("", "-1")
    deselected = [item for item in items if part and not _is_in_part(item, *part)]
    if deselected:
        config.hook.pytest_deselected(items=deselected)
        items[:] = [item for item in items if _is_in_part(item, *part)]
    reasons = {
        "long": None if part or config.getoption("--all") else "long test: run it with --all",
        "gpu": "CUDA_VISIBLE_DEVICES hides the GPU" if hidden else None,
    }
    for item in items:
        for name, reason in reasons.items():
            if reason and item.get_closest_marker(name):
                item.add_marker(pytest.mark.skip(reason=reason))


def _is_in_part(item, part, count):
    return item.get_closest_marker("long") is not None and part_of(item, count) == part


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    """Fail a file of the layer pure that imports TensorFlow."""
    had_tensorflow = "tensorflow" in sys.modules
    report = yield
    if _is_pure(collector.config) and report.passed and not had_tensorflow and "tensorflow" in sys.modules:
        report.outcome, report.longrepr = "failed", IMPORTS_TENSORFLOW
    return report


def pytest_collection_finish():
    """Count what tests trace, not what their modules trace when they are imported."""
    traces.install()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Note how many operations were traced before."""
    traces.install()
    shared_models.install()
    item.stash[STARTED] = traces.count()
    item.stash[HAD_TENSORFLOW] = "tensorflow" in sys.modules


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Fail a quick test that traced too many operations, or imported TensorFlow in the process of the layer pure."""
    report = yield
    if call.when == "teardown" and report.passed and not item.get_closest_marker("changed"):
        count = traces.count() - item.stash[STARTED]
        item.config.stash[TRACED][layer_of(item.path) or "other"] += count
        reason = _reason_to_fail(item, count)
        if reason:
            report.outcome, report.longrepr = "failed", reason
    return report


def _reason_to_fail(item, count):
    if item.get_closest_marker("long"):
        return None
    if count > LIMITS["test"]:
        return (
            f"the test traced {count:,} operations, more than {LIMITS['test']:,}: share a trace, use a smaller model or "
            "fewer levels, or mark the test `long`"
        )
    if _is_pure(item.config) and "tensorflow" in sys.modules and not item.stash[HAD_TENSORFLOW]:
        return IMPORTS_TENSORFLOW
    return None


def _is_pure(config):
    return list(config.getoption("--layer")) == ["pure"]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    """Add the operations of a process of xdist."""
    node.config.stash[TRACED].update(getattr(node, "workeroutput", {}).get("operations", {}))


def pytest_sessionfinish(session, exitstatus):
    """Fail if the quick tests of a layer traced too many operations."""
    # pytest collects several times at its end, over all objects that TensorFlow has made.
    gc.freeze()
    config, counts = session.config, session.config.stash[TRACED]
    if hasattr(config, "workeroutput"):
        config.workeroutput["operations"] = dict(counts)
    elif exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and (
        config.getoption("--part") or config.getoption("--changed")
    ):
        session.exitstatus = pytest.ExitCode.OK
    elif exitstatus == pytest.ExitCode.OK and _over_limit(config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _over_limit(config):
    """The layers whose quick tests traced more operations than tests/operations.json allows."""
    if config.getoption("--all") or config.getoption("--part"):
        return []
    return [layer for layer, count in config.stash[TRACED].items() if count > LIMITS.get(layer, 0)]


def pytest_terminal_summary(terminalreporter, config):
    """Print the operations that each layer traced."""
    counts = config.stash[TRACED]
    rows = [
        f"{layer} {counts[layer]:,} (limit {LIMITS.get(layer, 0):,})" for layer in (*LAYERS, "other") if counts[layer]
    ]
    if rows:
        terminalreporter.write_line(f"traced operations: {', '.join(rows)}; all {counts.total():,}")
    for layer in _over_limit(config):
        terminalreporter.write_line(
            f"the tests of the layer {layer} trace too much, see tests/operations.json", red=True
        )
