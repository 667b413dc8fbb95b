"""Fill values, categories and vocabularies are those of the training examples that clients do not hold out."""

import numpy as np
import pytest
import tables
from refusals import refusal

from hetero_tf import data, recipe
from hetero_tf.base import registry
from hetero_tf.base.constraints import Plugin
from hetero_tf.data.partitions import iid
from hetero_tf.run.data import fit_data, split

N = 60


def load(loader, **options):
    defaults = {name: one.default for name, one in registry.options("data", loader).items() if not one.required}
    return data.load(Plugin(loader, {**defaults, **options}))


def load_table(folder, rare="rare"):
    """A table in which a number tells each row, and a category is that of one row."""
    rows = [f"{'' if n == 7 else n * n},{rare if n == 30 else 'ab'[n % 2]},{'uv'[n % 2]}" for n in range(N)]
    (folder / "t.csv").write_text("\n".join(["size,kind,label", *rows]) + "\n")
    return load("csv", path=str(folder / "t.csv"), label="label", missing="mean")


def test_fills_and_categories_of_a_table(tmp_path):
    table = load_table(tmp_path)
    sizes = table.train.x[:, 0]
    validation = np.flatnonzero(sizes > 900)
    fitted = table.without(validation)
    is_filled = ~np.isin(sizes, np.arange(N) ** 2)
    assert fitted.codec.fill == pytest.approx(np.delete(sizes, [*validation, *np.flatnonzero(is_filled)]).mean())
    assert table.codec.fill > 2 * fitted.codec.fill
    np.testing.assert_array_equal(fitted.train.y, table.train.y)
    (rare,) = np.flatnonzero(table.train.x[:, 1 + table.fields[1].codec.categories.index("rare")])
    message = "t.csv:32: column 'kind' has the value 'rare', which is not a category of the training rows; clients hold"
    assert message in refusal(table.without, np.array([rare]))


@pytest.mark.parametrize("tokenizer", ["words", "characters"])
def test_words_of_texts(tokenizer, tmp_path):
    lines = [f"common {'zebra' if n == 3 else 'horse'} {n % 5},{'uv'[n % 2]}" for n in range(N)]
    (tmp_path / "t.csv").write_text("\n".join(["text,label", *lines]) + "\n")
    texts = load("labelled_text", path=str(tmp_path / "t.csv"), tokenizer=tokenizer)
    token = texts.codec.vocabulary.index({"words": "zebra", "characters": "z"}[tokenizer])
    row = np.flatnonzero((texts.train.x == token).any(1))
    fitted = texts.without(row)
    assert (
        set(texts.codec.vocabulary) > set(fitted.codec.vocabulary)
        and texts.codec.vocabulary[token] not in fitted.codec.vocabulary
    )
    # The unknown token has id 1.
    assert 1 in fitted.train.x[row] and not (np.delete(fitted.train.x, row, 0) == 1).any()
    (tmp_path / "t.txt").write_text("\n".join(f"one two {'zebra' if n == 30 else 'horse'}" for n in range(100)))
    text = load("text", train=str(tmp_path / "t.txt"), rows=10, tokenizer=tokenizer)
    fitted = text.without(np.array([3]))
    lost = set(text.codec.vocabulary) - set(fitted.codec.vocabulary)
    assert lost == ({"zebra"} if tokenizer == "words" else set("zba")) and fitted.classes == text.classes - len(lost)


def test_held_out_clients_determine_the_validation_examples(tmp_path):
    table = load_table(tmp_path, rare="a")
    loaded = recipe.loads(tables.RECIPE, "tiny", ["partition={name: iid, clients: 3, held_out: 0.2}"])
    partition = split(loaded, table)
    fitted, same = fit_data(table, partition)
    np.testing.assert_array_equal(fitted.validation, partition.held_out.ids)
    assert same is partition and fitted.codec.fill != table.codec.fill
    (tmp_path / "t.txt").write_text("\n".join(f"w{n} w{n % 7}" for n in range(300)))
    text = load("text", train=str(tmp_path / "t.txt"), rows=30)
    rows = text.train.x, text.test.x
    partition = iid.split(*rows, text.classes, np.random.default_rng(0), clients=3, held_out=0.2)
    fitted, changed = fit_data(text, partition)
    assert changed.label_mask.shape == (3, fitted.classes) and fitted.classes < text.classes
    present = np.isin(np.arange(fitted.classes), fitted.train.x[partition.train[0]])
    np.testing.assert_array_equal(changed.label_mask[0], present)
