"""Saved rounds: what is saved comes back, old ones are removed, and other files are refused."""

import os
import shutil

import numpy as np
import pytest
from checkpoint_files import KERNEL, assert_refused, reseal, saved
from disk import record_disk

from hetero_tf.base.errors import InputError
from hetero_tf.runs import checkpoints


def test_equal_content_gives_equal_bytes(tmp_path):
    first, second = saved(tmp_path / "a"), saved(tmp_path / "b")
    for name in ("arrays.npz", "info.json", "MANIFEST.json"):
        assert (first / name).read_bytes() == (second / name).read_bytes()


@pytest.mark.parametrize("keep", [1, 2, 3, 9])
def test_keeps_the_newest(tmp_path, keep):
    saved(tmp_path, range(1, 6), keep)
    assert sorted(os.listdir(tmp_path)) == [f"round-{number:06d}" for number in range(max(1, 6 - keep), 6)]
    assert checkpoints.load_newest(tmp_path).round == 5


def test_a_checkpoint_is_synced_before_it_is_renamed_and_older_ones_are_removed(tmp_path, monkeypatch):
    calls = record_disk(monkeypatch, tmp_path)
    saved(tmp_path / "best", (1, 2), keep=1)
    sizes = {path.name: path.stat().st_size for path in (tmp_path / "best" / "round-000002").iterdir()}
    first, second = (
        [
            *(f"sync best/.tmp-{name}/{file} {sizes[file]}" for file in ("arrays.npz", "info.json", "MANIFEST.json")),
            f"sync best/.tmp-{name}",
            f"rename best/.tmp-{name} best/{name}",
            "sync best",
        ]
        for name in ("round-000001", "round-000002")
    )
    assert calls == ["sync .", *first, *second, "rename best/round-000001 best/.old-round-000001"]


def test_order_is_by_number_not_by_text_or_time(tmp_path):
    saved(tmp_path, (999_999, 1_000_000), keep=3)
    os.utime(tmp_path / "round-999999", (2e9, 2e9))
    assert checkpoints.load_newest(tmp_path).round == 1_000_000


def test_a_saved_round_ends_every_later_one(tmp_path):
    """After falling back to round 2, the damaged 3 and 4 must neither count as kept nor win over the new 3."""
    saved(tmp_path, (1, 2, 3, 4), keep=4)
    for number in (3, 4):
        os.truncate(tmp_path / f"round-00000{number}" / "info.json", 1)
    assert checkpoints.load_newest(tmp_path).round == 2
    saved(tmp_path, (3,), keep=2)
    assert sorted(os.listdir(tmp_path)) == ["round-000002", "round-000003.1"]
    assert checkpoints.load_newest(tmp_path).round == 3


def test_a_round_saved_again_replaces_itself(tmp_path):
    for best in (1, 2, 3):
        checkpoints.save(tmp_path, 7, {}, {"best": best}, keep=1)
    assert os.listdir(tmp_path) == ["round-000007.2"]
    assert checkpoints.load_newest(tmp_path).info == {"best": 3}


def test_skipped_rounds_are_named(tmp_path):
    saved(tmp_path, (4, 5))
    (tmp_path / "round-000005" / "arrays.npz").unlink()
    loaded = checkpoints.load_newest(tmp_path)
    path = tmp_path / "round-000005" / "arrays.npz"
    assert loaded.round == 4
    assert loaded.skipped == (f"skipped {path}: could not read: No such file or directory",)


def test_nothing_there_is_none_but_nothing_whole_is_an_error(tmp_path):
    assert checkpoints.load_newest(tmp_path / "missing") is None
    assert checkpoints.load_newest(tmp_path) is None
    os.truncate(saved(tmp_path) / "MANIFEST.json", 0)
    with pytest.raises(
        InputError,
        match=r"all 1 checkpoints are damaged .*MANIFEST.json: is not plain JSON.*"
        r"restore one from a copy, or delete the folder to start again",
    ):
        checkpoints.load_newest(tmp_path)


def test_readers_do_not_sweep_and_saving_does(tmp_path):
    saved(tmp_path)
    (tmp_path / ".tmp-round-000006").mkdir()
    shutil.copytree(tmp_path / "round-000005", tmp_path / ".old-round-000004")
    (tmp_path / ".old-round-000003").symlink_to("/")
    (tmp_path / "notes.txt").write_text("mine")
    checkpoints.load_newest(tmp_path)
    assert len(os.listdir(tmp_path)) == 5
    saved(tmp_path, (6,))
    assert sorted(os.listdir(tmp_path)) == ["notes.txt", "round-000005", "round-000006"]


@pytest.mark.parametrize(
    "arrays, info, keep, number, text",
    [
        ({"x": np.array([{}])}, {}, 1, 0, r"array 'x' must hold numbers or bools. Received: dtype=\|O"),
        ({"x": np.array(["a"])}, {}, 1, 0, "array 'x' must hold numbers or bools. Received: dtype=<U1"),
        ({"x": np.zeros(2, ">f4")}, {}, 1, 0, "Received: dtype=>f4"),
        ({"x": np.zeros(2, "f4,i4")}, {}, 1, 0, r"Received: dtype=\|V8"),
        ({3: KERNEL}, {}, 1, 0, "array names must be text. Received: name=3"),
        ({}, {"loss": np.nan}, 1, 0, "`info` must hold finite numbers.*Out of range float"),
        ({}, {"loss": np.float32(1)}, 1, 0, "`info` must hold finite numbers.*float32"),
        ({}, {0: "a"}, 1, 0, "keys .0. that are not all text"),
        ({}, {}, 0, 0, "`keep` must be at least 1.*keep=0, round_number=0"),
        ({}, {}, 1, -1, "`round_number` at least 0.*round_number=-1"),
    ],
)
def test_invalid_arguments_are_refused_before_the_first_write(tmp_path, arrays, info, keep, number, text):
    with pytest.raises(InputError, match=text):
        checkpoints.save(tmp_path / "new", number, arrays, info, keep)
    assert os.listdir(tmp_path) == []


def test_links_pipes_and_folders_are_not_followed(tmp_path):
    path, outside = saved(tmp_path / "c"), tmp_path / "outside"
    shutil.copytree(path, outside)
    for name in ("MANIFEST.json", "info.json", "arrays.npz"):
        (path / name).unlink()
        (path / name).symlink_to(outside / name)
        assert_refused(path, f"{name}: is a symbolic link, which is not followed")
        (path / name).unlink()
        os.mkfifo(path / name)
        assert_refused(path, f"{name}: expected a file. Received: ")
        (path / name).unlink()
        (path / name).mkdir()
        assert_refused(path, f"{name}: expected a file. Received: ")
        (path / name).rmdir()
        shutil.copy(outside / name, path / name)
    shutil.rmtree(path)
    path.symlink_to(outside)
    assert_refused(path, "could not read: Not a directory|symbolic link")


def test_a_linked_checkpoints_folder_is_neither_read_nor_written(tmp_path):
    saved(tmp_path / "outside")
    (tmp_path / "link").symlink_to(tmp_path / "outside")
    for action in (lambda: saved(tmp_path / "link", (6,)), lambda: checkpoints.load_newest(tmp_path / "link")):
        with pytest.raises(InputError, match="link: expected a folder or nothing. Received: a symbolic link"):
            action()
    assert os.listdir(tmp_path / "outside") == ["round-000005"]


def test_info_that_is_not_a_dict_is_refused(tmp_path):
    path = saved(tmp_path)
    (path / "info.json").write_text("[1]")
    reseal(path)
    assert_refused(path, "info.json: holds no dict")
