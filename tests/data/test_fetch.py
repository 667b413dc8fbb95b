"""Fetching a published file from a server of this machine that breaks off, sends something else or is not there."""

import hashlib
import http.server
import io
import os
import threading
import zipfile
from contextlib import contextmanager

import numpy as np
import pytest

from hetero_tf import data
from hetero_tf.base.errors import InputError
from hetero_tf.data import fetch, wikitext2
from hetero_tf.data.dataset import NotAvailable
from hetero_tf.data.fetch import Published, Unreachable
from hetero_tf.recipe.schema import Plugin

CONTENT = np.random.default_rng(0).bytes(200_000)


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves `files`; each of `breaks` ends one answer after so many bytes; without `ranges` it knows no ranges."""

    def do_GET(self):
        server = self.server
        server.requests.append((self.path, self.headers.get("Range")))
        content = server.files.get(self.path)
        if content is None:
            self.send_error(404)
            return
        requested_range, first = self.headers.get("Range"), 0
        if requested_range and server.ranges:
            first = int(requested_range.removeprefix("bytes=").rstrip("-"))
            if first >= len(content):
                self.send_error(416)
                return
        self.send_response(206 if first else 200)
        if first:
            self.send_header("Content-Range", f"bytes {first}-{len(content) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(content) - first))
        self.end_headers()
        self.wfile.write(content[first:][: server.breaks.pop(0) if server.breaks else None])

    def log_message(self, *arguments):
        """Says nothing."""


@pytest.fixture
def server():
    http_server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http_server.files, http_server.breaks, http_server.ranges, http_server.requests = {"/file": CONTENT}, [], True, []
    http_server.address = f"http://127.0.0.1:{http_server.server_port}"
    thread = threading.Thread(target=http_server.serve_forever, daemon=True)
    thread.start()
    yield http_server
    http_server.shutdown()
    http_server.server_close()


def published(*addresses, content=CONTENT, most=None):
    return Published("own.zip", addresses, hashlib.sha256(content).hexdigest(), most or len(content))


def test_interrupted_download_is_resumed(server, tmp_path):
    server.breaks = [70_000, 50_000]
    path = fetch.fetch(published(f"{server.address}/file"), tmp_path)
    assert path.read_bytes() == CONTENT and [entry.name for entry in tmp_path.iterdir()] == ["own.zip"]
    assert [requested_range for _, requested_range in server.requests] == [None, "bytes=70000-", "bytes=120000-"]
    fetch.fetch(published(f"{server.address}/file"), tmp_path)
    assert len(server.requests) == 3 and [entry.name for entry in tmp_path.iterdir()] == ["own.zip"]


def test_next_run_resumes_the_download(server, tmp_path):
    (tmp_path / "own.zip.part").write_bytes(CONTENT[:150_000])
    assert fetch.fetch(published(f"{server.address}/file"), tmp_path).read_bytes() == CONTENT
    assert server.requests == [("/file", "bytes=150000-")]


@pytest.mark.parametrize("there", [CONTENT, CONTENT[:9] + b"x" * 100, CONTENT + b"more"])
def test_complete_or_wrong_partial_file_is_handled(server, tmp_path, there):
    (tmp_path / "own.zip.part").write_bytes(there)
    file = published(f"{server.address}/file", f"{server.address}/file")
    assert fetch.fetch(file, tmp_path).read_bytes() == CONTENT


def test_server_without_ranges_restarts_the_download(server, tmp_path):
    server.breaks, server.ranges = [70_000], False
    assert fetch.fetch(published(f"{server.address}/file"), tmp_path).read_bytes() == CONTENT


def test_next_address_is_tried(server, tmp_path):
    server.files["/other"] = b"a page that says that the file has moved"
    addresses = [f"{server.address}/{name}" for name in ("nothing", "other", "file")]
    assert fetch.fetch(published(*addresses), tmp_path).read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("name", "breaks", "most", "message", "left"),
    [
        ("nothing", [], None, "127.0.0.1:\\d+: Not Found", None),
        ("file", [0], None, "the connection broke repeatedly", None),
        ("file", [9] * 99, None, "the connection broke repeatedly", 45),
        ("file", [], 1000, "it sent more bytes than the published file has", 0),
        ("other", [], None, "it sent a file that differs from the published one", None),
    ],
)
def test_failed_download_gives_the_reason_and_leaves_no_file(server, tmp_path, name, breaks, most, message, left):
    server.files["/other"], server.breaks = b"something else", breaks
    with pytest.raises(Unreachable, match=message):
        fetch.fetch(published(f"{server.address}/{name}", most=most), tmp_path)
    parts = [entry.stat().st_size for entry in tmp_path.iterdir()]
    assert not (tmp_path / "own.zip").exists() and sum(parts) <= (left or 0)
    assert bool(parts) == bool(left)


def test_nothing_is_written_through_a_link(server, tmp_path):
    (tmp_path / "own.zip.part").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="expected a file or nothing. Received: a symbolic link; move it away"):
        fetch.fetch(published(f"{server.address}/file"), tmp_path)
    assert not (tmp_path / "elsewhere").exists()


TEXTS = {"train": b"a <unk> b\n\n", "test": b"b q\n"}


def archive(**texts):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as file:
        for name, text in texts.items():
            file.writestr(f"wikitext-2/wiki.{name}.tokens", text)
    return content.getvalue()


@contextmanager
def corpus(server, monkeypatch, content):
    """A corpus of a few words whose archive, and single files, lie on the server."""
    server.files = {"/own.zip": content, **{f"/{name}.txt": text for name, text in TEXTS.items()}}
    message = {name: (len(text), hashlib.sha256(text).hexdigest()) for name, text in TEXTS.items()}
    monkeypatch.setattr(wikitext2, "MEMBERS", message)
    monkeypatch.setattr(wikitext2, "ARCHIVE", published(f"{server.address}/own.zip", content=content))
    monkeypatch.setattr(wikitext2, "SINGLE", f"{server.address}/{{}}.txt")
    yield


def load(folder, **options):
    return wikitext2.load(folder, rows=1, test_rows=1, verify=False, **options)


def test_wikitext2_download_is_resumed(server, tmp_path, monkeypatch):
    with corpus(server, monkeypatch, archive(**TEXTS)):
        server.breaks = [60]
        dataset = load(tmp_path)
        assert dataset.vocabulary == ("<ukn>", "<eos>", "a", "<unk>", "b") and dataset.test.x.tolist() == [[4, 0, 1]]
        assert sorted(entry.name for entry in (tmp_path / "wikitext-2").iterdir()) == [
            "wiki.test.tokens",
            "wiki.train.tokens",
        ]
        requests = len(server.requests)
        assert requests == 2 and load(tmp_path).sha256 == dataset.sha256 and len(server.requests) == requests


def test_wikitext2_falls_back_to_single_files(server, tmp_path, monkeypatch):
    with corpus(server, monkeypatch, archive(**TEXTS)):
        del server.files["/own.zip"]
        assert load(tmp_path).train.x.tolist() == [[2, 3, 4, 1, 1]]
        assert sorted(entry.name for entry in (tmp_path / "wikitext-2").iterdir()) == ["test.txt", "train.txt"]


def test_failed_wikitext2_download_leaves_nothing_and_the_fallback_gives_the_reason(server, tmp_path, monkeypatch):
    with corpus(server, monkeypatch, archive(**TEXTS)):
        server.files = {}
        with pytest.raises(
            NotAvailable, match=r"could not be downloaded: 127.0.0.1:\d+, 127.0.0.1:\d+: Not Found; put"
        ):
            load(tmp_path)
        dataset = data.load(Plugin("wikitext2", {"rows": 2, "test_rows": 1}), "pydoc", tmp_path)
        assert dataset.stand_in_for == "wikitext2" and "could not be downloaded: 127.0.0.1" in dataset.source
        assert not list(tmp_path.iterdir())
        with pytest.raises(
            NotAvailable, match=rf"the folder {tmp_path}/nowhere does not exist; put train.txt or wiki.train"
        ):
            load(tmp_path / "nowhere")
        with pytest.raises(NotAvailable, match=r"downloads are disabled \(download: false\)"):
            load(tmp_path, download=False)


@pytest.mark.parametrize("texts", [{**TEXTS, "test": b"x" * 10**7}, {**TEXTS, "train": b"another text\n"}])
def test_archive_with_other_content_is_not_unpacked(server, tmp_path, monkeypatch, texts):
    with (
        corpus(server, monkeypatch, archive(**texts)),
        pytest.raises(NotAvailable, match="not contain the published wiki"),
    ):
        load(tmp_path)
    assert not list((tmp_path / "wikitext-2").glob("*.tokens"))


@pytest.mark.parametrize("folder", ["wikitext-2", "wikitext-2/wikitext-2", "wikitext-2-v1/wikitext-2"])
@pytest.mark.parametrize("name", ["wiki.{}.tokens", "{}.txt"])
def test_existing_files_in_known_folders_are_used(tmp_path, folder, name):
    (tmp_path / folder).mkdir(parents=True)
    for split, text in TEXTS.items():
        (tmp_path / folder / name.format(split)).write_bytes(text)
    assert load(tmp_path).source == f"WikiText-2 ({tmp_path / folder})"


def test_addresses_are_those_of_the_published_corpus():
    assert wikitext2.ARCHIVE.name == "wikitext-2-v1.zip" and len(wikitext2.ARCHIVE.addresses) == 3
    for address in (*wikitext2.ARCHIVE.addresses, wikitext2.SINGLE):
        assert address.startswith("https://")


def test_very_slow_server_is_abandoned(tmp_path, monkeypatch):
    seconds = iter(range(10**6))
    monkeypatch.setattr(fetch.time, "monotonic", lambda: next(seconds))

    class Trickle(io.BytesIO):
        def read1(self, size=-1):
            return super().read1(1)

    part = os.open(tmp_path / "part", os.O_RDWR | os.O_CREAT)
    try:
        assert fetch._copy(Trickle(CONTENT), part, len(CONTENT)) == fetch.SECONDS
        assert fetch._copy(io.BytesIO(CONTENT), part, len(CONTENT)) == len(CONTENT)
    finally:
        os.close(part)
