"""A fleet by name, by file and as a mapping; errors name the file of the fleet and the line."""

import pytest
import tiny
from refusals import refusal

from hetero_tf import recipe
from hetero_tf.recipe.recipe_files import fleets

MINE = "devices:\n  phone: {gflops: 2, share: 1}\nspread: 0.5\n"


def load(*overrides, fleet="", name="r.yaml"):
    return recipe.loads(tiny.DENSE + fleet, name, overrides)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "mine.yaml").write_text(MINE)
    (tmp_path / "bad.yaml").write_text(MINE.replace("gflops", "gflop"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", fleets())
def test_shipped_fleets_are_valid_by_name_and_in_the_resolved_text(name):
    loaded = load(f"fleet={name}")
    assert loaded.fleet == load(fleet=f"fleet: {name}\n").fleet == recipe.loads(loaded.source).fleet
    assert loaded.fleet.devices


def test_a_file_is_relative_to_its_recipe_and_to_the_working_folder_of_a_flag(folder):
    (folder / "inner").mkdir()
    (folder / "inner" / "r.yaml").write_text(tiny.DENSE + "fleet: ../mine.yaml\n")
    assert (
        recipe.load("inner/r.yaml").fleet
        == load("fleet=mine.yaml").fleet
        == load(fleet=f"fleet:\n {MINE[:-1].replace(chr(10), chr(10) + ' ')}\n").fleet
    )


def test_later_changes_apply_to_the_fleet_of_a_name(folder):
    assert load("fleet.spread=0", fleet="fleet: mine.yaml\n").fleet.spread == 0
    assert load("fleet=null", fleet="fleet: mine.yaml\n").fleet is None
    (folder / "base.yaml").write_text(tiny.DENSE + "fleet: mine.yaml\n")
    (folder / "spread.yaml").write_text("base: base.yaml\nfleet: {spread: 0.1}\n")
    (folder / "name.yaml").write_text("base: base.yaml\nfleet: uniform\n")
    changed, replaced = recipe.load("spread.yaml").fleet, recipe.load("name.yaml").fleet
    assert (changed.spread, list(changed.devices)) == (0.1, ["phone"])
    assert replaced == load("fleet=uniform").fleet


@pytest.mark.parametrize("overrides", [(), ("fleet=bad.yaml",)])
def test_errors_in_a_file_name_its_line(folder, overrides):
    message = refusal(load, *overrides, fleet="" if overrides else "fleet: bad.yaml\n")
    assert message.startswith("bad.yaml:2:11: fleet.devices.phone.gflop: unknown key 'gflop'; did you mean 'gflops'?")


def test_unknown_fleets_and_files(folder):
    assert refusal(load, fleet="fleet: phone\n").startswith("r.yaml:")
    assert "fleet: no shipped fleet is called 'unifrm' (a path ends in .yaml); did you mean 'uniform'?" in refusal(
        load, fleet="fleet: unifrm\n"
    )
    assert refusal(load, "fleet=no.yaml") == "--set fleet=no.yaml: fleet: the file 'no.yaml' does not exist"
