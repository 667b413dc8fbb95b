"""Figures of runs: what is drawn is what the runs measured, legends cover nothing, and files are whole."""

import itertools

import pytest
from pytest import approx
from refusals import refusal

from hetero_tf.base.errors import DiskProblem
from hetero_tf.reports import figures, style, summaries
from hetero_tf.runs import published
from hetero_tf.runs.history import gather, grouped

pytest.importorskip("matplotlib")
ACCURACY = ("global_accuracy", "round")
SIZES = ("global_accuracy", "parameters")


@pytest.fixture(autouse=True)
def in_style():
    with style.figure_style("plot"):
        yield


def groups(*folders):
    return grouped(gather(folders)[0])


def two_seeds(write_run):
    return [
        write_run("w0", [10.0, 40.0, 30.0], "name=wide", seconds=2.0),
        write_run("w1", [20.0, 50.0], "name=wide", "seed=1", "rounds=3", seconds=4.0),
        write_run("n0", [15.0, None, 60.0], "name=narrow"),
    ]


def curve(label="a", index=0, x=(1,), y=(2,)):
    return figures.Curve(label, index, list(x), list(y), list(y), list(y), 1)


def test_curves_are_means_with_bands_at_common_rounds(write_run):
    runs = groups(*two_seeds(write_run))
    narrow, wide = figures.learning_curves(runs, *ACCURACY)
    assert (narrow.label, narrow.x, narrow.mean, narrow.low, narrow.seeds) == ("narrow", [1, 3], [15, 60], [15, 60], 1)
    assert (wide.label, wide.x, wide.mean, wide.low, wide.high) == (
        ("wide", [1, 2], [15, 45], approx([15 - 50**0.5, 45 - 50**0.5]), approx([15 + 50**0.5, 45 + 50**0.5]))
    )
    (_, wide) = figures.learning_curves(runs, "global_accuracy", "megabytes")
    assert wide.x == [4e6, 8e6] and wide.high[0] - wide.mean[0] == approx(50**0.5)
    # Losses are sorted ascending, and curves in seconds need timings.
    assert [one.label for one in figures.learning_curves(runs, "global_loss", "round")] == ["narrow", "wide"]
    (wide,) = figures.learning_curves(runs, "global_accuracy", "seconds")
    assert (wide.label, wide.x) == ("wide", [4.0, 6.0])


def test_curves_in_device_time_have_the_last_evaluation_of_each_seed(write_run):
    folders = [
        write_run("s0", [10.0, 40.0, 70.0], device_seconds=60),
        write_run("s1", [20.0, 50.0], "seed=1", "rounds=3", device_seconds=100),
    ]
    (hours,) = figures.learning_curves(groups(*folders), "global_accuracy", "device_hours")
    # From the first evaluation of the slower seed to the last one of the seed that ends first.
    assert hours.x == [100, 120, 180]
    highs = [mean + abs(one - other) / 2**0.5 for mean, one, other in zip([15, 30, 45], [10, 40, 70], [20, 20, 20])]
    assert hours.high == approx(highs)
    (energy,) = figures.learning_curves(groups(*folders), "global_accuracy", "energy")
    assert energy.x == [200, 240, 360] and energy.mean == hours.mean == [15, 30, 45]
    (panel,) = figures.draw_curves([hours], "global_accuracy", "device_hours").axes
    (line,) = panel.get_lines()
    assert (panel.get_xlabel(), line.get_drawstyle(), list(line.get_xdata())) == (
        "device time (s)", "steps-post", hours.x
    )  # fmt: skip
    (panel,) = figures.draw_curves([energy], "global_accuracy", "energy").axes
    assert panel.get_xlabel() == "energy of all clients (Wh)"


def sized(write_run):
    """Two ways to split, and mixes of two levels and of three."""
    mixes = {"a": {"a": 4000}, "a-c": {"a": 4000, "c": 2000}, "c": {"c": 2000}, "a1-c3": {"a": 4000, "c": 1400}}
    mixes["a-b-c"] = {"a": 4000, "b": 3300, "c": 2000}
    return [
        write_run(f"{way}{mix}", [value], f"name=of_{mix}", f"levels.mix={mix}", *overrides, sizes=sizes)
        for way, overrides in (("iid", ()), ("labels", ("partition={name: labels, per_client: 2, clients: 100}",)))
        for value, (mix, sizes) in enumerate(mixes.items(), 50)
    ]


def test_size_series_connect_mixes_and_are_labelled_by_differences(write_run):
    series = figures.size_series(groups(*sized(write_run)), *SIZES)
    assert [one.label for one in series] == ["partition=iid", "partition=labels"]
    assert [(point.label, *point.x) for point in series[0].points] == [
        ("c", 2000), ("a1-c3", 2700), ("a-c", 3000), ("a-b-c", approx(3100)), ("a", 4000)
    ]  # fmt: skip
    assert series[0].lines == [[0, 1, 2, 4]]
    # Labels of points overlap neither each other nor the legend. Both ways reach the same values, so that five places
    # have to hold ten labels.
    figure = figures.draw_sizes(series, *SIZES)
    (panel,) = figure.axes
    assert sorted(text.get_text() for text in panel.texts) == sorted(["a", "a-b-c", "a-c", "a1-c3", "c"] * 2)
    drawn = [text.get_window_extent() for text in panel.texts]
    assert not any(one.overlaps(other) for one, other in itertools.combinations(drawn, 2))
    (axes,), (where,), _ = boxes(figure)
    assert not where.overlaps(axes) and panel.get_xlabel() == "parameters of a client, mean of the mix (thousands)"


def reported(run, *values, metric="global_accuracy"):
    """Published values of the recipe of a run."""
    runs = {published.fingerprint(run.keys): ""}
    return [published.PublishedValue("paper/row", metric, value, "A paper", "digits", runs=runs) for value in values]


def test_published_values_are_drawn_for_matching_runs(write_run):
    runs = groups(
        write_run("a", [10.0], "name=wide", "levels.mix=a"), write_run("c", [20.0], "name=narrow", "levels.mix=c")
    )
    values = reported(*runs["wide"], 91.0, 93.0, 91.0) + reported(*runs["narrow"], 5.0, metric="local_accuracy")
    narrow, wide = drawn = figures.learning_curves(runs, *ACCURACY, values)
    assert (narrow.published, wide.published) == ((), (91.0, 93.0))
    figure = figures.draw_curves(drawn, *ACCURACY)
    thin = [line for line in figure.axes[0].get_lines() if line.get_linewidth() == figures.PUBLISHED_LINE_WIDTH]
    assert [line.get_ydata()[0] for line in thin] == [91.0, 93.0]
    assert {line.get_color() for line in thin} == {style.line_style(wide.index)["color"]}
    assert figure.legends[0].get_title().get_text() == "thin lines: published"
    # Over the size of models they are hollow points.
    others, runs = runs, groups(write_run("alone", [5.0], sizes={"a": 4000}))
    series = figures.size_series(runs, *SIZES, reported(*runs["tiny_digits"], 91.0))
    figure = figures.draw_sizes(series, *SIZES)
    (hollow,) = (line for line in figure.axes[0].get_lines() if line.get_markerfacecolor() == "none")
    assert (list(hollow.get_xdata()), list(hollow.get_ydata())) == ([4.0], [91.0])
    assert figures.legend_title(series[0].points, "hollow") == "hollow: published"
    assert refusal(figures.size_series, runs, *SIZES, reported(*others["wide"], 1.0)) == (
        "no drawn run matches a published value of global_accuracy; omit --published, or name another table. "
        "Received: --published, which is paper/row"
    )


def test_figures_without_data_are_refused(write_run):
    runs = groups(write_run("one", [10.0], traffic=False))
    known = "known: global_accuracy, global_loss, loss. Received: metric=local_std"
    assert refusal(figures.learning_curves, runs, "local_std", "round") == f"no run has this metric; {known}"
    hint = "; train with --fleet, or add --fleet NAME to time finished runs"
    for x, more in (("seconds", ""), ("device_hours", hint)):
        message = f"no run has {x} of an evaluated round{more}. Received: x={x}"
        assert refusal(figures.learning_curves, runs, "loss", x) == message
    assert refusal(figures.size_series, runs, "loss", "parameters") == (
        "no run has costs.json, which resuming the training adds. Received: x=parameters"
    )


def boxes(figure):
    """Bounding boxes of axes with all their labels, and of legends."""
    figure.draw_without_rendering()
    axes = [panel.get_tightbbox() for panel in figure.axes]
    return axes, [one.get_window_extent() for one in figure.legends], figure.bbox


@pytest.mark.parametrize("many", [1, 9])
def test_figure_shows_curves_and_a_separate_legend(many):
    drawn_curves = [
        figures.Curve(f"run number {n} $x$", n, [1, 2, 3], [n, n + 1, n], [0] * 3, [9] * 3, 2) for n in range(many)
    ]
    figure = figures.draw_curves(drawn_curves, "level_accuracy_a", "round")
    (panel,), (legend,) = figure.axes, figure.legends
    assert (panel.get_xlabel(), panel.get_ylabel()) == ("round", "accuracy of level a (%)")
    for line, drawn in zip(panel.get_lines(), drawn_curves, strict=True):
        assert list(line.get_xdata()) == drawn.x and list(line.get_ydata()) == drawn.mean
    assert len(panel.collections) == many
    assert [text.get_text() for text in legend.get_texts()] == [drawn.label for drawn in drawn_curves]
    assert legend.get_title().get_text() == "mean and standard deviation of 2 seeds"
    (axes,), (where,), whole = boxes(figure)
    assert not where.overlaps(axes) and whole.x0 <= where.x0 and where.x1 <= whole.x1 and where.y0 >= whole.y0
    assert axes.height > 0.7 * (whole.height - where.height)


def test_wide_range_of_sizes_has_a_logarithmic_axis():
    series = figures.SizeSeries("", [curve(str(size), 0, [size], [1.0]) for size in (5e3, 9e4, 2e6)], [])
    figure = figures.draw_sizes([series], "loss", "parameters")
    (panel,) = figure.axes
    figure.draw_without_rendering()
    shown = {label.get_text(): label.get_window_extent() for label in panel.get_xticklabels() if label.get_text()}
    assert panel.get_xscale() == "log" and {"10", "200", "1,000"} <= set(shown)
    inside = [box for box in shown.values() if panel.bbox.x0 <= box.x0 and box.x1 <= panel.bbox.x1]
    assert not any(one.overlaps(other) for one, other in itertools.pairwise(inside))


def test_lines_differ_in_grey():
    looks = [style.line_style(index) for index in range(24)]
    assert len({(str(look["linestyle"]), look["marker"]) for look in looks[:12]}) == 12
    assert len({tuple(map(str, look.values())) for look in looks}) == 24


def test_equal_figures_give_equal_files(tmp_path):
    for name in ("one", "two"):
        figure = figures.draw_curves([curve()], "loss", "round")
        for suffix in style.SUFFIXES:
            style.save(figure, tmp_path / f"{name}{suffix}")
    for suffix, begin in ((".png", b"\x89PNG"), (".svg", b"<?xml"), (".pdf", b"%PDF")):
        content = (tmp_path / f"one{suffix}").read_bytes()
        assert content.startswith(begin) and content == (tmp_path / f"two{suffix}").read_bytes()
    assert refusal(style.save, figure, tmp_path / "one.jpeg") == (
        f"--out must end in .png, .svg or .pdf. Received: --out={tmp_path}/one.jpeg"
    )
    with pytest.raises(DiskProblem, match=r"none/one.png: could not write: No such file or directory"):
        style.save(figure, tmp_path / "none" / "one.png")


def test_untrusted_names_are_plain_text_in_figures():
    hostile = "<script>&\x1b[2J\n$\\frac{" + "x" * 99
    text = style.encode_figure(figures.draw_curves([curve(hostile)], "loss", "round"), "svg").decode()
    assert "<svg " in text and "<script" not in text and "\x1b" not in text


def test_command_draws_and_reports_the_figure(write_run, command, tmp_path, monkeypatch):
    folders, out = two_seeds(write_run), tmp_path / "curves.png"

    def plot(*words):
        return command("plot", *folders, *words)

    assert plot("--out", out) == (
        0, f"drew global_accuracy over round into {out}\n", f"not finished: {folders[1]}, 2 of 3 rounds\n"
    )  # fmt: skip
    plain = out.read_bytes()
    run = gather(folders)[0][0]
    monkeypatch.setattr(published, "read_published", lambda: reported(run, 91.0))
    assert plot("--out", out, "--published", "paper")[0] == 0 and out.read_bytes() != plain
    assert plot("--out", out, "--published", "heterofl-cifar10")[0] == 2
    missing = "hetero_tf: --out is missing; name the picture to write, such as curves.png or curves.svg\n"
    assert plot() == (2, "", missing)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    missing = "hetero_tf: plot needs matplotlib, which is not installed; pip install 'hetero_tf[plot]'\n"
    assert plot("--out", out)[::2] == (2, missing)


def test_a_figure_of_a_column_has_its_width_type_and_whole_labels():
    figure = figures.draw_sizes([figures.SizeSeries("", [curve("a", 0, [1e4])], [])], "loss", "parameters", 3.3)
    content = style.encode_figure(figure, "pdf")
    (panel,) = figure.axes
    assert figure.get_figwidth() == 3.3 and panel.xaxis.label.get_fontsize() == 9
    box = panel.xaxis.label.get_window_extent()
    assert box.x0 >= 0 and box.x1 <= figure.bbox.width and "\n" in panel.get_xlabel()
    # TrueType, not Type 3.
    assert b"/FontFile2" in content and b"/Type3" not in content


def test_bands_are_the_spread_of_tables(write_run):
    folders = [write_run(f"s{seed}", [value], f"seed={seed}") for seed, value in enumerate((10.0, 20.0, 60.0))]
    (drawn,) = figures.learning_curves(groups(*folders), *ACCURACY)
    (row,) = summaries.compare(groups(*folders), ["global_accuracy"])
    value = row["global_accuracy last"]
    assert (drawn.mean[0], drawn.high[0] - drawn.mean[0]) == approx((value["mean"], value["spread"]))
