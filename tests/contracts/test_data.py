"""Contract of every loader in the package; a new module is tested automatically."""

from pathlib import Path

import folders
import pytest

from hetero_tf import data
from hetero_tf.base import registry
from hetero_tf.base.errors import InputError
from hetero_tf.recipe.schema import Plugin
from hetero_tf.testing import plugin_checks

# Loaders whose data cannot be generated quickly: they are tested with their fallback.
STANDS_IN = {"tfds": ({"dataset": "mnist", "download": False}, "digits")}


# `from_python` has no data of its own.
@pytest.fixture(params=[name for name in registry.names("data") if name != "from_python"])
def name(request):
    return request.param


@pytest.fixture
def options(name):
    return STANDS_IN[name][0] if name in STANDS_IN else (folders.loader_case(name) or (None, {}))[1]


def test_a_plugin_keeps_the_contract(name, options, tmp_path):
    if case := folders.loader_case(name):
        case[0](tmp_path)
    checks = plugin_checks("data", name, options, data_dir=tmp_path)
    for check in checks[:-1] if name in STANDS_IN else checks:
        check()


def test_a_missing_folder_is_reported_unless_unused(name, options):
    try:
        dataset = data.load(Plugin(name, options), None, Path("/nowhere/at/all"))
    except InputError as error:
        assert "/nowhere/at/all" in str(error)
        assert "\n" not in str(error)
    else:
        assert dataset.stand_in_for is None and not options
