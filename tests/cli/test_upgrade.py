"""`upgrade`: files are rewritten in place, or stay as they are."""

import json
import os
import stat

import pytest
from bad_recipes import BASE

from hetero_tf import recipe
from hetero_tf.cli import main

OLD = BASE + "engine: cohort  # fast\n"
NEW = OLD.replace("cohort", "stacked")


@pytest.fixture
def upgrade(tmp_path, monkeypatch, capfd):
    """Run the command in an empty folder; return its exit code and both outputs."""
    monkeypatch.chdir(tmp_path)

    def upgrade(*words):
        code = main.main(["hetero_tf", "upgrade", *map(str, words)])
        return code, *capfd.readouterr()

    return upgrade


def test_changes_are_printed_and_written(upgrade, tmp_path):
    (tmp_path / "a.yaml").write_bytes(b"\xef\xbb\xbf" + OLD.replace("\n", "\r\n").encode())
    (tmp_path / "b.yaml").write_text("base: a.yaml\nround.lost_share: 0.3\nround.merge: masked_mean\n")
    (tmp_path / "c.yaml").write_text("name: c\n")
    times = os.stat("c.yaml").st_mtime_ns
    code, out, err = upgrade("a.yaml", "b.yaml", "c.yaml")
    assert (code, err) == (0, "") and out.splitlines() == [
        "a.yaml:21: engine: cohort -> engine: stacked",
        "b.yaml:2: round.lost_share -> round.non_finite_share",
        "b.yaml:3: round.merge: masked_mean -> removed (every merge is the masked mean)",
        "c.yaml: no old spelling; unchanged",
    ]
    assert (tmp_path / "a.yaml").read_bytes() == b"\xef\xbb\xbf" + NEW.replace("\n", "\r\n").encode()
    loaded = recipe.load("b.yaml")
    assert (loaded.engine, loaded.round.non_finite_share) == ("stacked", 0.3)
    assert os.stat("c.yaml").st_mtime_ns == times and sorted(os.listdir()) == ["a.yaml", "b.yaml", "c.yaml"]
    code, out, _ = upgrade("a.yaml", "--json")
    assert code == 0 and json.loads(out) == {"a.yaml": []}


def test_links_and_permissions_stay(upgrade, tmp_path):
    (tmp_path / "target.yaml").write_text(OLD)
    os.chmod(tmp_path / "target.yaml", 0o640)
    os.symlink("target.yaml", tmp_path / "link.yaml")
    assert upgrade("link.yaml")[0] == 0
    assert os.readlink("link.yaml") == "target.yaml" and (tmp_path / "target.yaml").read_text() == NEW
    assert stat.S_IMODE(os.stat("target.yaml").st_mode) == 0o640


def test_a_file_with_two_hard_links_is_refused(upgrade, tmp_path):
    (tmp_path / "one.yaml").write_text(OLD)
    os.link("one.yaml", "two.yaml")
    message = "hetero_tf: one.yaml: has a second hard link, which would keep the old content; replace it by a copy\n"
    assert upgrade("one.yaml") == (2, "", message)
    assert (tmp_path / "one.yaml").read_text() == OLD and os.path.samefile("one.yaml", "two.yaml")


@pytest.mark.skipif(os.geteuid() != 0, reason="only the administrator gives files to other users")
def test_the_administrator_leaves_owner_and_permissions(upgrade, tmp_path):
    (tmp_path / "theirs.yaml").write_text(OLD)
    os.chown("theirs.yaml", 1234, 2345)
    os.chmod("theirs.yaml", 0o2640)
    assert upgrade("theirs.yaml")[0] == 0
    status = os.stat("theirs.yaml")
    assert (status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)) == (1234, 2345, 0o2640)


def test_a_file_of_another_user_is_refused(upgrade, tmp_path, monkeypatch):
    (tmp_path / "theirs.yaml").write_text(OLD)
    monkeypatch.setattr(os, "geteuid", lambda: 4321)
    assert "theirs.yaml: belongs to the user" in upgrade("theirs.yaml")[2]
    assert (tmp_path / "theirs.yaml").read_text() == OLD


def test_a_file_with_an_error_stays_and_the_others_are_rewritten(upgrade, tmp_path):
    contents = {
        "broken.yaml": OLD + "round: {",
        "both.yaml": "round: {lost_share: 1, non_finite_share: 1}\n",
        "protected.yaml": OLD,
    }
    for name, content in contents.items():
        (tmp_path / name).write_text(content)
    os.chmod("protected.yaml", 0o444)
    (tmp_path / "good.yaml").write_text(OLD)
    (tmp_path / "folder").mkdir()
    code, out, err = upgrade(*contents, "missing.yaml", "folder", "good.yaml")
    assert code == 2 and out == "good.yaml:21: engine: cohort -> engine: stacked\n"
    for message in (
        "hetero_tf: broken.yaml:22:1: the key 'round' occurs twice, first on line 16",
        "both.yaml:1:9: round.lost_share is an old spelling; remove it, since round.non_finite_share is also set",
        "protected.yaml: is read-only; make it writable, for example with chmod u+w",
        "missing.yaml: could not read: No such file or directory",
        "folder: expected a file. Received: a folder",
    ):
        assert f"{message}\n" in err
    assert {name: (tmp_path / name).read_text() for name in contents} == contents
    assert (tmp_path / "good.yaml").read_text() == NEW


def test_a_file_is_required(upgrade):
    assert upgrade() == (2, "", "hetero_tf: upgrade needs a file, such as mine.yaml\n")
