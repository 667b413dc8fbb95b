"""Old spellings: the error that names the new one, and the rewrite of a text, which keeps everything else."""

import pytest
from bad_recipes import BASE
from refusals import refusal

from hetero_tf import recipe
from hetero_tf.recipe import old_spellings
from hetero_tf.recipe.old_spellings import in_new_spelling

EOL, EXIT = "\n", "rounds: 2\n"
COPIES = "Repeat: {times: 2, layer: {PaddedConv2D: {filters: 32}}"
REPEAT = BASE.replace("    - GlobalAverage", f"    - {COPIES}}}\n    - GlobalAverage")
CLIENT, LEVELS, ROUND, MODEL = "batch_size: 10", "  mix: a1-e9\n", "submodel: prefix", "model:\n"
FILE = "  initial_weights: weights.npz\n"
MERGE = "removed (every merge is the masked mean)"
TOLERANCE = "removed (levels.tolerance replaces it for all methods)"
STAGES, REPEATED = "stages: {name: joint", "model.layers[2].Repeat"
# text before the key, old text, new text, change
ROWS = [
    (CLIENT, ", correction: none", ", correction: null", "client.correction: none -> client.correction: null"),
    (EXIT, "engine: slots", "engine: sequential", "engine: slots -> engine: sequential"),
    (EXIT, "engine: cohort", "engine: stacked", "engine: cohort -> engine: stacked"),
    (LEVELS, "  assignment: fix", "  assignment: fixed", "levels.assignment: fix -> levels.assignment: fixed"),
    (LEVELS, "  measure: flops", "  measure: multiply_adds", "levels.measure: flops -> levels.measure: multiply_adds"),
    (MODEL, f"{FILE}  fresh: [3_0_dense]", f"{FILE}  reinitialize: [3_0_dense]", "model.fresh -> model.reinitialize"),
    (COPIES, ", alike: true", ", same_initial_values: true", f"{REPEATED}.alike -> {REPEATED}.same_initial_values"),
    (ROUND, ", lost_share: 0.3", ", non_finite_share: 0.3", "round.lost_share -> round.non_finite_share"),
    (CLIENT, f", {STAGES}, tolerance: 0.05}}", f", {STAGES}}}", f"client.stages.tolerance: 0.05 -> {TOLERANCE}"),
    (ROUND, ", merge: masked_mean", "", f"round.merge: masked_mean -> {MERGE}"),
]


def written(base, piece, new):
    """The base with `new` after the piece, on a separate line if the piece ends one."""
    return base.replace(piece, piece + new + ("\n" if piece.endswith("\n") and new else ""), 1)


def changes(text):
    """The changes of a rewrite."""
    return [f"{spelling.before} -> {spelling.after}" for spelling in in_new_spelling(text, "r.yaml")[1]]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[1].strip(" ,"))
def test_an_old_spelling_is_rejected_and_rewritten(row):
    piece, old, new, change = row
    base = REPEAT if piece is COPIES else BASE
    text, expected = (written(base, piece, text) for text in (old, new))
    before, _, after = change.partition(" -> ")
    # The position is that of an old value, or else of the key.
    key, is_value = before.partition(":")[0].rpartition(".")[2], ": " in before and not after.startswith("removed")
    index = text.index(f"{key}: ") + is_value * len(f"{key}: ")
    position = f"{text.count(EOL, 0, index) + 1}:{index - text.rfind(EOL, 0, index)}"
    advice = f"remove it, since {after[9:-1]}" if after.startswith("removed") else f"use {after}"
    message = f"r.yaml:{position}: {before} is an old spelling; {advice}"
    assert refusal(recipe.loads, text, "r.yaml").splitlines()[0] == message
    assert in_new_spelling(text, "r.yaml")[0] == expected and changes(text) == [change]
    assert recipe.loads(expected).source and in_new_spelling(expected, "r.yaml") == (expected, [])


def test_every_old_spelling_has_a_row():
    olds = [change.partition(" -> ")[0].replace("[2]", "") for *_, change in ROWS]
    keys = {tuple(old.partition(":")[0].split(".")) for old in olds}
    assert keys == {*old_spellings.KEYS, *old_spellings.VALUES, *old_spellings.REMOVED}
    for path, values in old_spellings.VALUES.items():
        assert {f"{'.'.join(path)}: {value}" for value in values} <= set(olds)


@pytest.mark.parametrize(
    "override, before, after",
    [
        ("client.correction={name: none}", "client.correction: none", "client.correction: null"),
        ("client.correction.name=none", "client.correction: none", "client.correction: null"),
        ("engine=cohort", "engine: cohort", "engine: stacked"),
        ("round.lost_share=0.3", "round.lost_share", "round.non_finite_share"),
        ("round={clients: 3, lost_share: 0.3}", "round.lost_share", "round.non_finite_share"),
        ("model.fresh=[4_0_dense]", "model.fresh", "model.reinitialize"),
        (f"{REPEATED}.alike=true", f"{REPEATED}.alike", f"{REPEATED}.same_initial_values"),
    ],
)
def test_an_old_override_is_rejected_with_the_new_spelling(override, before, after):
    text = REPEAT.replace(CLIENT, f"{CLIENT}, correction: {{name: proximal, mu: 0.1}}").replace(MODEL, MODEL + FILE)
    message = refusal(recipe.loads, text, overrides=[override])
    assert message == f"--set {override}: {before} is an old spelling; use {after}"


def test_an_error_in_a_file_names_the_command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "below it.yaml").write_text(BASE + "engine: cohort\n")
    (tmp_path / "above.yaml").write_text("base: below it.yaml\n")
    assert refusal(recipe.load, "above.yaml").splitlines()[0] == (
        "below it.yaml:21:9: engine: cohort is an old spelling; use engine: stacked, or rewrite the file with "
        "`bin/hetero_tf upgrade 'below it.yaml'`"
    )


# old text of a recipe, sweep or part of one, and its rewrite
TEXTS = [
    # quotes, comments, spaces, line ends
    ("engine :  'cohort'  # fast\r\nrounds: 2\r\n", "engine :  'stacked'  # fast\r\nrounds: 2\r\n"),
    ('"round":\n  "lost_share": 0.30 # x\n', '"round":\n  "non_finite_share": 0.30 # x\n'),
    ("? engine\n: cohort", "? engine\n: stacked"),
    ("name: \u00e9\U0001f600 # \u2028\nengine: slots\n", "name: \u00e9\U0001f600 # \u2028\nengine: sequential\n"),
    ("round: {lost_share: 1}\nmodel: {fresh: [a]}", "round: {non_finite_share: 1}\nmodel: {reinitialize: [a]}"),
    # paths over a base
    ("base: mnist\nround.lost_share: 0.3\n", "base: mnist\nround.non_finite_share: 0.3\n"),
    ("base: x\n'model.layers[2].Repeat.alike': no\n", "base: x\n'model.layers[2].Repeat.same_initial_values': no\n"),
    ("base: x\nmodel.fresh[0]: fresh\n", "base: x\nmodel.reinitialize[0]: fresh\n"),
    ("base: x\nclient.correction.name: none\n", "base: x\nclient.correction: null\n"),
    # plug-ins in mappings
    ("client: {correction: {name: 'none' }, epochs: 1}", "client: {correction: null, epochs: 1}"),
    ("client:\n correction:\n  name: none # off\n epochs: 1", "client:\n correction:\n  null # off\n epochs: 1"),
    # removed keys
    ("round: {merge: masked_mean, clients: 2}", "round: {clients: 2}"),
    ("round: {clients: 2, merge: {name: masked_mean}}", "round: {clients: 2}"),
    ("round: {clients: 2,\n  merge: masked_mean}", "round: {clients: 2}"),
    ("round: {merge: masked_mean}", "round: {}"),
    ("round:\n  merge: masked_mean # why\n", "round:\n  {} # why\n"),
    ("round:\n  merge: masked_mean\n  clients: 2\n", "round:\n  clients: 2\n"),
    ("round:\n  clients: 2\n  merge: masked_mean", "round:\n  clients: 2\n"),
    ("round:\n  # a\n  merge: masked_mean  # b\n  clients: 2\n", "round:\n  # a\n  # b\n  clients: 2\n"),
    ("round:\n  merge:\n    name: masked_mean\n  clients: 2\n", "round:\n  clients: 2\n"),
    ("base: x\nround.merge: masked_mean\n", "base: x\n"),
    ("client: {stages: {name: joint, tolerance: .05}}", "client: {stages: {name: joint}}"),
    # sweeps
    ("set: {engine: cohort, round.lost_share: 0.3}", "set: {engine: stacked, round.non_finite_share: 0.3}"),
    ("grid:\n  engine: [cohort, auto, slots]\n", "grid:\n  engine: [stacked, auto, sequential]\n"),
    ("list:\n- round.merge: masked_mean\n  seed: 1\n", "list:\n- seed: 1\n"),
    ("parts:\n  - set: {levels: {assignment: fix}}\n", "parts:\n  - set: {levels: {assignment: fixed}}\n"),
    # nothing to change
    ("name: cohort\nlevels: {mix: fix}\nround: {merge: median} # lost_share", None),
    ("client: {stages: {name: joint, tolerance: 0.1}}", None),
]


@pytest.mark.parametrize("old, new", TEXTS, ids=[repr(old) for old, _ in TEXTS])
def test_a_rewrite_keeps_all_other_text(old, new):
    assert in_new_spelling(old, "r.yaml")[0] == (new or old)
    assert in_new_spelling(new or old, "r.yaml")[1] == []


@pytest.mark.parametrize(
    "text, message",
    [
        (
            "round: {non_finite_share: 0.2, lost_share: 0.7}",
            "r.yaml:1:32: round.lost_share is an old spelling; remove it, since round.non_finite_share is also set",
        ),
        (
            "client:\n  correction: {name: none, mu: 1}",
            "r.yaml: cannot be rewritten in this form; replace by hand: client.correction: none -> client.correction: null",
        ),
        (
            "engine: slots\nclient:\n  correction:\n    name: none\n    mu: 1\n",
            "r.yaml: cannot be rewritten in this form; replace by hand: engine: slots -> engine: sequential; "
            "client.correction: none -> client.correction: null",
        ),
        (
            'round: {"lost\\u005fshare": 1}',
            "r.yaml: cannot be rewritten in this form; replace by hand: round.lost_share -> round.non_finite_share",
        ),
        ("round: {lost_share: 1", "r.yaml:1:22: round: not valid YAML: expected ',' or '}', but got "),
    ],
)
def test_texts_that_cannot_be_rewritten(text, message):
    assert refusal(in_new_spelling, text, "r.yaml").startswith(message)


def test_other_merge_values_are_unknown():
    assert "round.merge: unknown key 'merge'" in refusal(recipe.loads, BASE, overrides=["round.merge=median"])
