"""Run folders are named after the recipe and its changes, so different runs never share one."""

import re

import programs
import pytest

from hetero_tf.recipe import load
from hetero_tf.recipe.naming import LONGEST, run_name, short_name


def named(*overrides, path="mnist"):
    return run_name(load(path, overrides), path, overrides)


@pytest.mark.parametrize(
    ("overrides", "name"),
    [
        ([], "mnist"),
        (["rounds=9", "engine=sequential", "evaluate.levels=all", "evaluate={levels: all}"], None),
        (["levels.mix=e", "seed=1"], "mnist-levels.mix=e-seed=1"),
        (["seed=1", "levels.mix=e", "rounds=3"], "mnist-levels.mix=e-seed=1"),
        (["seed=1", "seed=2"], "mnist-seed=2"),
        (["seed=0", "precision=float32", "levels.mix=a1-e1"], "mnist"),
        (["name=x"], "x"),
        (["name=x", "seed=3"], "x-seed=3"),
        (["model.settings.channels[0]=!w 32"], None),
        (["optimizer.learning_rate=0.1"], "mnist-optimizer.learning_rate=0.1"),
    ],
)
def test_run_name_contains_every_change_that_matters(overrides, name):
    name_of_run = named(*overrides)
    if name is not None:
        assert name_of_run == name
    assert len(name_of_run) <= LONGEST and re.fullmatch(r"[A-Za-z0-9_.,+=-]+", name_of_run)


def test_runs_that_must_not_share_a_folder_have_different_names():
    many = [f"levels.widths.{letter}=0.{number}" for letter, number in zip("bcde", (51, 26, 13, 7), strict=True)]
    many += ["optimizer.learning_rate=0.012345", "optimizer.momentum=0.123456"]
    cases = [
        ["partition={name: labels, clients: 100, per_client: 2}"],
        ["partition={name: labels, clients: 100, per_client: 3}"],
        ["partition={name: labels, clients: 100}", "partition.clients=50"],
        ["partition.clients=50", "partition={name: labels, clients: 100}"],
        ["model.settings.channels[0]=!w 32"],
        ["model.settings.channels=[!w 32, !w 128, !w 256, !w 512]", "seed=1"],
        ["levels.mix=a-e", "levels.assignment=fixed"],
        ["fleet=phones", "fleet.jitter=0.5"],
        ["fleet.jitter=0.5", "fleet=phones"],
        ["data={name: npz, path: a/b.npz}"],
        ["data={name: npz, path: a_b.npz}"],
        [*many, "client.batch_size=11"],
        [*many, "client.batch_size=12"],
    ]
    names = [named(*overrides) for overrides in cases]
    assert len(set(names)) == len(cases), names
    assert max(map(len, names)) <= LONGEST


def test_more_rounds_of_a_command_are_the_same_run_and_a_recipe_that_needs_its_overrides_has_a_name(tmp_path):
    assert named("levels.mix=e", "rounds=2") == named("levels.mix=e") == named("levels.mix=e", "rounds=900")
    path = tmp_path / "mine.yaml"
    path.write_text("base: mnist\nname: mine\nlevels.mix: z\n")
    assert named("levels.mix=a-b", "rounds=3", path=path) == "mine-levels.mix=a-b"


def test_shortened_names_end_with_a_digest():
    assert short_name("x", {"a": "1"}, ["a: 0 -> 1"]) == "x-a=1"
    names = [short_name("x", {"a": value}, [value]) for value in ("b/c", "b c", "b" * 200)]
    assert names[0].startswith("x-a=b_c-") and names[1].startswith("x-a=b_c-") and len(set(names)) == 3
    assert len(names[2]) == LONGEST and short_name("", {"seed": "1"}, ["1"]) == "seed=1"
    assert short_name("x", {"a": "1"}, ["other"], exact=False).startswith("x-a=1-")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("my_model:build", "my_model.build"),
        ('"pkg.models:build"', "pkg.models.build"),
        ('{function: {name: "my_model:build", units: 64, form: a-b}}', "my_model.build,units=64,form=a-b"),
    ],
)
def test_the_function_of_a_model_stays_readable(value, text):
    changes = {"model": value, "seed": "1"}
    assert short_name("digits", changes, [value]) == f"digits-model={text}-seed=1"
    # What is no such function keeps its digest, as do functions beside changes without a name.
    assert re.search("-[0-9a-f]{8}$", short_name("digits", changes, [value], exact=False))
    assert re.search("-[0-9a-f]{8}$", short_name("digits", {"data.path": value}, [value]))
    assert re.search("-[0-9a-f]{8}$", short_name("digits", {"model": f"[{value}]"}, [value]))


@pytest.mark.long
def test_the_program_trains_in_the_folder_of_that_name_and_resumes_there(tmp_path):
    programs.recipe_file(tmp_path, programs.RECIPE.replace("sbn", "none"))
    words = ["--recipe", "small.yaml", "--set", "seed=5", "--set"]
    for rounds in (1, 2):
        run = programs.shared().run(*words, f"rounds={rounds}", cwd=tmp_path)
        assert run.code == 0, run.err
    assert "resumed runs/small-seed=5 after round 1\n" in run.out
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["small-seed=5"]
