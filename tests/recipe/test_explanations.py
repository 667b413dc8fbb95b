"""`explain`: all glossary terms, recipe keys and plug-ins, without TensorFlow."""

import json

import programs
import pytest
from each import for_each
from refusals import refusal

from hetero_tf.base import registry
from hetero_tf.base.constraints import walk_keys
from hetero_tf.base.metrics import all_metrics
from hetero_tf.cli import main
from hetero_tf.recipe.explanations import explain
from hetero_tf.recipe.schema import Recipe


def test_glossary_terms_are_explained_and_unknown_ones_have_a_suggestion():
    assert explain("Coverage") == [
        "coverage: number of clients of the cohort that trained an entry of the global variables"
    ]
    assert explain("steps/s")[0].startswith("clients, steps, steps/s: in the live line")
    # A word may be one of the output and a plug-in.
    assert explain("steps")[0] == explain("steps/s")[0] and explain("steps")[1].startswith("schedules: steps: ")
    assert refusal(explain, "sedd") == (
        "unknown term 'sedd'; did you mean 'seed'?; see recipes/GLOSSARY.md for the terms of the output"
    )
    assert refusal(explain, "qqqqqqqq").count(";") == 1


@pytest.mark.parametrize("word", ["a3", "b3", "c4", "A3", "e10", "ab12", "phone7", "a3 b3 c4", "a0"])
def test_level_counts_are_explained(word):
    assert explain(word) == ["a3 b3 c4: active clients of each level"]


@pytest.mark.parametrize("word", ["3", "a", "a3b", "3a", "a-3", "a3.", "a3 b", "a٣"])
def test_unknown_terms_are_rejected(word):
    assert refusal(explain, word).startswith("unknown term ")


@for_each(all_metrics())
def test_level_metrics_are_explained(name):
    assert f"{name}: {all_metrics()[name].meaning}" in explain(name.replace("LEVEL", "c"))


def test_recipe_keys_are_explained_with_their_allowed_values():
    paths = [".".join(path) for path, _ in walk_keys(Recipe)]
    assert {"levels", "round.clients", "model.frozen", "evaluate.fine_tune.units"} <= set(paths)
    for path in paths:
        assert any(text.startswith(f"recipe key {path}: ") for text in explain(path)), path
    assert explain("checkpoint.keep") == [
        "recipe key checkpoint.keep: number of checkpoints to keep, in addition to that of the best round "
        "(a whole number from 1 to 1000000; default 2)"
    ]
    (text,) = explain("round.server")
    assert "(one of adagrad, adam, " in text and text.endswith("; default replace)")


@for_each(registry.KINDS)
def test_every_plugin_is_explained_with_its_options(kind):
    for name in registry.names(kind):
        (text,) = [text for text in explain(name) if text.startswith(f"{kind}: {name}: ")]
        first, *options = text.split("\n")
        assert len(first) > len(f"{kind}: {name}: ") + 10
        assert [line.split(":")[0].strip() for line in options] == list(registry.options(kind, name))


def test_the_command_prints_text_or_json_and_loads_no_tensorflow(capsys):
    assert main.main(["hetero_tf", "explain"]) == 2
    assert "explain needs a word, such as coverage" in capsys.readouterr().err
    done = programs.python(
        "import sys; from hetero_tf.cli.main import main; code = main(['x', 'explain', 'mix', 'proximal', '--json']);"
        "assert 'tensorflow' not in sys.modules; raise SystemExit(code)"
    )
    explanations = json.loads(done.stdout)
    assert done.returncode == 0 and list(explanations) == ["mix", "proximal"] and len(explanations["mix"]) == 2
