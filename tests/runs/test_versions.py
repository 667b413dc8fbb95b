"""Versions of exported models in their folder."""

from disk import record_disk

from hetero_tf.runs import versions


def test_the_name_of_the_next_version_is_on_the_disk_when_publish_returns(tmp_path, monkeypatch):
    (tmp_path / "a" / "7").mkdir(parents=True)
    calls = record_disk(monkeypatch, tmp_path)
    with versions.create_draft(tmp_path / "a") as draft:
        assert versions.publish(draft, None) == tmp_path / "a" / "8"
    assert calls == ["rename a/.tmp-version.PID a/8", "sync a"]
