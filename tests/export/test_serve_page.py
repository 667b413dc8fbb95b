"""The page of `serve`: labels, ids and addresses of its files, and its example in a browser for each kind of input."""

import ast
import base64
import html
import json
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from servers import fetch, start_server

import hetero_tf
from hetero_tf import export
from hetero_tf.export.serve import app
from hetero_tf.recipe import load

FOLDER = Path(app.__file__).parent
BROWSER = shutil.which("chromium")
# Recipe, changes of it, pattern of the answer to the example, and number of bars.
KINDS = {
    "masks": ("tiny/shapes_unet", [], r"Level a: \w+ [\d.]+ %", 1),
    "clips": ("tiny/audio_tones", [], r"Level a: \d [\d.]+ %", 4),
    "text": ("tiny/wikitext2", ["input.segment=5", "data.length=40"], r"Level a: \S+ [\d.]+ %", 5),
    "numbers": ("tiny/table_regression", [], r"Level a: 0 [\d.-]+, 1 [\d.-]+", 0),
    "labels": ("tiny/table_multi_label", [], r"Level a: \d [\d.]+ %", 4),
    "series": ("tiny/series_forecast", [], r"Level a: 0 [\d.-]+", 0),
}


class Elements(HTMLParser):
    """The start tags of a page: their attributes, and whether they are inside a label."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.labels = [], 0
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.labels += tag == "label"
        self.tags.append((tag, dict(attrs), self.labels > 0))

    def handle_endtag(self, tag):
        self.labels -= tag == "label"


def test_every_control_has_a_name_and_every_id_exists():
    elements = Elements((FOLDER / "page.html").read_text("utf-8"))
    ids = [attributes["id"] for _, attributes, _ in elements.tags if "id" in attributes]
    # The page contains one of the templates with these ids at a time.
    assert {id for id in ids if ids.count(id) > 1} == {"file", "preview"}
    for tag, attributes, is_labelled in elements.tags:
        if tag in ("input", "textarea", "canvas", "audio", "img", "section", "pre"):
            assert is_labelled or {"aria-label", "aria-labelledby", "alt"} & attributes.keys(), (tag, attributes)
        assert set(attributes.get("aria-labelledby", "").split()) <= set(ids)
    assert set(re.findall(r'\$\("([^"]+)"\)', (FOLDER / "page.js").read_text("utf-8"))) <= set(ids)
    roles = {attributes["id"]: attributes.get("role") for _, attributes, _ in elements.tags if "id" in attributes}
    assert (roles["error"], roles["status"]) == ("alert", "status")


def test_page_loads_nothing_from_elsewhere_and_runs_no_inline_code():
    for name in app.PAGE_FILES.values():
        assert not re.search(r"https?:|[\"'(]//|url\(|@import", (FOLDER / name).read_text("utf-8")), name
    for tag, attributes, _ in Elements((FOLDER / "page.html").read_text("utf-8")).tags:
        assert tag != "style" and not any(name.startswith("on") or name == "style" for name in attributes)
        assert tag != "script" or attributes["src"] == "page.js"
    assert "unsafe" not in app.HEADERS["Content-Security-Policy"]


def open_example(address):
    """Return the page as a browser shows it after the prediction of the example."""
    options = ["--headless", "--no-sandbox", "--virtual-time-budget=20000", "--dump-dom"]
    command = [BROWSER, *options, f"{address}/#example"]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout


@pytest.mark.long
@pytest.mark.skipif(BROWSER is None, reason="needs chromium")
@pytest.mark.parametrize("kind", KINDS)
def test_example_is_predicted_and_its_commands_run_as_printed(kind, tmp_path):
    recipe, changes, answer, bars = KINDS[kind]
    process = hetero_tf.learning_process(load(recipe, ["levels.mix=a", *changes]))
    state = process.initialize()
    export.export(process, state, process.statistics(state, "a"), tmp_path, {}, level="a")
    address, _ = start_server(tmp_path)
    page = open_example(address)
    status, error = (html.unescape(re.search(rf'id="{id}"[^>]*>([^<]*)<', page)[1]) for id in ("status", "error"))
    assert error == "" and re.search(answer, status), (status, error)
    assert page.count('style="--share') >= bars and ("map of its classes" in page) == (kind == "masks")
    request = fetch(f"{address}/v1/models/a/example")[1]
    prediction = fetch(f"{address}/v1/models/a:predict", request)[1]["predictions"][0]
    if "b64" in (example := request["instances"][0]):
        (tmp_path / ("clip.wav" if kind == "clips" else "picture.png")).write_bytes(base64.b64decode(example["b64"]))
    outputs = []
    for id, program in (("curl", ["bash", "-c"]), ("python", [sys.executable, "-c"])):
        command = [*program, html.unescape(re.search(rf'<pre id="{id}"[^>]*>([^<]*)</pre>', page)[1])]
        outputs.append(subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout)
    assert json.loads(outputs[0]) == {"predictions": [prediction]} and ast.literal_eval(outputs[1]) == prediction
