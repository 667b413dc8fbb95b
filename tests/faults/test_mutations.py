"""Random damage to the files of two saved rounds: a correct round or an error, never wrong values."""

import os
import shutil
from collections import Counter

import harness
import numpy as np
import pytest

from hetero_tf.base.errors import InputError
from hetero_tf.runs import checkpoints

pytestmark = pytest.mark.long

MUTATIONS = 200
SEED = 0
KINDS = ("flip", "truncate", "zero", "delete", "swap", "append")


def tree(folder):
    """Return {path inside the folder: bytes}."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def mutate(folder, kind, rng):
    """Damage one file (swap: two); return a description of the damage."""
    names = sorted(tree(folder))
    name, other = rng.choice(names, 2, replace=False)
    path, data = folder / name, bytearray((folder / name).read_bytes())
    position = int(rng.integers(len(data)))
    if kind == "flip":
        data[position] ^= 1 << int(rng.integers(8))
    elif kind == "truncate":
        del data[position:]
    elif kind == "zero":
        data[position : position + 512] = bytes(len(data[position : position + 512]))
    elif kind == "append":
        data += rng.bytes(int(rng.integers(1, 600)))
    elif kind == "swap":
        data = bytearray((folder / other).read_bytes())
        (folder / other).write_bytes(path.read_bytes())
    path.write_bytes(data)
    if kind == "delete":
        path.unlink()
    return f"{kind} {name} at {position} ({other})"


def test_mutations_never_load_wrong_values(tmp_path):
    harness.fill(tmp_path / "template", [7, 8])
    before = tree(tmp_path / "template")
    rng, outcomes = np.random.default_rng(SEED), Counter()
    for number in range(MUTATIONS):
        folder = tmp_path / str(number)
        shutil.copytree(tmp_path / "template", folder)
        done = mutate(folder, KINDS[number % len(KINDS)], rng)
        after = tree(folder)
        bad = {int(name[6:12]) for name in before if after.get(name) != before[name]}
        good = {7, 8} - bad
        try:
            loaded = checkpoints.load_newest(folder)
        except InputError as error:
            assert not good and "all 2 checkpoints are damaged" in str(error), done
            outcomes["refused"] += 1
        else:
            assert good, done
            harness.check(loaded, {max(good)})
            assert len(loaded.skipped) == (8 in bad), done
            outcomes[f"round {loaded.round}"] += 1
            # The run continues after the damage.
            harness.fill(folder, [loaded.round + 1])
            harness.check(checkpoints.load_newest(folder), {loaded.round + 1})
        shutil.rmtree(folder)
    assert sum(outcomes.values()) == MUTATIONS
    assert outcomes["round 8"] > 50 and outcomes["round 7"] > 50 and outcomes["refused"] > 5, outcomes


def test_every_flipped_manifest_bit_is_reported(tmp_path):
    """A manifest has no unused bytes: each flipped bit is reported."""
    harness.fill(tmp_path, [8])
    path = tmp_path / "round-000008" / "MANIFEST.json"
    data = path.read_bytes()
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 1 << position % 8
        path.write_bytes(damaged)
        with pytest.raises(InputError, match="MANIFEST.json"):
            checkpoints.read(path.parent)


@pytest.mark.parametrize("names", [("round-000007", "round-000008"), ("round-000008", "round-000007.1")])
def test_whole_folders_swapped_or_copied(tmp_path, names):
    """A folder with another round's name is rejected."""
    harness.fill(tmp_path, [7, 8])
    first, second = (tmp_path / name for name in names)
    os.rename(first, tmp_path / "aside")
    if second.exists():
        os.rename(second, first)
    os.rename(tmp_path / "aside", second)
    if names[1] == "round-000007.1":
        loaded = checkpoints.load_newest(tmp_path)
        harness.check(loaded, {7})
        assert "its manifest belongs to round 8" in loaded.skipped[0]
    else:
        with pytest.raises(InputError, match="its manifest belongs to round 7.*its manifest belongs to round 8"):
            checkpoints.load_newest(tmp_path)
