"""Random damage to the files of two saved rounds: a correct round or an error, never wrong values."""

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


def mutate(folder, kind, rng):
    """Damage one file (swap: two); return a description of the damage."""
    names = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
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
    rng, outcomes = np.random.default_rng(SEED), Counter()
    for number in range(MUTATIONS):
        folder, kind = tmp_path / str(number), KINDS[number % len(KINDS)]
        shutil.copytree(tmp_path / "template", folder)
        done = mutate(folder, kind, rng)
        if kind == "swap":
            with pytest.raises(InputError, match=r"all 2 checkpoints are damaged .*is not that of round 8; .* round 7"):
                checkpoints.load_newest(folder)
            continue
        loaded = checkpoints.load_newest(folder)
        harness.check(loaded, {7, 8})
        assert loaded.round == 7 or "8" not in done.split()[1] or kind in ("flip", "append"), done
        assert len(loaded.skipped) == (loaded.round == 7 and kind != "delete"), done
        outcomes[f"round {loaded.round}"] += 1
        # The run continues after the damage.
        harness.fill(folder, [loaded.round + 1])
        harness.check(checkpoints.load_newest(folder), {loaded.round + 1})
        shutil.rmtree(folder)
    assert outcomes["round 8"] > 50 and outcomes["round 7"] > 50, outcomes


def test_no_flipped_bit_changes_what_is_loaded(tmp_path):
    """The archive has bytes that nothing reads, such as times; a flip of any other one is reported."""
    harness.fill(tmp_path, [8])
    path = checkpoints.path_of(tmp_path, 8)
    data, refused = path.read_bytes(), 0
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 1 << position % 8
        path.write_bytes(damaged)
        try:
            harness.check(checkpoints.read(tmp_path, 8), {8})
        except InputError:
            refused += 1
    assert refused > 0.8 * len(data)
