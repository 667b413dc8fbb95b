"""Comparisons as text: a table for each task, the best run first, within the width of a terminal."""

from hetero_tf.reports import text_tables
from hetero_tf.reports.summaries import Moment
from hetero_tf.runs.history import gather, grouped


def test_each_task_has_a_table_with_the_best_run_first(write_run):
    text = {"global_perplexity": 12.5}
    folders = [
        write_run("narrow", [15.0, 20.0], "levels.mix=c"),
        write_run("wide", [10.0, 40.0, 30.0], "name=wide"),
        write_run("text", [None], "name=text", more=text),
        write_run("other", [20.0, 30.0], "levels.mix=c", "seed=1"),
    ]
    groups = grouped(gather(folders)[0])
    first, second = text_tables.to_text(groups).split("\n\n")
    title, heads, *rows = first.splitlines()
    assert title == "classification: global_accuracy in %, higher is better"
    assert heads.split() == ["run", "seeds", "rounds", "last", "best", "total", "MB"]
    assert [row.split()[0] for row in rows[:2]] == ["wide", "tiny_digits"] and rows[2] == "the recipes differ in"
    assert rows[3:] == ["  rounds: 2, 3", "  levels.mix: c, a-b-c"]
    assert len({len(line) for line in (heads, *rows[:2])}) == 1, "aligned"
    assert second.splitlines()[0].endswith(": global_perplexity, lower is better")
    assert second.splitlines()[2].split()[:4] == ["text", "1", "12.5", "12.5"] and len(second.splitlines()) == 3


def test_requested_columns_fit_into_a_narrow_terminal(write_run):
    folders = [write_run(f"run{n}", [5.0 * n], f"client.epochs={n}", "name=a_long_name") for n in (1, 2)]
    groups = grouped(gather(folders)[0])
    text = text_tables.to_text(groups, ["global_accuracy", "loss"], [8.0], [Moment("1", 1)], width=60)
    assert max(map(len, text.splitlines())) <= 86 and len(text.split("\n\n")) == 2
    folded = text_tables.to_text(groups, width=45).splitlines()
    assert max(map(len, folded[2:6])) <= 48 and folded[3].split()[-3:-1] == ["10", "10"]
    whole = text_tables.to_text(groups).splitlines()
    assert whole[2].startswith("a_long_name (client.epochs=2)  ") and whole[2].split()[-4:-1] == ["1", "10", "10"]


def test_values_to_reach_have_tables_with_the_fastest_run_first(write_run):
    folders = [
        write_run("slow", [95.0, 96.0], "name=slow", device_seconds=9000),
        write_run("fast", [50.0, 96.0], "name=fast", device_seconds=200),
        write_run("never", [50.0, 97.0], "name=never", device_seconds=20),
        write_run("twin", [50.0, 60.0], "name=never", "seed=1", device_seconds=20),
    ]
    lines = text_tables.to_text(grouped(gather(folders)[0]), goals=[90.0], width=80).splitlines()
    first = lines.index("to reach 90 %:")
    assert lines[first + 1].split() == ["run", "device", "min", "Wh", "rounds", "MB"]
    assert lines[first + 2].split() == ["fast", "6.667", "0.2222", "2", "8"]
    assert lines[first + 3].split() == ["slow", "150", "5", "1", "4"]
    assert lines[first + 4].split() == ["never", "-", "-", "not", "by", "all", "seeds", "(1", "of", "2)", "-"]
    assert lines[1].split()[-2:] == ["device", "h"] and max(map(len, lines)) <= 80
