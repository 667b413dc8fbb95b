"""A short campaign: some trials of every kind from a fixed seed."""

import pytest

from campaign import campaign

pytestmark = pytest.mark.long

CASES = ("heterofl", "text", "scaffold")


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    campaign_world = campaign.World(tmp_path_factory.mktemp("campaign"), CASES)
    yield campaign_world
    campaign_world.close()


@pytest.mark.parametrize("kind", campaign.KINDS)
def test_trials_of_every_kind_pass(world, kind):
    counts, failures = campaign.campaign(world, [kind], seed=1, trials=1)
    assert failures == []
    assert sum(counts[kind].values()) == campaign.AT_ONCE.get(kind, 1)


def test_failed_trials_are_reported(world, monkeypatch):
    """A trial fails by `Failed` or by any other exception."""

    def broken(world, rng):
        raise campaign.Failed("other results")

    def wrong(world, rng):
        return {}["x"]

    monkeypatch.setitem(campaign.KINDS, "broken", broken)
    monkeypatch.setitem(campaign.KINDS, "wrong", wrong)
    counts, failures = campaign.campaign(world, ["broken", "wrong"], seed=0, trials=1, on_failure=lambda line: None)
    assert counts == {"broken": {"FAILED": 1}, "wrong": {"FAILED": 1}}
    assert failures[0] == "broken 0.0: other results" and failures[1].startswith("wrong 0.0: KeyError: 'x' (test_")
