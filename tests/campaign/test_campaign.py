"""The campaign in short: some trials of every kind, drawn from a fixed seed."""

import pytest

from campaign import campaign

pytestmark = pytest.mark.long

CASES = ("heterofl", "text", "scaffold")


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    found = campaign.World(tmp_path_factory.mktemp("campaign"), CASES)
    yield found
    found.close()


# What seldom takes place needs the packages of the network.
@pytest.mark.parametrize("kind", [kind for kind in campaign.KINDS if kind not in campaign.SELDOM])
def test_a_trial_of_every_kind_passes(world, kind):
    counts, failures = campaign.campaign(world, [kind], seed=1, trials=1)
    assert failures == []
    assert sum(counts[kind].values()) == campaign.AT_ONCE.get(kind, 1)


def test_a_program_that_loses_or_invents_something_is_noticed(world, monkeypatch):
    """What a trial says that fails becomes a failure, as does any error inside of it."""

    def broken(world, rng):
        raise campaign.Failed("other results")

    def wrong(world, rng):
        return {}["x"]

    monkeypatch.setitem(campaign.KINDS, "broken", broken)
    monkeypatch.setitem(campaign.KINDS, "wrong", wrong)
    counts, failures = campaign.campaign(world, ["broken", "wrong"], seed=0, trials=1, tell=lambda line: None)
    assert counts == {"broken": {"FAILED": 1}, "wrong": {"FAILED": 1}}
    assert failures[0] == "broken 0.0: other results" and failures[1].startswith("wrong 0.0: KeyError: 'x' (test_")
