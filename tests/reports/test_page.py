"""The page of a report: complete in itself, whatever runs left or are named; and that it is written whole."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from splits import shares

from hetero_tf.data.partitions.partition import Partition
from hetero_tf.reports import style
from hetero_tf.runs import metrics_file

pytest.importorskip("matplotlib")
HOSTILE = '<img src=x onerror="x()">&amp;$name{{ 1 }}'
CLASSES = {"names": ["cat", HOSTILE], "confusion_matrix": [[1, 3], [0, 2]], "state": "best", "round": 2}
SECTIONS = ["reached", "curves", "classes", "levels", "cost", "rounds", "split", "setting"]
PICTURES = {f"global_accuracy-{x}" for x in ("round", "device_hours", "megabytes", "parameters")}
PICTURES |= {"local_accuracy-round", "global_loss-round", "loss-round", "levels", "clients", "mix", "time"}
PICTURES |= {"split-1", "classes-1", "timeline-1"}


@pytest.fixture
def plain_figures(monkeypatch):
    """Figures of one element: to draw them takes most of the time of a report."""
    monkeypatch.setattr(style, "encode_figure", lambda drawn, kind: b"<svg/>")


@pytest.fixture
def out(tmp_path):
    return tmp_path / "report.html"


@pytest.fixture
def report(command):
    return lambda *words: command("report", *words)


class Page(HTMLParser):
    """The elements of a page, its attributes, and what it says."""

    def __init__(self, path):
        super().__init__()
        self.tags, self.attributes, self.output = [], [], []
        self.feed(path.read_text())
        self.text = " ".join(" ".join(self.output).split())

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += attributes

    def handle_data(self, data):
        self.output.append(data)

    def of(self, name):
        return [value for key, value in self.attributes if key == name]


def whole_runs(write_run):
    """Runs that have all there is to show."""
    more = {f"local_{name}": value for name, value in (("accuracy", 5.0), ("mean", 5.0), ("std", 1.0))}
    more |= {"local_worst_decile": 3.0, "level_accuracy_a": 4.0}
    folders = [
        write_run(f"runs/{mix}-{seed}", [10.0 + seed, 30.0], f"name=of_{mix}", f"levels.mix={mix}", f"seed={seed}",
                  more=more, sizes=sizes, seconds=2.0, device_seconds=100)
        for mix, sizes in (("a", {"a": 4000}), ("a-c", {"a": 4000, "c": 2000}))
        for seed in (0, 1)
    ]  # fmt: skip
    for folder in folders:
        Partition(shares([0, 1], [2]), shares([0, 1], [1]), np.ones((2, 3), bool)).save(Path(folder) / "partition.npz")
    times = {"start": 0.0, "download": 1.0, "compute": 9.0, "upload": 2.0}
    client = {"client": 3, "device": HOSTILE, "level": "a", **times, "status": "returned"}
    row = {"round": 1, "began": 0.0, "ended": 12.0, "clients": [client]}
    metrics_file.append(Path(folders[0], "timeline.jsonl"), row)
    Path(folders[0], "classes.json").write_text(json.dumps(CLASSES))


def test_page_is_complete_and_self_contained(plain_figures, write_run, report, tmp_path, out):
    whole_runs(write_run)
    figures = tmp_path / "report_figures"
    message = f"wrote {out}, and its {len(PICTURES)} figures into {figures}\n"
    assert report(tmp_path / "runs", "--out", out) == (0, message, "")
    page, text = Page(out), out.read_text()
    assert [value for value in page.of("id") if value in SECTIONS] == SECTIONS
    assert page.of("href")[: len(SECTIONS)] == [f"#{name}" for name in SECTIONS]
    assert page.tags.count("img") == page.tags.count("figure") == len(PICTURES) and page.tags.count("table") == 5
    # The policy allows the script that sorts tables, and no other one.
    (script,) = re.findall("<script>(.*?)</script>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in text and page.tags.count("script") == 1
    # Nothing is fetched: addresses lead to places in the page, or hold a figure.
    assert not {"link", "iframe", "object"} & set(page.tags)
    assert all(value.startswith(("#", "data:image/svg+xml;base64,")) for value in page.of("href") + page.of("src"))
    assert "@import" not in text and "url(http" not in text
    assert len(page.of("id")) == len(set(page.of("id")))
    assert "4 runs of 2 recipes, 4 finished." in page.text and "of_ a 30 ± 0 30 ± 0 a 2 2" in page.text
    assert "method FedAvg, HeteroFL test examples of the clients 2 data" in page.text
    assert f"cat 4 25.0 100.0 {HOSTILE} (3)".replace("_", "_ ") in page.text
    assert {path.name for path in figures.iterdir()} == {
        f"{name}.{kind}" for name in PICTURES for kind in ("svg", "png")
    }


def test_results_are_sorted_best_first(plain_figures, write_run, report, tmp_path, out):
    for name, accuracy in (("low", 10.0), ("high", 90.0), ("middle", 50.0)):
        write_run(f"runs/{name}", [accuracy], f"name={name}")
    report(tmp_path / "runs", "--out", out)
    text = out.read_text()
    assert re.findall('<tr><td class="words">(high|middle|low)</td>', text)[:3] == ["high", "middle", "low"]
    # "last" and "best" of the results; the rows of costs have no best value.
    assert re.findall('<td class="best">(.*?)</td>', text) == ["90", "90"] and "Bold: the best mean." in text


@pytest.mark.parametrize(("can_open", "note"), [(True, ""), (False, "note: no browser could be started; open {out}\n")])
def test_open_shows_the_page_in_a_browser(plain_figures, write_run, report, out, monkeypatch, can_open, note):
    opened = []
    monkeypatch.setattr("webbrowser.open", lambda address: opened.append(address) or can_open)
    _, output, _ = report(write_run("one", [10.0]), "--out", out, "--open")
    assert opened == [f"file://{out}"] and output.partition("\n")[2] == note.format(out=out)


def test_page_of_a_new_run_omits_empty_sections_and_figures(plain_figures, write_run, report, tmp_path, out):
    folder = write_run("one", [None], "rounds=9", traffic=False)
    code, output, _ = report(folder, "--out", out)
    assert code == 0 and f"not finished: {folder}, 1 of 9 rounds" in output
    text = Page(out).text
    assert "1 run of 1 recipe, 0 finished." in text and f"not finished: {folder}, 1 of 9 rounds" in text
    assert "Learning curves" in text and "Data of the clients" not in text and "Levels and clients" not in text
    assert "differs in" not in text
    # Accuracy over a single size is no figure. A page replaces the old one.
    assert report(write_run("two", [10.0], sizes={"a": 4000}), "--out", out)[0] == 0
    names = {path.stem for path in (tmp_path / "report_figures").iterdir()}
    assert names == {"global_accuracy-round", "global_accuracy-megabytes", "global_loss-round", "loss-round", "mix"}
    assert not list(tmp_path.rglob(".tmp-*"))


def test_untrusted_names_are_escaped_on_the_page(write_run, report, tmp_path, out):
    folder = Path(write_run(f"runs/{HOSTILE[:5]}", [10.0]))
    recipe = (folder / "recipe.yaml").read_text()
    recipe = re.sub("^name: .*$", lambda _: f"name: '{HOSTILE}\x85'", recipe, count=1, flags=re.MULTILINE)
    (folder / "recipe.yaml").write_text(recipe)
    stored = {"plugins": ["mine"], "cpu": {"model": "<b>"}, "versions": {}, "threads": {}, "settings": {}, "cores": 2}
    (folder / "environment.json").write_text(json.dumps(stored))
    assert report(folder, "--out", out)[::2] == (0, "")
    page = Page(out)
    assert page.tags.count("img") == page.tags.count("figure") and not page.of("onerror")
    assert any(HOSTILE in text for text in page.output)
    assert "\x85" not in out.read_text()


def test_untrusted_numbers_do_not_break_the_page(plain_figures, write_run, report, tmp_path, out):
    """Nor do names of metrics lead out of the folder of figures."""
    folder, huge = Path(write_run("one", [10.0])), "9" * 400
    rows = f'{{"round":1,"../../evil":1,"bytes":{huge},"loss":1e308,"levels":{{"a":{huge}}},"local_mean":-1e300}}\n'
    rows += '{"round":2,"levels":"many","global_accuracy":"high","bytes":true}\n'
    (folder / "metrics.jsonl").write_text(rows)
    rows = (
        f'{{"round":1,"seconds":{huge},"clients":0,"training_seconds":true}}\n{{"round":2,"training_seconds":"long"}}\n'
    )
    (folder / "timings.jsonl").write_text(rows)
    assert report(folder, "--out", out)[0] == 0
    assert not list(tmp_path.rglob("*evil*")) and "evil" not in out.read_text()
    for matrix in ([[1, 2]], [[1, -3], [1, 2]], [[1.5, 1], [1, 1]]):
        (folder / "classes.json").write_text(json.dumps({**CLASSES, "confusion_matrix": matrix}))
        code, _, err = report(folder, "--out", out)
        assert code == 2 and f"{folder}/classes.json: confusion_matrix" in err and "; delete the file" in err
    for round in ("0", huge):
        (folder / "metrics.jsonl").write_text(f'{{"round":{round}}}\n')
        code, _, err = report(folder, "--out", out)
        message = f"metrics.jsonl: a round must be from 1 to 9007199254740991. Received: round={round[:9]}"
        assert code == 2 and message in err


def test_failed_write_keeps_the_old_page(plain_figures, write_run, report, tmp_path, out):
    folder = write_run("one", [10.0])
    out.write_text("old")
    (tmp_path / "report_figures").write_text("in the way")
    assert report(folder, "--out", out)[::2] == (
        2,
        f"hetero_tf: {tmp_path}/report_figures: expected a folder or nothing. Received: a file; move it away\n",
    )
    assert out.read_text() == "old"
    assert report(folder, "--out", "report.pdf")[2] == (
        "hetero_tf: --out must end in .html. Received: --out=report.pdf\n"
    )
    code, _, err = report(folder, "--out", tmp_path / "none" / "report.html")
    assert code == 3 and "none/report.html: could not write: No such file or directory" in err
