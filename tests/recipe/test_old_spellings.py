"""Old spellings in files, overrides and run folders: each is replaced and reported once with its position."""

import re

import pytest
from bad_recipes import BASE
from refusals import refusal

from hetero_tf import recipe
from hetero_tf.base.errors import InputError
from hetero_tf.recipe import old_spellings

EXIT = "rounds: 2\n"
COPIES = "Repeat: {times: 2, layer: {PaddedConv2D: {filters: 32}}"
REPEAT = BASE.replace("    - GlobalAverage", f"    - {COPIES}}}\n    - GlobalAverage")

CLIENT, LEVELS, ROUND = "batch_size: 10", "  mix: a1-e9\n", "submodel: prefix"
MODEL, PRODUCTS, SAME, SHARE = "model:\n", "multiply_adds", "same_initial_values", "non_finite_share"

FILE = "  initial_weights: weights.npz\n"

# piece behind which the key is written, old spelling, new spelling, what is said of it
ROWS = [
    (CLIENT, ", correction: none", ", correction: null", "17:49: client.correction: none is now called null"),
    (EXIT, "engine: slots", "engine: sequential", "21:9: engine: slots is now called sequential"),
    (EXIT, "engine: cohort", "engine: stacked", "21:9: engine: cohort is now called stacked"),
    (LEVELS, "  assignment: fix", "  assignment: fixed", "16:15: levels.assignment: fix is now called fixed"),
    (LEVELS, "  measure: flops", f"  measure: {PRODUCTS}", f"16:12: levels.measure: flops is now called {PRODUCTS}"),
    (
        MODEL,
        f"{FILE}  fresh: [3_0_dense]",
        f"{FILE}  reinitialize: [3_0_dense]",
        "8:3: model.fresh is now called reinitialize",
    ),
    (COPIES, ", alike: true", f", {SAME}: true", f"11:64: model.layers[2].Repeat.alike is now called {SAME}"),
    (ROUND, ", lost_share: 0.3", f", {SHARE}: 0.3", f"16:39: round.lost_share is now called {SHARE}"),
    (
        CLIENT,
        ", stages: {name: joint, tolerance: 0.05}",
        ", stages: {name: joint}",
        "17:59: client.stages.tolerance is levels.tolerance now, for all methods",
    ),
    (ROUND, ", merge: masked_mean", "", "16:39: round.merge is no longer a key; every merge is the masked mean"),
]


def written(base, piece, new):
    """The base with `new` after the piece, on a separate line if the piece ends one."""
    return base.replace(piece, piece + new + ("\n" if piece.endswith("\n") else ""), 1)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[1].strip(" ,"))
def test_an_old_spelling_in_a_file(row):
    piece, old, new, note = row
    base = REPEAT if piece is COPIES else BASE
    migrated, expected = (recipe.loads(written(base, piece, text), "r.yaml") for text in (old, new))
    assert migrated == expected and migrated.source == expected.source
    assert migrated.notes == (f"r.yaml:{note}",) and expected.notes == ()


def test_every_old_spelling_has_a_test():
    shown = {re.match(r"[\d:]+ ([\w.\[\]]+)", note)[1].replace("[2]", ".*") for *_, note in ROWS}
    assert {tuple(path.split(".")) for path in shown} == {
        *old_spellings.KEYS,
        *old_spellings.VALUES,
        *old_spellings.REMOVED,
    }
    for path, values in old_spellings.VALUES.items():
        for value in values:
            assert any(f" {'.'.join(path)}: {value} is now" in note for *_, note in ROWS), (path, value)


OVERRIDES = [
    ("client.correction={name: none}", "client.correction=null", "client.correction: none is now called null"),
    ("client.correction.name=none", "client.correction=null", "client.correction: none is now called null"),
    ("engine=cohort", "engine=stacked", "engine: cohort is now called stacked"),
    ("levels.assignment=fix", "levels.assignment=fixed", "levels.assignment: fix is now called fixed"),
    ("levels.measure=flops", "levels.measure=multiply_adds", "levels.measure: flops is now called multiply_adds"),
    ("round.lost_share=0.3", "round.non_finite_share=0.3", "round.lost_share is now called non_finite_share"),
    (
        "round={clients: 3, lost_share: 0.3}",
        "round={clients: 3, non_finite_share: 0.3}",
        "round.lost_share is now called non_finite_share",
    ),
    ("model.fresh=[4_0_dense]", "model.reinitialize=[4_0_dense]", "model.fresh is now called reinitialize"),
    (
        "model.layers[2].Repeat.alike=true",
        "model.layers[2].Repeat.same_initial_values=true",
        "model.layers[2].Repeat.alike is now called same_initial_values",
    ),
]


@pytest.mark.parametrize("old, new, note", OVERRIDES, ids=[row[0] for row in OVERRIDES])
def test_an_old_spelling_in_an_override(old, new, note):
    text = REPEAT.replace("batch_size: 10", "batch_size: 10, correction: {name: proximal, mu: 0.1}")
    text = text.replace(MODEL, MODEL + FILE)
    migrated, expected = (recipe.loads(text, overrides=[override]) for override in (old, new))
    assert migrated.source == expected.source != recipe.loads(text).source
    assert migrated.notes == (f"--set {old}: {note}",) and expected.notes == ()


def test_old_override_replaces_the_new_key_of_a_file():
    text = BASE.replace("submodel: prefix", "non_finite_share: 0.25")
    assert recipe.loads(text, overrides=["round.lost_share=0.75"]).round.non_finite_share == 0.75


def test_both_spellings_at_once_are_rejected():
    text = BASE.replace("submodel: prefix", "non_finite_share: 0.25, lost_share: 0.75")
    assert refusal(recipe.loads, text, "r.yaml").splitlines()[0] == (
        "r.yaml:16:45: round.lost_share: is now called non_finite_share, which is also set; remove lost_share"
    )


def test_other_merge_values_are_unknown():
    with pytest.raises(InputError, match="round.merge: unknown key 'merge'"):
        recipe.loads(BASE, overrides=["round.merge=median"])


def test_stored_recipes_of_an_earlier_version_do_not_differ():
    new = recipe.loads(REPEAT, overrides=["levels.assignment=fixed", "engine=stacked", "levels.mix=a1-e1"]).source
    old = new.replace("assignment: fixed", "assignment: fix").replace("engine: stacked", "engine: cohort")
    old = old.replace("non_finite_share:", "lost_share:").replace("reinitialize:", "fresh:")
    old = old.replace("round: {", "round: {merge: masked_mean, ")
    assert old != new and recipe.difference(old, new) == []
    assert recipe.difference(old.replace("lost_share: 0.5", "lost_share: 0.4"), new) == [
        "round.non_finite_share: 0.4 -> 0.5"
    ]
