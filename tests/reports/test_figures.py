"""Figures of runs: what is drawn is what the runs measured, legends cover nothing, and files are whole."""

import itertools

import pytest
from refusals import refusal

from hetero_tf.base.errors import DiskProblem
from hetero_tf.cli import interrupts, main
from hetero_tf.reports import curves, figures, published, style
from hetero_tf.runs.history import gather, grouped

pytest.importorskip("matplotlib")


@pytest.fixture
def in_style():
    with style.in_use("plot"):
        yield


def groups(*folders):
    return grouped(gather(folders)[0])


def two_seeds(write_run, place="runs"):
    return [
        write_run(f"{place}/w0", [10.0, 40.0, 30.0], "name=wide", seconds=2.0),
        write_run(f"{place}/w1", [20.0, 50.0], "name=wide", "seed=1", "rounds=3", seconds=4.0),
        write_run(f"{place}/n0", [15.0, None, 60.0], "name=narrow"),
    ]


def test_curves_are_means_with_a_band_at_the_rounds_that_all_seeds_have(write_run):
    narrow, wide = curves.learning_curves(groups(*two_seeds(write_run)), "global_accuracy", "round", "range")
    assert (narrow.label, narrow.x, narrow.mean, narrow.low, narrow.seeds) == ("narrow", [1, 3], [15, 60], [15, 60], 1)
    assert (wide.label, wide.x, wide.mean, wide.low, wide.high) == ("wide", [1, 2], [15, 45], [10, 40], [20, 50])
    (_, wide) = curves.learning_curves(groups(*two_seeds(write_run, "again")), "global_accuracy", "bytes", "std")
    assert wide.x == [4e6, 8e6] and wide.high[0] - wide.mean[0] == pytest.approx(50**0.5)


def test_losses_are_sorted_from_low_to_high_and_runs_without_times_have_no_curve_in_seconds(write_run):
    found = groups(*two_seeds(write_run))
    assert [one.label for one in curves.learning_curves(found, "global_loss", "round", "range")] == ["narrow", "wide"]
    (wide,) = curves.learning_curves(found, "global_accuracy", "seconds", "range")
    assert (wide.label, wide.x) == ("wide", [3.0, 6.0])


def sized(write_run):
    """Two ways to split, and mixes of two levels and of three."""
    mixes = {"a": {"a": 4000}, "a-c": {"a": 4000, "c": 2000}, "c": {"c": 2000}, "a1-c3": {"a": 4000, "c": 1400}}
    mixes["a-b-c"] = {"a": 4000, "b": 3300, "c": 2000}
    return [
        write_run(f"{way}{mix}", [value], f"name=of_{mix}", f"levels.mix={mix}", *overrides, sizes=sizes)
        for way, overrides in (("iid", ()), ("labels", ("partition={name: labels, per_client: 2, clients: 100}",)))
        for value, (mix, sizes) in enumerate(mixes.items(), 50)
    ]


def test_sizes_are_joined_between_two_levels_and_told_apart_by_what_differs(write_run):
    series = curves.size_series(groups(*sized(write_run)), "global_accuracy", "parameters", "range")
    assert [one.label for one in series] == ["partition=iid", "partition=labels"]
    points = series[0].points
    assert [(point.label, point.x) for point in points] == [
        ("c", 2000),
        ("a1-c3", 2700),
        ("a-c", 3000),
        ("a-b-c", pytest.approx(3100)),
        ("a", 4000),
    ]
    assert series[0].lines == [[0, 1, 2, 4]]
    (alone,) = curves.size_series(groups(sized_one(write_run)), "global_accuracy", "paper_flops", "range")
    assert (alone.label, alone.points[0].x, alone.lines) == ("", 750 * 4000, [])


def sized_one(write_run):
    return write_run("alone", [5.0], sizes={"a": 4000})


def reported(mix, *values, metric="global_accuracy"):
    """What papers report for a mix."""
    return [published.Value("paper/row", metric, value, "A paper", "digits", {"levels.mix": mix}) for value in values]


def test_published_values_are_drawn_beside_the_runs_of_their_recipe(in_style, write_run):
    found = groups(
        write_run("a", [10.0], "name=wide", "levels.mix=a"), write_run("c", [20.0], "name=narrow", "levels.mix=c")
    )
    values = [*reported("a", 91.0, 93.0, 91.0), *reported("c", 5.0, metric="local_accuracy")]
    narrow, wide = drawn = curves.learning_curves(found, "global_accuracy", "round", "range", values)
    assert (narrow.published, wide.published) == ((), (91.0, 93.0))
    figure = figures.draw_curves(drawn, "global_accuracy", "round", "range")
    thin = [line for line in figure.axes[0].get_lines() if line.get_linewidth() == figures.THIN]
    assert [line.get_ydata()[0] for line in thin] == [91.0, 93.0]
    assert {line.get_color() for line in thin} == {style.line(wide.place)["color"]}
    assert figure.legends[0].get_title().get_text() == "thin lines: published"
    assert refusal(curves.learning_curves, found, "loss", "round", "range", values) == (
        "no run that is drawn has the keys of a published value of loss; leave --published out, or name another table. "
        "Received: --published, which is paper/row"
    )


def test_published_values_are_hollow_beside_points_of_sizes(in_style, write_run):
    found, values = groups(sized_one(write_run)), reported("a-b-c", 91.0)
    series = curves.size_series(found, "global_accuracy", "parameters", "range", values)
    figure = figures.draw_sizes(series, "global_accuracy", "parameters", "range")
    (hollow,) = (line for line in figure.axes[0].get_lines() if line.get_markerfacecolor() == "none")
    assert (list(hollow.get_xdata()), list(hollow.get_ydata())) == ([4.0], [91.0])
    assert curves.explained(series[0].points, "range", "hollow") == "hollow: published"
    assert "which is paper/row" in refusal(
        curves.size_series, found, "global_accuracy", "parameters", "range", reported("b", 1.0)
    )


def test_what_cannot_be_drawn_is_refused(write_run):
    found = groups(write_run("one", [10.0], traffic=False))
    known = "known: global_accuracy, global_loss, loss. Received: metric=local_std"
    assert refusal(curves.learning_curves, found, "local_std", "round", "range") == f"no run measures it; {known}"
    assert refusal(curves.learning_curves, found, "loss", "seconds", "std") == (
        "no run has kept seconds of a round that was measured. Received: x=seconds"
    )
    assert refusal(curves.size_series, found, "loss", "parameters", "std") == (
        "no run has kept costs.json, which the same training adds. Received: x=parameters"
    )


def boxes(figure):
    """Where axes with all their labels, and legends, lie."""
    figure.draw_without_rendering()
    axes = [panel.get_tightbbox() for panel in figure.axes]
    return axes, [one.get_window_extent() for one in figure.legends], figure.bbox


@pytest.mark.parametrize("many", [1, 3, 9])
def test_a_figure_shows_the_curves_and_its_legend_covers_nothing(in_style, many):
    found = [curves.Curve(f"run number {n} $x$", n, [1, 2, 3], [n, n + 1, n], [0] * 3, [9] * 3, 2) for n in range(many)]
    figure = figures.draw_curves(found, "level_accuracy_a", "round", "std")
    (panel,) = figure.axes
    assert (panel.get_xlabel(), panel.get_ylabel()) == ("round", "accuracy of level a (%)")
    for line, curve in zip(panel.get_lines(), found, strict=True):
        assert list(line.get_xdata()) == curve.x and list(line.get_ydata()) == curve.mean
    assert len(panel.collections) == many
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [curve.label for curve in found]
    assert legend.get_title().get_text() == "mean and standard deviation of 2 seeds"
    (axes,), (where,), whole = boxes(figure)
    assert not where.overlaps(axes) and whole.x0 <= where.x0 and where.x1 <= whole.x1 and where.y0 >= whole.y0
    assert axes.height > 0.7 * (whole.height - where.height)


def test_points_are_named_without_covering_each_other(in_style, write_run):
    series = curves.size_series(groups(*sized(write_run)), "global_accuracy", "parameters", "range")
    figure = figures.draw_sizes(series, "global_accuracy", "parameters", "range")
    (panel,) = figure.axes
    names = [text for text in panel.texts if text.get_text()]
    assert sorted(text.get_text() for text in names) == sorted(["a", "a-b-c", "a-c", "a1-c3", "c"] * 2)
    drawn = [text.get_window_extent() for text in names]
    # Both ways reach the same, so that their points coincide: five places have to hold ten names.
    assert sum(one.overlaps(other) for one, other in itertools.combinations(drawn, 2)) == 0
    (axes,), (where,), _ = boxes(figure)
    assert not where.overlaps(axes) and panel.get_xlabel() == "parameters of a client, mean of the mix (thousands)"


def test_sizes_far_apart_stand_on_a_logarithmic_axis_with_plain_numbers(in_style):
    points = [curves.Point(str(size), frozenset("a"), size, 1.0, 1.0, 1.0, 1) for size in (5e3, 9e4, 2e6)]
    figure = figures.draw_sizes([curves.Series("", points, [])], "loss", "parameters", "range")
    (panel,) = figure.axes
    figure.draw_without_rendering()
    shown = [label.get_text() for label in panel.get_xticklabels()]
    assert panel.get_xscale() == "log" and {"10", "200", "1,000"} <= set(shown)
    drawn = [label.get_window_extent() for label in panel.get_xticklabels() if label.get_text()]
    inside = [box for box in drawn if panel.bbox.x0 <= box.x0 and box.x1 <= panel.bbox.x1]
    assert not any(one.overlaps(other) for one, other in itertools.pairwise(inside))


def test_lines_differ_in_grey_too():
    looks = [style.line(place) for place in range(24)]
    assert len({(str(look["linestyle"]), look["marker"]) for look in looks[:12]}) == 12
    assert len({tuple(map(str, look.values())) for look in looks}) == 24


def test_equal_figures_are_equal_files_and_wrong_endings_are_refused(in_style, tmp_path):
    for name in ("one", "two"):
        figure = figures.draw_curves([curves.Curve("a", 0, [1], [2], [2], [2], 1)], "loss", "round", "range")
        for suffix in style.SUFFIXES:
            style.save(figure, tmp_path / f"{name}{suffix}")
    for suffix, begin in ((".png", b"\x89PNG"), (".svg", b"<?xml"), (".pdf", b"%PDF")):
        content = (tmp_path / f"one{suffix}").read_bytes()
        assert content.startswith(begin) and content == (tmp_path / f"two{suffix}").read_bytes()
    assert refusal(style.save, figure, tmp_path / "one.jpeg") == (
        f"--out must end in .png, .svg or .pdf. Received: --out={tmp_path}/one.jpeg"
    )
    with pytest.raises(DiskProblem, match="none/one.png: could not write: No such file or directory"):
        style.save(figure, tmp_path / "none" / "one.png")


def test_names_of_strangers_are_plain_text_in_a_figure(in_style):
    hostile = "<script>&\x1b[2J\n$\\frac{" + "x" * 99
    curve = curves.Curve(hostile, 0, [1, 2], [2, 3], [2, 3], [2, 3], 1)
    text = style.inline(figures.draw_curves([curve], "loss", "round", "range"), hostile, "one")
    assert text.startswith("<svg ") and text.endswith("</svg>") and text.count("<script") == 0 and "\x1b" not in text
    assert 'role="img"' in text and " width=" not in text.partition(">")[0] and "<metadata" not in text


def command(capsys, *words):
    code = main.main(["hetero_tf", "plot", *words])
    return code, *capsys.readouterr()


def test_the_command_draws_and_says_what(write_run, capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(interrupts, "install", lambda sentence: None)
    folders, out = two_seeds(write_run), tmp_path / "curves.png"
    assert command(capsys, *folders, "--out", str(out)) == (
        0,
        f"drew global_accuracy against round into {out}\n",
        f"not finished: {folders[1]}, 2 of 3 rounds\n",
    )
    assert out.read_bytes().startswith(b"\x89PNG")
    own = tmp_path / "own.yaml"
    own.write_text("- {name: mine, source: A paper, setting: digits, recipe: {}, rows: {any: {global_accuracy: 91}}}\n")
    plain = out.read_bytes()
    for names in (own, f"{own},mine/any"):
        assert command(capsys, *folders, "--out", str(out), "--published", str(names))[0] == 0
        assert out.read_bytes() != plain
    assert command(capsys, *folders, "--out", str(out), "--published", "heterofl-cifar10")[0] == 2
    assert command(capsys, *folders) == (
        2,
        "",
        "hetero_tf: --out is missing; name the picture to write, such as curves.png or curves.svg\n",
    )
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    code, _, err = command(capsys, *folders, "--out", str(out))
    assert (code, err) == (
        2,
        "hetero_tf: plot needs matplotlib, which is not installed; pip install 'hetero_tf[plot]'\n",
    )
