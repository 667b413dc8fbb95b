"""Old spellings: the error that names the new one, and the rewrite of a text, which keeps everything else."""

import pytest
from bad_recipes import BASE
from refusals import refusal

from hetero_tf import recipe
from hetero_tf.recipe import old_spellings
from hetero_tf.recipe.old_spellings import in_new_spelling

EXIT = "rounds: 2\n"
COPIES = "Repeat: {times: 2, layer: {PaddedConv2D: {filters: 32}}"
REPEAT = BASE.replace("    - GlobalAverage", f"    - {COPIES}}}\n    - GlobalAverage")
CLIENT, LEVELS, ROUND, MODEL = "batch_size: 10", "  mix: a1-e9\n", "submodel: prefix", "model:\n"
FILE = "  initial_weights: weights.npz\n"
MERGE = "removed (every merge is the masked mean)"
TOLERANCE = "removed (levels.tolerance replaces it for all methods)"
STAGES = "stages: {name: joint"

# text before the key, old text, new text, position, change
ROWS = [
    (CLIENT, ", correction: none", ", correction: null", "17:49", "client.correction: none -> client.correction: null"),
    (EXIT, "engine: slots", "engine: sequential", "21:9", "engine: slots -> engine: sequential"),
    (EXIT, "engine: cohort", "engine: stacked", "21:9", "engine: cohort -> engine: stacked"),
    (LEVELS, "  assignment: fix", "  assignment: fixed", "16:15", "levels.assignment: fix -> levels.assignment: fixed"),
    (
        LEVELS,
        "  measure: flops",
        "  measure: multiply_adds",
        "16:12",
        "levels.measure: flops -> levels.measure: multiply_adds",
    ),
    (
        MODEL,
        f"{FILE}  fresh: [3_0_dense]",
        f"{FILE}  reinitialize: [3_0_dense]",
        "8:3",
        "model.fresh -> model.reinitialize",
    ),
    (
        COPIES,
        ", alike: true",
        ", same_initial_values: true",
        "11:64",
        "model.layers[2].Repeat.alike -> model.layers[2].Repeat.same_initial_values",
    ),
    (ROUND, ", lost_share: 0.3", ", non_finite_share: 0.3", "16:39", "round.lost_share -> round.non_finite_share"),
    (
        CLIENT,
        f", {STAGES}, tolerance: 0.05}}",
        f", {STAGES}}}",
        "17:59",
        f"client.stages.tolerance: 0.05 -> {TOLERANCE}",
    ),
    (ROUND, ", merge: masked_mean", "", "16:39", f"round.merge: masked_mean -> {MERGE}"),
]


def written(base, piece, new):
    """The base with `new` after the piece, on a separate line if the piece ends one."""
    return base.replace(piece, piece + new + ("\n" if piece.endswith("\n") and new else ""), 1)


def changes(text):
    """The changes of a rewrite."""
    return [f"{spelling.before} -> {spelling.after}" for spelling in in_new_spelling(text, "r.yaml")[1]]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[1].strip(" ,"))
def test_an_old_spelling_is_rejected_and_rewritten(row):
    piece, old, new, position, change = row
    base = REPEAT if piece is COPIES else BASE
    text, expected = (written(base, piece, text) for text in (old, new))
    before, _, after = change.partition(" -> ")
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
        (
            "model.layers[2].Repeat.alike=true",
            "model.layers[2].Repeat.alike",
            "model.layers[2].Repeat.same_initial_values",
        ),
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
    (
        "name: \u00e9\u4e2d\U0001f600 # \u2028\nengine: slots\n",
        "name: \u00e9\u4e2d\U0001f600 # \u2028\nengine: sequential\n",
    ),
    ("round: {lost_share: 1}\nmodel: {fresh: [a]}", "round: {non_finite_share: 1}\nmodel: {reinitialize: [a]}"),
    # paths over a base
    ("base: mnist\nround.lost_share: 0.3\n", "base: mnist\nround.non_finite_share: 0.3\n"),
    ("base: x\n'model.layers[2].Repeat.alike': no\n", "base: x\n'model.layers[2].Repeat.same_initial_values': no\n"),
    ("base: x\nmodel.fresh[0]: fresh\n", "base: x\nmodel.reinitialize[0]: fresh\n"),
    ("base: x\nclient.correction.name: none\n", "base: x\nclient.correction: null\n"),
    # plug-ins in mappings
    ("client: {correction: {name: 'none' }, epochs: 1}", "client: {correction: null, epochs: 1}"),
    (
        "client:\n  correction:\n    name: none # off\n  epochs: 1",
        "client:\n  correction:\n    null # off\n  epochs: 1",
    ),
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


DEVICES = "{a: {seconds_per_step: 0.1, dropout: 0.2}, e: {seconds_per_step: 0.5, dropout: 0.2}}"
FLEET = f"fleet: {{assign: levels, jitter: 0.4, devices: {DEVICES}}}"
POLICY = "{name: deadline, seconds: 3, late: partial}"
AVAILABILITY = "{dropout: 0.2, deadline: 3, seconds_per_step: {a: 0.1, e: 0.5}, spread: 0.4, late: partial}"
FLOW_ROUND, BLOCK_ROUND = "round: {clients: 5, submodel: prefix}", "round:\n  # few\n  clients: 5\n  submodel: prefix"
TIMED_ROUND = BLOCK_ROUND.replace("clients", f"policy: {POLICY}\n  clients")
BLOCK = "availability:\n  dropout: 0.2  # of all\n  seconds_per_step: {a: 0.1,\n    e: 0.5}\n  spread: 0.4"
UNTIMED = "fleet: {devices: {any: {seconds_per_step: 1.0, dropout: 0.4}}}"
DEFAULTS = "availability: {dropout: 0.0, deadline: null, seconds_per_step: {}, spread: 0.0, late: drop}\n"
BASE_FILE = "base: tiny/digits\n"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            f"{BASE}availability: {AVAILABILITY}\n",
            f"{BASE.replace('{clients: 5', f'{{policy: {POLICY}, clients: 5')}{FLEET}\n",
        ),
        (
            BASE.replace(FLOW_ROUND, f"availability: {AVAILABILITY}\n{BLOCK_ROUND}"),
            BASE.replace(FLOW_ROUND, f"{FLEET}\n{TIMED_ROUND}"),
        ),
        (f"{BASE}{BLOCK}\n# end\n", f"{BASE}{FLEET}\n# end\n"),
        (BASE.replace("levels:\n", f"{DEFAULTS}levels:\n"), BASE),
        (f"{BASE}availability: {{dropout: 0.4}}\n", f"{BASE}{UNTIMED}\n"),
        (f"{BASE_FILE}availability: {AVAILABILITY}\n", f"{BASE_FILE}{FLEET}\nround.policy: {POLICY}\n"),
    ],
)
def test_availability_becomes_a_fleet_and_a_policy(old, new):
    assert in_new_spelling(old, "r.yaml")[0] == new and in_new_spelling(new, "r.yaml") == (new, [])
    if not old.startswith(BASE_FILE):
        assert recipe.loads(new)


@pytest.mark.parametrize(
    ("override", "advice"),
    [
        (f"availability={AVAILABILITY}", f"{FLEET} and round.policy: {POLICY}"),
        ("availability.dropout=0.4", UNTIMED),
        ("availability.spread=2", "fleet and round.policy, or remove it"),
    ],
)
def test_old_override_of_availability_is_rejected_with_the_new_keys(override, advice):
    message = refusal(recipe.loads, BASE, overrides=[override])
    shown = override if len(override) < 80 else message.partition("--set ")[2].partition(": availability is")[0]
    assert message == f"--set {shown}: availability is an old spelling; use {advice}"


def test_old_key_of_availability_in_a_sweep_is_replaced_by_hand():
    text = "base: tiny/digits\navailability.dropout: 0.4\n"
    message = "r.yaml:2:1: availability.dropout is an old spelling; use fleet: {devices: {any: {seconds_per_step: 1.0"
    assert refusal(in_new_spelling, text, "r.yaml").startswith(message)
