"""WikiText-2 from a server of this machine that breaks off, sends something else or is not there."""

import fcntl
import hashlib
import http.server
import io
import threading
import zipfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import pytest

from hetero_tf import data
from hetero_tf.data import wikitext2
from hetero_tf.data.dataset import NotAvailable
from hetero_tf.data.wikitext2 import Unreachable, fetch
from hetero_tf.recipe.schema import Plugin

DIFFERS = "it sent a file that differs from the published one"
CONTENT = np.random.default_rng(0).bytes(200_000)


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves `files`; each of `breaks` ends one response after that many bytes."""

    def do_GET(self):
        server = self.server
        server.requests.append(self.path)
        content = server.files.get(self.path)
        if content is None:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[: server.breaks.pop(0) if server.breaks else None])

    def log_message(self, *arguments):
        """Says nothing."""


@pytest.fixture
def server():
    http_server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http_server.files, http_server.breaks, http_server.requests = {"/file": CONTENT}, [], []
    http_server.address = f"http://127.0.0.1:{http_server.server_port}"
    thread = threading.Thread(target=http_server.serve_forever, daemon=True)
    thread.start()
    yield http_server
    http_server.shutdown()
    http_server.server_close()


def published(*addresses, content=CONTENT):
    """The arguments of `fetch`."""
    return addresses, len(content), hashlib.sha256(content).hexdigest()


def test_next_address_is_tried(server):
    server.files |= {"/other": b"a page that says that the file has moved", "/broken": CONTENT}
    server.breaks = [10**6, 70_000]
    addresses = [f"{server.address}/{name}" for name in ("nothing", "other", "broken", "file")]
    assert fetch(*published(*addresses)) == CONTENT
    assert server.requests == ["/nothing", "/other", "/broken", "/file"]


@pytest.mark.parametrize(("name", "message"), [("nothing", "127.0.0.1:\\d+: Not Found"), ("other", DIFFERS)])
def test_failed_download_gives_the_reason(server, name, message):
    server.files["/other"] = b"something else"
    with pytest.raises(Unreachable, match=message):
        fetch(*published(f"{server.address}/{name}"))


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


def test_wikitext2_is_downloaded_once(server, tmp_path, monkeypatch):
    with corpus(server, monkeypatch, archive(**TEXTS)):
        dataset = load(tmp_path)
        assert dataset.codec.vocabulary == ("<ukn>", "<eos>", "a", "<unk>", "b") and dataset.test.x.tolist() == [
            [4, 0, 1]
        ]
        assert sorted(entry.name for entry in (tmp_path / "wikitext-2").iterdir()) == [
            "wiki.test.tokens",
            "wiki.train.tokens",
        ]
        assert load(tmp_path).sha256 == dataset.sha256 and server.requests == ["/own.zip"]


def test_second_process_waits_for_the_download(server, tmp_path, monkeypatch, capsys):
    (tmp_path / "wikitext-2").mkdir()
    with corpus(server, monkeypatch, archive(**TEXTS)), open(tmp_path / "wikitext-2" / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(load, tmp_path)
            while "another process is writing this file" not in capsys.readouterr().err:
                assert not waiting.done()
            for name, text in TEXTS.items():
                (tmp_path / "wikitext-2" / f"{name}.txt").write_bytes(text)
            fcntl.flock(lock, fcntl.LOCK_UN)
            assert waiting.result().test.x.tolist() == [[4, 0, 1]] and not server.requests


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
    assert len(wikitext2.ARCHIVE[0]) == 3
    for address in (*wikitext2.ARCHIVE[0], wikitext2.SINGLE):
        assert address.startswith("https://")
