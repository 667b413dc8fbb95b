"""The picture of README of how levels cut a layer: what it shows, and that a command writes it."""

import numpy as np
import programs
import pytest

pictures = programs.script("benchmarks/pictures.py")


def test_levels_cover_what_their_submodels_keep():
    prefix = pictures.coverage("prefix")
    assert (prefix[:4, :8] == 10).all() and (prefix[7, 15], prefix[8, 0], prefix[15, 31]) == (5, 2, 2)
    np.testing.assert_array_equal(pictures.coverage("rolling", round_number=3), np.roll(prefix, (-3, -3), (0, 1)))
    # Every way trains as many entries; two clients have all of them.
    random = pictures.coverage("random")
    assert random.sum() == prefix.sum() and random.min() == 2


@pytest.mark.long
def test_picture_file_is_written(tmp_path):
    pytest.importorskip("matplotlib")
    names = [name for name in pictures.FIGURES if name not in ("norms", "sizes")]  # they train, or build large models
    pictures.main([*names, "--to", str(tmp_path)])
    assert len(names) == 7
    for name in names:
        assert (tmp_path / pictures.FIGURES[name][0]).read_bytes().startswith(b"\x89PNG"), name
