"""The former section `availability` as a fleet and a policy."""

import pytest
from bad_recipes import BASE
from refusals import refusal

from hetero_tf import recipe
from hetero_tf.recipe.old_spellings import in_new_spelling

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
