"""Table formats: content of cells, and escaping of untrusted names."""

import csv
import io
import json
from html.parser import HTMLParser

import pytest

from hetero_tf.reports import table_formats

HOSTILE = "a|b\\c<script>&\"'`*[x](y)\n\x1b[2J\u202e$x$ 5% #1 {z}~^_"


def row(name="run", **more):
    spread = {"mean": 12.345, "spread": 0.5, "of": 2}
    return {
        "name": name,
        "levels": "a-e",
        "seeds": [0, 1],
        "rounds": 9,
        "done": 9,
        "finished": False,
        "loss last": spread,
        **more,
    } | {"published": []}


def test_heads_units_and_cells():
    rows = [
        row(bytes={"mean": 3e6, "spread": None, "of": 1}, parameters=1500, ratio=None),
        row("two", bytes={"mean": None, "spread": None, "of": 0}, parameters=None, ratio=None, done=4),
    ]
    rows[0]["loss best_round"] = rows[1]["loss best_round"] = rows[0]["loss last"]
    table = table_formats.to_table(rows, [])
    assert table.heads == ["run", "levels", "seeds", "rounds", "loss last", "total MB", "parameters (thousands)"]
    assert table.rows == [
        ["run", "a-e", "2", "9", "12.35 ± 0.50", "3 (1 of 2)", "1.5"],
        ["two", "a-e", "2", "4 of 9", "12.35 ± 0.50", "-", "-"],
    ]


@pytest.mark.parametrize(
    ("mean", "spread", "text"),
    [(33, 4.243, "33.0 ± 4.2"), (90.275, 0.00707, "90.28 ± 0.01"), (2, 0.0, "2 ± 0"), (0.198, 1.8e-5, "0.1980 ± 0.0000"),
     (61234.5, 1250.2, "61,234 ± 1,250"), (0.0, 0.5, "0 ± 0.5"), (-2.5, 0.71, "-2.50 ± 0.71"), (1234.56, None, "1,235")],
)  # fmt: skip
def test_mean_and_spread_end_at_the_same_decimal(mean, spread, text):
    value = {"mean": mean, "spread": spread, "of": 2}
    assert table_formats.to_table([row() | {"loss last": value}], []).rows[0][4] == text


def test_markdown_escapes_names():
    text = table_formats.markdown(table_formats.to_table([row(HOSTILE)], []))
    assert len(text.splitlines()) == 3 and "\x1b" not in text and "<script" not in text.replace("\\<script", "")
    assert text.splitlines()[2].replace("\\|", "").count("|") == 6


def test_latex_escapes_special_characters():
    text = table_formats.latex(table_formats.to_table([row(HOSTILE)], []))
    line = text.splitlines()[4]
    assert r"a|b\textbackslash{}c" in line and r"\$x\$ 5\% \#1 \{z\}\textasciitilde{}\textasciicircum{}\_" in line
    assert line.count("&") - line.count(r"\&") == 4 and r"12.35 $\pm$ 0.50 \\" in line
    assert text.splitlines()[0] == r"\begin{tabular}{llrrr}"


def test_html_escapes_names():
    seen, texts = [], []

    class Reader(HTMLParser):
        def handle_starttag(self, tag, attributes):
            seen.append(tag)

        def handle_data(self, data):
            texts.append(data)

    Reader().feed(table_formats.in_html(table_formats.to_table([row(HOSTILE)], [])))
    assert set(seen) == {"button", "div", "table", "thead", "tbody", "tr", "th", "td", "wbr"}
    assert any("<script>" in text for text in texts)


def test_csv_and_json_have_unrounded_numbers():
    rows = [row(HOSTILE, parameters=1500), row("=1+1", ratio=0.5)]
    first, second = csv.DictReader(io.StringIO(table_formats.to_csv(rows)))
    assert (first["loss last"], first["loss last spread"], first["loss last runs"]) == ("12.345", "0.5", "2")
    assert (first["seeds"], first["parameters"], first["ratio"], second["ratio"]) == ("0; 1", "1500", "", "0.5")
    assert "\x1b" not in first["name"] and json.loads(table_formats.to_json(rows)) == rows


@pytest.mark.parametrize("name", table_formats.FORMATS)
def test_every_format_writes_rows(name):
    assert "run" in table_formats.FORMATS[name]([row()], [])
