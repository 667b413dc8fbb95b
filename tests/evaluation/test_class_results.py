"""Results of each class: recall, precision and confusion of known predictions, and their table, JSON and figure."""

import json

import numpy as np
import programs
import pytest
from matplotlib.figure import Figure

from hetero_tf.base.errors import InputError
from hetero_tf.evaluation.class_results import MAX_ROWS, ClassResults
from hetero_tf.recipe import load
from hetero_tf.run.learning_process import learning_process

RESULTS = ClassResults.of(np.array([0, 0, 0, 1, 1]), np.array([0, 0, 1, 1, 1]), ("cat", "dog", "cow"))


def test_counts_recall_and_precision_of_a_task_with_classes():
    assert RESULTS.matrix.tolist() == [[2, 1, 0], [0, 2, 0], [0, 0, 0]]
    np.testing.assert_allclose(RESULTS.recall, [200 / 3, 100, np.nan])
    np.testing.assert_allclose(RESULTS.precision, [100, 200 / 3, np.nan])
    assert RESULTS.to_json()["recall"][2] is None and RESULTS.to_json()["confusion_matrix"][0] == [2, 1, 0]
    process = learning_process(load("tiny/table_regression"))
    with pytest.raises(InputError, match="need the task classification or segmentation .* task regression"):
        process.class_results(process.initialize())


def test_the_table_begins_with_the_lowest_recall():
    head, *rows = RESULTS.to_text().splitlines()
    assert " ".join(head.split()) == "class examples recall % precision % most often predicted instead"
    assert [row.split() for row in rows] == [
        ["cat", "3", "66.7", "100.0", "dog", "(1)"],
        ["dog", "2", "100.0", "66.7", "-"],
        ["cow", "0", "-", "-", "-"],
    ]
    many = ClassResults.of(np.arange(40), np.arange(40), tuple(map(str, range(40))))
    assert many.to_text().splitlines()[-1] == f"and {40 - MAX_ROWS} classes with a higher recall"


@pytest.mark.long
def test_evaluate_prints_and_draws_the_classes(tmp_path):
    programs.recipe_file(tmp_path)
    program = programs.shared()
    assert program.run("--recipe", "small.yaml", "--run_dir", "run", cwd=tmp_path).code == 0
    command = ("evaluate", "--run_dir", "run", "--classes", "--draw", "classes.png", "--json")
    done = program.run(*command, cwd=tmp_path)
    assert done.code == 0, done.err
    written = json.loads(done.out)
    matrix = np.array(written["classes"]["confusion_matrix"])
    np.testing.assert_allclose(100 * np.trace(matrix) / matrix.sum(), written["global_accuracy"])
    assert "most often predicted instead" in done.err and (tmp_path / "classes.png").read_bytes()[1:4] == b"PNG"
    stored = json.loads((tmp_path / "run" / "classes.json").read_text())
    assert stored == {**written["classes"], "state": "best", "round": written["round"]}


@pytest.mark.parametrize(("classes", "names", "cells"), [(3, 3, 3), (20, 20, 0), (40, 0, 0)])
def test_a_figure_shows_shares_and_names_if_they_fit(classes, names, cells):
    figure = Figure()
    labels = np.arange(classes)
    ClassResults.of(labels, labels, tuple(f"class number {label} of all" for label in labels)).draw_into(figure)
    panel = figure.axes[0]
    shown = [text.get_text() for text in panel.get_yticklabels() if text.get_text().startswith("class")]
    assert shown == ["class number 0 of...", *shown[1:]][: len(shown)] and len(shown) == names
    assert [text.get_text() for text in panel.texts].count("100") == cells
