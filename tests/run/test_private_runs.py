"""Private runs in folders: the noise continues after a kill, the budget ends them, and results show epsilon."""

import json
import re
import stat

import programs
import pytest
import runs

from hetero_tf.base.errors import InputError
from hetero_tf.devices.device_index import check_deployable
from hetero_tf.reports import describe
from hetero_tf.reports.tables import to_text
from hetero_tf.runs.history import gather, grouped

pytest.importorskip("dp_accounting", reason="needs the extra `privacy`, dp-accounting")
PRIVATE = (
    programs.RECIPE.replace("sbn", "none").replace("{clients: 2}", "{clients: 2, selection: poisson, label_rows: all}")
    + "privacy: {clip: 0.5, noise: 0.7, delta: 0.01}\n"
)
# Cohorts of fixed size, in runs whose clients do not train.
FIXED = PRIVATE.replace("selection: poisson, ", "")
train_stub = runs.train_stub


@pytest.mark.long
def test_a_killed_run_continues_with_the_same_noise(train, tmp_path):
    """Bit-equal rows and weights with the key of the folder; a run of another key differs."""
    whole, resumed, other = (tmp_path / name for name in ("whole", "resumed", "other"))
    _, output = train(whole, PRIVATE)
    assert "privacy: epsilon " in output and "0.5" in output
    key = whole / "noise.json"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    for folder, content in (
        (resumed, key.read_text()),
        (other, re.sub('"key":"[0-9a-f]+"', f'"key":"{"0" * 64}"', key.read_text())),
    ):
        # As a kill before the first checkpoint leaves it.
        folder.mkdir()
        (folder / "run.lock").touch()
        (folder / "noise.json").write_text(content)
    with pytest.raises(runs.Stopped):
        train(resumed, PRIVATE, console=runs.StoppingConsole(2))
    train(resumed, PRIVATE)
    assert runs.rows(resumed) == runs.rows(whole)
    assert runs.arrays(resumed / "checkpoints") == runs.arrays(whole / "checkpoints")
    epsilons = [row["epsilon"] for row in runs.rows(whole)]
    assert epsilons == sorted(epsilons) and len(set(epsilons)) == 4
    train(other, PRIVATE)
    assert runs.arrays(other / "checkpoints") != runs.arrays(whole / "checkpoints")
    # The secret is in no other file of the folder.
    secret = json.loads(key.read_text())["key"].encode()
    others = [path for path in whole.rglob("*") if path.is_file() and path != key]
    assert others and not any(secret in path.read_bytes() for path in others)


def test_a_run_without_its_noise_is_not_continued(train_stub, tmp_path):
    train_stub(tmp_path, FIXED, "rounds=1")
    (tmp_path / "noise.json").write_text("{}")
    with pytest.raises(InputError, match=r"noise.json: .*key"):
        train_stub(tmp_path, FIXED, "rounds=2")
    (tmp_path / "noise.json").unlink()
    with pytest.raises(InputError, match="noise.json: is missing, so the noise of this run cannot be continued"):
        train_stub(tmp_path, FIXED, "rounds=2")
    assert len(runs.rows(tmp_path)) == 1


@pytest.mark.long
def test_a_spent_budget_ends_the_run(train_stub, tmp_path):
    """The noise is that of the first start, so more rounds than it was calibrated for exceed the budget."""
    budget = ("privacy={clip: 0.5, epsilon: 20, delta: 0.01, seed: 1}", "rounds=2")
    train_stub(tmp_path, FIXED, *budget)
    rows = runs.rows(tmp_path)
    assert rows[-1]["epsilon"] <= 20
    with pytest.raises(InputError, match=r"budget epsilon 20 is spent after 2 rounds at noise .* Received: rounds=3"):
        train_stub(tmp_path, FIXED, *budget, "rounds=3")
    assert runs.rows(tmp_path) == rows
    process = runs.built(FIXED, *budget)
    with pytest.raises(InputError, match="is spent after 2 rounds"):
        process.plan(2)


def test_results_show_epsilon(train_stub, tmp_path):
    private, plain = tmp_path / "private", tmp_path / "plain"
    train_stub(private, FIXED, "rounds=2")
    train_stub(plain, programs.RECIPE, "name=plain", "rounds=2")
    lines = to_text(grouped(gather([private, plain])[0])).splitlines()
    head = next(line for line in lines if "epsilon" in line)
    epsilon = f"{runs.rows(private)[-1]['epsilon']:.4g}"
    (of_private,) = (line for line in lines if line.startswith("small"))
    assert of_private[: head.index("epsilon") + len("epsilon")].split()[-1] == epsilon
    description = describe.describe(runs.built(FIXED, "rounds=2"))
    assert f"privacy: epsilon {epsilon} at delta 0.01 after 2 rounds" in describe.to_text(description)
    assert "privacy.seed is fixed" in describe.to_text(describe.describe(runs.built(FIXED, "privacy.seed=1")))


def test_a_recipe_of_devices_is_refused():
    process = runs.built(FIXED, "levels.assignment=fixed")
    with pytest.raises(InputError, match=r"cannot be deployed on devices: .*Received: privacy"):
        check_deployable(process)
