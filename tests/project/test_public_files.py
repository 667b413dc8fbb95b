"""Files for people who cite, report or contribute, and the types that users see."""

import re
import subprocess
import sys
from pathlib import Path

import programs
import pytest
import yaml

from hetero_tf.base.version import __version__

CHECKOUT = Path(__file__).resolve().parents[2]
# A user's file: the marked lines are errors.
USER = """\
import hetero_tf

recipe = hetero_tf.load_recipe("digits", ["rounds=1"])
process = hetero_tf.learning_process(recipe)
state = process.initialize()
state, metrics = process.next(state)
print(state.round + 1, metrics["loss"] > 0)
hetero_tf.load_recipe(3)  # error
state.rounds  # error
"""


def test_the_citation_is_that_of_this_version():
    citation = yaml.safe_load((CHECKOUT / "CITATION.cff").read_text("utf-8"))
    assert citation["version"] == __version__ and citation["license"] == "Apache-2.0"
    papers = [paper["identifiers"][0]["value"] for paper in citation["references"]]
    assert papers == ["arXiv:2010.01264", "arXiv:2303.04887"]


def test_the_workflow_runs_ci_on_every_supported_python():
    text = (CHECKOUT / ".github/workflows/ci.yml").read_text("utf-8")
    job = yaml.safe_load(text)["jobs"]["test"]
    supported = re.findall(r"range\((\d+), (\d+)\)", (CHECKOUT / "setup.py").read_text("utf-8"))
    assert job["strategy"]["matrix"]["python"] == [f"3.{minor}" for minor in range(*map(int, supported[0]))]
    assert job["steps"][-1] == {"run": ".ci/run"}


@pytest.mark.long
def test_types_reach_a_users_file(tmp_path):
    (tmp_path / "user.py").write_text(USER)
    command = [sys.executable, "-m", "mypy", "--ignore-missing-imports", "--follow-imports=silent", "user.py"]
    environment = programs.environment() | {"MYPYPATH": str(CHECKOUT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    lines = [int(number) for number in re.findall(r"^user.py:(\d+): error", done.stdout, re.MULTILINE)]
    assert lines == [number for number, line in enumerate(USER.splitlines(), 1) if "# error" in line], done.stdout
