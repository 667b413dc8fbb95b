"""Tables of a comparison: content of cells, escaping of untrusted names, and the text within a terminal's width."""

import csv
import io
import json

import pytest
from refusals import refusal

from hetero_tf.reports import tables
from hetero_tf.reports.summaries import Moment, compare, paired_difference
from hetero_tf.runs.history import gather, grouped

HOSTILE = "a|b\\c<script>&\"'`*[x](y)\n\x1b[2J\u202e$x$ 5% #1 {z}~^_"


def row(name="run", **more):
    row = {"name": name, "levels": "a-e", "seeds": [0, 1], "rounds": 9, "done": 9, "finished": False}
    return row | {"loss last": {"mean": 12.345, "spread": 0.5, "of": 2}, **more, "published": []}


@pytest.mark.parametrize(
    ("mean", "spread", "text"),
    [(33, 4.243, "33.0 ± 4.2"), (90.275, 0.00707, "90.28 ± 0.01"), (2, 0.0, "2 ± 0"), (0.198, 1.8e-5, "0.1980 ± 0.0000"),
     (61234.5, 1250.2, "61,234 ± 1,250"), (0.0, 0.5, "0 ± 0.5"), (-2.5, 0.71, "-2.50 ± 0.71"), (1234.56, None, "1,235")],
)  # fmt: skip
def test_mean_and_spread_end_at_the_same_decimal(mean, spread, text):
    value = {"mean": mean, "spread": spread, "of": 2}
    assert tables.to_table([row() | {"loss last": value}], []).rows[0][4] == text


def test_every_format_escapes_names_and_keeps_numbers():
    rows = [row(HOSTILE, parameters=1500), row("=1+1", parameters=None, ratio=0.5)]
    markdown, latex, comma = (tables.FORMATS[name](rows[:1], [], ()) for name in ("markdown", "latex", "csv"))
    assert len(markdown.splitlines()) == 5 and "\x1b" not in markdown
    assert markdown.splitlines()[1].count("-:|") == 4
    assert markdown.splitlines()[2].replace("\\|", "").count("|") == 7 and "\\<script\\>" in markdown
    head, line = latex.splitlines()[0], latex.splitlines()[4]
    assert head == r"\begin{tabular}{@{}llrrrr@{}}" and line.count("&") - line.count(r"\&") == 5
    assert r"\textbackslash{}c" in line and r"\$x\$ 5\% \#1 \{z\}\textasciitilde{}\^{}\_" in line
    assert r"12.35 $\pm$ 0.50" in line and r"\toprule" in latex and r"\bottomrule" in latex
    assert "\x1b" not in comma
    first, second = csv.DictReader(io.StringIO(tables.to_csv(rows)))
    assert (first["loss last"], first["loss last spread"], first["loss last runs"]) == ("12.345", "0.5", "2")
    assert (first["seeds"], first["parameters"], first["ratio"], second["ratio"]) == ("0; 1", "1500", "", "0.5")
    assert json.loads(tables.FORMATS["json"](rows, [], ())) == rows


def test_each_task_has_a_table_with_the_best_run_first(write_run):
    folders = [
        write_run("narrow", [15.0, 20.0], "levels.mix=c"),
        write_run("wide", [10.0, 40.0, 30.0], "name=wide"),
        write_run("text", [None], "name=text", more={"global_perplexity": 12.5}),
        write_run("other", [20.0, 30.0], "levels.mix=c", "seed=1"),
    ]
    first, second = tables.to_text(grouped(gather(folders)[0])).split("\n\n")
    title, heads, *rows = first.splitlines()
    assert title == "classification: global_accuracy in %, higher is better"
    assert heads.split() == ["run", "seeds", "rounds", "last", "best", "total", "MB"]
    assert [row.split()[0] for row in rows[:2]] == ["wide", "tiny_digits"] and rows[
        2
    ] == "±: standard deviation over seeds"
    assert rows[3] == "the recipes differ in" and rows[4:] == ["  rounds: 2, 3", "  levels.mix: c, a-b-c"]
    assert len({len(line) for line in (heads, *rows[:2])}) == 1, "aligned"
    assert second.splitlines()[0].endswith(": global_perplexity, lower is better")
    assert second.splitlines()[2].split()[:4] == ["text", "1", "12.5", "12.5"] and len(second.splitlines()) == 3


def test_names_are_folded_in_a_narrow_terminal(write_run):
    folders = [write_run(f"run{n}", [5.0 * n], f"client.epochs={n}", "name=a_long_name") for n in (1, 2)]
    groups = grouped(gather(folders)[0])
    text = tables.to_text(groups, ["global_accuracy", "loss"], [8.0], [Moment("1", 1)], width=60)
    assert max(map(len, text.splitlines())) <= 60 and len(text.split("\n\n")) == 2
    folded = tables.to_text(groups, width=45).splitlines()
    assert max(map(len, folded[1:5])) <= 48 and folded[2].split()[-3:-1] == ["10", "10"]
    whole = tables.to_text(groups).splitlines()
    assert whole[2].startswith("a_long_name (client.epochs=2)  ") and whole[2].split()[-4:-1] == ["1", "10", "10"]


def test_values_to_reach_have_tables_with_the_fastest_run_first(write_run):
    folders = [
        write_run("slow", [95.0, 96.0], "name=slow", device_seconds=9000),
        write_run("fast", [50.0, 96.0], "name=fast", device_seconds=200),
        write_run("never", [50.0, 97.0], "name=never", device_seconds=20),
        write_run("twin", [50.0, 60.0], "name=never", "seed=1", device_seconds=20),
    ]
    metrics = ("global_accuracy", "global_loss")
    lines = tables.to_text(grouped(gather(folders)[0]), metrics, [90.0], width=80).splitlines()
    first = lines.index("to reach 90 %:")
    assert [line.split() for line in lines[first + 1 : first + 5]] == [
        ["run", "device", "min", "Wh", "rounds", "MB"],
        ["fast", "6.667", "0.2222", "2", "8"],
        ["slow", "150", "5", "1", "4"],
        ["never", "-", "-", "not", "by", "all", "seeds", "(1", "of", "2)", "-"],
    ]
    assert lines[1].split()[-2:] == ["device", "h"] and max(map(len, lines)) <= 80 and "to reach 90:" not in lines


@pytest.fixture
def methods(write_run):
    """Three seeds of two recipes; the seeds move both results in the same direction."""
    last = {"narrow": (80.0, 84.0, 88.0), "wide": (83.0, 86.0, 92.0), "single": (70.0,)}
    folders = [
        write_run(f"{name}{seed}", [last - 10, last], f"name={name}", f"seed={seed}")
        for name, values in last.items()
        for seed, last in enumerate(values)
    ]
    return grouped(gather(folders)[0])


def test_differences_are_paired_over_common_seeds(methods):
    narrow, wide, single = compare(methods, ["global_accuracy"], baseline="narrow")
    difference = wide["global_accuracy difference"]
    # Differences 3, 2 and 4: t = 3 / (1 / sqrt(3)) with 2 degrees of freedom, whose quantile of 97.5 % is 4.302653.
    assert (difference["mean"], difference["spread"], difference["of"], difference["to"]) == (3, 1, 3, "narrow")
    half = 4.302652729911275 / 3**0.5
    assert (difference["low"], difference["high"]) == pytest.approx((3 - half, 3 + half), rel=1e-9)
    assert narrow["global_accuracy difference"]["of"] == 0
    alone = single["global_accuracy difference"]
    assert (alone["mean"], alone["of"], alone["low"]) == (-10, 1, None)
    assert "global_accuracy difference" not in compare(methods, ["global_accuracy"])[0]


@pytest.mark.parametrize(
    ("values", "quantile"),
    [((1.0, 3.0), 12.706204736432095), ((1.0, 2.0, 4.0, 3.0), 3.182446305284263),
     ((1.0, 2.0, 4.0, 3.0, -1.0), 2.7764451051977987)],
)  # fmt: skip
def test_intervals_have_the_quantiles_of_students_t(values, quantile):
    """Quantiles of SciPy 1.17."""
    result = paired_difference(values)
    half = quantile * result["spread"] / len(values) ** 0.5
    assert result["high"] - result["mean"] == pytest.approx(half, rel=1e-9)


def test_equal_differences_have_an_interval_of_one_value():
    assert paired_difference([2.0, 2.0]) == {"mean": 2, "spread": 0, "of": 2, "low": 2, "high": 2}
    assert paired_difference([])["mean"] is None


def test_columns_have_the_requested_order_and_the_best_value_is_bold(methods):
    rows = compare(methods, ["global_accuracy"], baseline="narrow")
    latex = tables.FORMATS["latex"](rows, [], ["difference", "last", "seeds"]).splitlines()
    cells = [[cell.strip() for cell in line.removesuffix(r"\\").split("&")] for line in latex if "&" in line]
    head, narrow, wide, single = cells
    assert head == ["run", r"global accuracy (\%) difference", "last", "seeds"]
    assert narrow == ["narrow", "-", r"84.0 $\pm$ 4.0", "3"]
    assert wide == ["wide", "+3 [+0.516, +5.48]", r"\textbf{87.0 $\pm$ 4.6}", "3"]
    assert single == ["single", "$-$10", "70", "1"]
    # The file can be read by LaTeX without further commands.
    assert latex[0] == r"\begin{tabular}{@{}lrrr@{}}" and latex[8] == r"\end{tabular}" and latex[9] == r"\par\smallskip"
    assert "95 \\% interval, Student's paired t-test" in latex[10] and latex[10].count("{") == latex[10].count("}")
    markdown = tables.FORMATS["markdown"](rows, [], ["last"]).splitlines()
    assert markdown[3].split("|")[2].strip() == "**87.0 ± 4.6**"
    text = tables.to_text(methods, baseline="narrow", columns=["last"], width=80).splitlines()
    assert text[1].split() == ["run", "last"] and text[2].split() == ["wide", "87.0", "±", "4.6"]
    assert text[5] == "±: standard deviation over seeds"
    comma = list(csv.DictReader(io.StringIO(tables.FORMATS["csv"](rows, [], ["difference"]))))
    assert list(comma[1])[:2] == ["name", "global_accuracy difference"] and float(
        comma[1]["global_accuracy difference low"]
    )
    assert [list(row) for row in json.loads(tables.FORMATS["json"](rows, [], ["seeds"]))] == [["name", "seeds"]] * 3


def test_unknown_columns_are_refused_with_the_known_ones(methods):
    (row, *_) = compare(methods, ["global_accuracy"])
    text = refusal(tables.check_columns, ["last", "lst"], row)
    assert text.startswith("unknown column; known: levels, seeds, rounds, last, best, bytes, ")
    assert text.endswith("Received: --columns=lst")
    assert "difference needs --baseline NAME" in refusal(tables.check_columns, ["difference"], row)
