"""The number of examples of each property, and the folder that the tests share."""

import hypothesis
import pytest
from world import World


def pytest_configure(config):
    """Set the number of examples; the examples of a test are the same in every run, except with `--examples`."""
    count = config.getoption("--examples")
    hypothesis.settings.register_profile(
        "properties",
        max_examples=count or (400 if config.getoption("--all") else 40),
        derandomize=count is None,
        deadline=None,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    hypothesis.settings.load_profile("properties")


@pytest.fixture(scope="session")
def world(tmp_path_factory):
    return World(tmp_path_factory.mktemp("world"))
