"""WikiText-2 from its source: downloaded once, verified, and one sentence if that fails."""

import gzip
import hashlib
import io
import urllib.error
from types import SimpleNamespace

import pytest
from refusals import refusal

from hetero_tf import data
from hetero_tf.data import wikitext2
from hetero_tf.data.dataset import NotAvailable
from hetero_tf.recipe.schema import Plugin

TEXTS = {"train": b"a <unk> b\n\n", "test": b"b q\n"}


@pytest.fixture
def server(monkeypatch):
    """A server with the files of a corpus of a few words, which may be changed, and its requests."""
    server = SimpleNamespace(files=dict(TEXTS), requests=[])

    def urlopen(address, timeout):
        name = address.rpartition("/")[2].removesuffix(".txt")
        server.requests.append(name)
        if name not in server.files:
            raise urllib.error.HTTPError(address, 404, "Not Found", {}, None)
        return io.BytesIO(server.files[name])

    members = {name: (len(text), hashlib.sha256(text).hexdigest()) for name, text in TEXTS.items()}
    monkeypatch.setattr(wikitext2, "MEMBERS", members)
    monkeypatch.setattr(wikitext2.urllib.request, "urlopen", urlopen)
    return server


def load(folder, **options):
    return wikitext2.load(folder, rows=1, test_rows=1, verify=False, **options)


def test_wikitext2_is_downloaded_once(server, tmp_path):
    dataset = load(tmp_path)
    assert dataset.codec.vocabulary == ("<ukn>", "<eos>", "a", "<unk>", "b")
    assert dataset.test.x.tolist() == [[4, 0, 1]]
    assert sorted(entry.name for entry in (tmp_path / "wikitext-2").iterdir()) == ["test.txt", "train.txt"]
    assert load(tmp_path).sha256 == dataset.sha256 and server.requests == ["train", "test"]


@pytest.mark.parametrize("content", [None, b"a page that says that the file has moved", TEXTS["train"] + b"more"])
def test_failed_download_leaves_nothing_and_the_fallback_gives_the_reason(server, tmp_path, content):
    server.files = {} if content is None else {"train": content}
    reason = "Not Found" if content is None else "raw.githubusercontent.com sent a file that differs from the published"
    with pytest.raises(NotAvailable, match=f"could not be downloaded: {reason}.*; put train.txt or wiki.train"):
        load(tmp_path)
    dataset = data.load(Plugin("wikitext2", {"rows": 2, "test_rows": 1}), "pydoc", tmp_path)
    assert dataset.stand_in_for == "wikitext2" and f"could not be downloaded: {reason}" in dataset.source
    assert not list(tmp_path.iterdir())


def test_nothing_is_downloaded_without_a_folder_or_if_disabled(server, tmp_path):
    with pytest.raises(NotAvailable, match=rf"the folder {tmp_path}/nowhere does not exist; put train.txt or wiki"):
        load(tmp_path / "nowhere")
    assert "downloads are disabled (download: false)" in refusal(load, tmp_path, kind=NotAvailable, download=False)
    (tmp_path / "wikitext-2").mkdir()
    (tmp_path / "wikitext-2" / "test.txt").write_text("another text\n")
    assert "test.txt: differs from the published text" in refusal(wikitext2.load, tmp_path)
    assert server.requests == []


@pytest.mark.parametrize("folder", ["wikitext-2", "wikitext-2/wikitext-2", "wikitext-2-v1/wikitext-2"])
@pytest.mark.parametrize("name", ["wiki.{}.tokens", "{}.txt.gz"])
def test_existing_files_in_known_folders_are_used(tmp_path, folder, name):
    (tmp_path / folder).mkdir(parents=True)
    for split, text in TEXTS.items():
        (tmp_path / folder / name.format(split)).write_bytes(gzip.compress(text) if name.endswith("gz") else text)
    dataset = load(tmp_path)
    assert dataset.source == f"WikiText-2 ({tmp_path / folder})" and dataset.test.x.tolist() == [[4, 0, 1]]
    message = (
        "differs from the published text: expected 2088628 words with sha256 44cf9c78d1150937... Received: 5 words"
    )
    assert message in refusal(wikitext2.load, tmp_path, rows=1, test_rows=1)
