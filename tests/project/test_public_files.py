"""Files for people who cite, report or contribute, types that users see, and the documentation site."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import programs
import pytest
import yaml

from hetero_tf.base.version import __version__

CHECKOUT = Path(__file__).resolve().parents[2]
# An action at a full commit hash, with its version as a comment.
PINNED = r"uses: [\w-]+/[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+"
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


def read(name):
    return yaml.safe_load((CHECKOUT / name).read_text("utf-8"))


def test_the_citation_is_that_of_this_version():
    citation = read("CITATION.cff")
    assert citation["version"] == __version__ and citation["license"] == "Apache-2.0"
    papers = [paper["identifiers"][0]["value"] for paper in citation["references"]]
    assert papers == ["arXiv:2010.01264", "arXiv:2303.04887"]


def test_the_workflow_tests_every_supported_python_and_runs_all_tests_at_night():
    workflow = read(".github/workflows/ci.yml")
    (supported,) = re.findall(r"range\((\d+), (\d+)\)", (CHECKOUT / "setup.py").read_text("utf-8"))
    versions = workflow["jobs"]["test"]["strategy"]["matrix"]["python"]
    assert versions == [f"3.{minor}" for minor in range(*map(int, supported))]
    change, night = ["push", "pull_request"], ["schedule", "workflow_dispatch"]
    assert list(workflow[True]) == change + night  # YAML 1.1 reads the key `on` as true
    runs = [(re.findall(r"== '(\w+)'", job["if"]), job["steps"][-1]["run"]) for job in workflow["jobs"].values()]
    assert runs == [(change, "bin/check"), (change, "bin/test"), (night, "bin/test --all --durations=30")]


@pytest.mark.parametrize("name", sorted(path.name for path in (CHECKOUT / ".github/workflows").iterdir()))
def test_workflows_run_pinned_actions_that_can_only_read(name):
    workflow = read(f".github/workflows/{name}")
    uses = re.findall(r"uses: .*", (CHECKOUT / ".github/workflows" / name).read_text("utf-8"))
    assert uses and [line for line in uses if not re.fullmatch(PINNED, line)] == []
    assert workflow["permissions"] == {"contents": "read"}
    for job in workflow["jobs"].values():
        assert "permissions" not in job and job["timeout-minutes"] <= 90
        for step in job["steps"]:
            is_checkout = step.get("uses", "").startswith("actions/checkout@")
            assert not is_checkout or step["with"] == {"persist-credentials": False}


def test_the_commit_hook_is_bin_check():
    ((hook,),) = (repository["hooks"] for repository in read(".pre-commit-config.yaml")["repos"])
    assert (hook["entry"], hook["language"]) == ("bin/check", "system")
    assert hook["always_run"] and not hook["pass_filenames"]


@pytest.mark.long
def test_types_reach_a_users_file(tmp_path):
    (tmp_path / "user.py").write_text(USER)
    command = [sys.executable, "-m", "mypy", "--ignore-missing-imports", "--follow-imports=silent", "user.py"]
    environment = programs.environment() | {"MYPYPATH": str(CHECKOUT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    lines = [int(number) for number in re.findall(r"^user.py:(\d+): error", done.stdout, re.MULTILINE)]
    assert lines == [number for number, line in enumerate(USER.splitlines(), 1) if "# error" in line], done.stdout


def build(checkout, site):
    """Build the site strictly; return the finished process."""
    pytest.importorskip("mkdocs")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    built = build(CHECKOUT, folder)
    assert built.returncode == 0, built.stderr
    return folder


@pytest.mark.long
def test_pages_need_no_other_host(site):
    pages = list(site.rglob("index.html"))
    assert len(pages) > 30
    loaded = re.compile(r'<(?:script|img|link rel="stylesheet")[^>]* (?:src|href)="(?:https?:)?//')
    assert [page for page in pages if loaded.search(page.read_text("utf-8"))] == []


@pytest.mark.long
def test_searches_lead_to_pages(site):
    """The theme's search prefers tags; each word of docs/find.md is one of the page that its row links to first."""
    index = json.loads((site / "search/search_index.json").read_text("utf-8"))
    tags = {entry["location"]: entry.get("tags", []) for entry in index["docs"]}
    assert "excel" in tags["data/tables/"] and "secure aggregation" in tags["guides/privacy/"]
    rows = re.findall(r"^\| ([^|]+) \| .*\]\(", (CHECKOUT / "docs/find.md").read_text("utf-8"), re.MULTILINE)
    assert len(rows) > 30 and set(", ".join(rows).split(", ")) <= set().union(*tags.values())


@pytest.mark.long
def test_linked_files_of_the_repository_and_groups_are_pages(site):
    assert 'href="../../guides/models/"' in (site / "groups/models/index.html").read_text("utf-8")
    assert '<td data-label="allowed">' in (site / "reference/keys/index.html").read_text("utf-8")
    assert '<td data-label="epsilon" data-number>1</td>' in (site / "guides/privacy/index.html").read_text("utf-8")
    assert '<td data-label="data">' in (site / "data/index.html").read_text("utf-8")
    recipe = (site / "repository/recipes/wikitext2.yaml/index.html").read_text("utf-8")
    assert "WikiText-2" in recipe and "bin/hetero_tf" in (site / "repository/BUILD/index.html").read_text("utf-8")


@pytest.mark.long
def test_results_are_short_parts_whose_tables_are_cards_on_phones(site):
    """A part of 14,000 characters has about 15 screens of 400 x 900 pixels."""
    for page in (site / "results").glob("*/index.html"):
        (article,) = re.findall("<article.*?</article>", page.read_text("utf-8"), re.DOTALL)
        tables = re.findall("<table.*?</table>", article, re.DOTALL)
        wide = [table for table in tables if len(re.findall("<th[ >]", table)) > 2]
        assert wide and all(table.startswith('<table data-cards="compact">') for table in wide)
        assert len(" ".join(re.sub("<[^>]+>", "", article).split())) < 14_000, page


@pytest.mark.long
def test_wrong_links_fail(tmp_path):
    links = ("missing.md", "../recipes/missing.yaml", "README.md#no-such-heading")
    for name in ("mkdocs.yml", "docs/repository_files.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(CHECKOUT / name, tmp_path / name)
    config = (tmp_path / "mkdocs.yml").read_text().partition("\nnav:")[0]
    (tmp_path / "mkdocs.yml").write_text(config)
    (tmp_path / "docs/README.md").write_text("# Page\n\n" + "".join(f"[link]({link})\n" for link in links))
    built = build(tmp_path, tmp_path / "site")
    output = built.stderr + built.stdout
    assert built.returncode != 0 and f"Aborted with {len(links)} warnings in strict mode" in output
    assert [link for link in links if link.rpartition("/")[2] not in output] == []
