"""Versions of exported models in their folder."""

from disk import record_disk

from hetero_tf.store import versions


def test_the_name_of_a_version_is_on_the_disk_when_publish_returns(tmp_path, monkeypatch):
    calls = record_disk(monkeypatch, tmp_path)
    with versions.create_draft(tmp_path / "a") as draft:
        assert versions.publish(draft, None) == tmp_path / "a" / "1"
    assert calls == ["rename a/.tmp-version.PID a/1", "sync a"]
