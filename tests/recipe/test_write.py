"""The resolved text of a recipe, and the keys in which two differ."""

import pytest
from bad_recipes import BASE

from hetero_tf import recipe
from hetero_tf.base.errors import InputError
from hetero_tf.recipe.recipe_files import shipped


@pytest.mark.parametrize("name", sorted(shipped()))
def test_resolved_text_reads_back(name):
    loaded = recipe.load(name)
    again = recipe.loads(loaded.source, "recipe.yaml")
    assert again == loaded
    assert again.source == loaded.source
    # Digests of recipes depend on the types of the values too.
    assert repr(recipe.keys_of(loaded)) == repr(recipe.keys_of(loaded.source))


def test_recipes_of_earlier_runs_may_keep_the_only_value_of_keys_that_left():
    assert recipe.loads(f"{BASE}evaluate: {{members: first}}\n") == recipe.loads(BASE)
    with pytest.raises(InputError, match="evaluate.members: unknown key 'members'"):
        recipe.loads(f"{BASE}evaluate: {{members: best}}\n")


def test_resolved_text_holds_defaults_and_tags_and_a_null_part_is_one_line():
    source = recipe.loads(BASE).source
    for piece in ("keep: 2", "clip_norm: 1.0", "precision: float32", "!setting blocks.1", "!w 16", "!classes"):
        assert piece in source
    old = recipe.loads(BASE).source
    new = recipe.loads(BASE, overrides=["client.update={name: clip, norm: 2}", "fleet=phones"]).source
    assert recipe.changed_keys(old, new) == ["fleet: null -> set", "client.update: null -> set"]
    assert recipe.changed_keys(new, old) == ["fleet: set -> null", "client.update: set -> null"]


@pytest.mark.parametrize("name", ["true", "12", "null", "1e5", "e1", "no", "a.b-c_d"])
def test_text_that_looks_like_something_else_reads_back_as_text(name):
    loaded = recipe.loads(BASE.replace("name: base", f'name: "{name}"'))
    assert loaded.name == name
    assert recipe.loads(loaded.source) == loaded


@pytest.mark.parametrize("path", ["a b, {c}: #d", "naïve — 数据/x.npz", "C:\\\\data", "it''s", "- x", "!w 3", "😀"])
def test_odd_text_reads_back(path):
    text = BASE.replace("data: {name: synthetic, kind: images}", f"data: {{name: npz, path: '{path}'}}")
    loaded = recipe.loads(text)
    assert loaded.data.loader.options["path"] == path.replace("''", "'")
    assert recipe.loads(loaded.source) == loaded


def test_difference_names_keys_and_both_values():
    changed = ("round.clients=6", "schedule=constant", "model.layers[3].Dense.use_bias=false")
    changed = [*changed, "optimizer.clip_norm=null"]
    old, new = (recipe.loads(BASE, overrides=overrides).source for overrides in ([], changed))
    assert recipe.changed_keys(old, new) == [
        "round.clients: 5 -> 6",
        "optimizer.clip_norm: 1.0 -> null",
        "schedule.name: 'steps' -> 'constant'",
        "schedule.at: [1, 2] -> absent",
        "schedule.factor: 0.1 -> absent",
        "model.layers[3].Dense.use_bias: absent -> false",
    ]


def test_runs_do_not_differ_where_sizes_only_moved_into_the_settings():
    direct = BASE.replace("filters: !w 16", "filters: !w 8")
    named = BASE.replace("{norm: sbn,", "{norm: sbn, size: !w 8,").replace("filters: !w 16", "filters: !setting size")
    one, other = (recipe.loads(text).source for text in (direct, named))
    assert one != other and recipe.changed_keys(one, other) == []
    assert recipe.changed_keys(recipe.loads(BASE).source, other) == [
        "model.layers[0][0].PaddedConv2D.filters: !w 16 -> !setting size",
        "model.settings.size: absent -> !w 8",
    ]
