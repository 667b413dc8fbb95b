"""Transfers of a device are timed once where they overlap, and the process that responds reads their totals."""

import sys
import threading
import types

import pytest

from hetero_tf.devices import transfers
from hetero_tf.devices.transfers import Transfers


def test_overlapping_transfers_count_once():
    now = [10.0]
    link = Transfers(clock=lambda: now[0])

    def inner():
        now[0] += 2
        return "received"

    def outer():
        now[0] += 1
        thread = threading.Thread(target=link.run, args=(inner, len))
        thread.start()
        thread.join()
        now[0] += 4
        return "sent"

    assert link.run(outer, len) == "sent"
    now[0] += 100
    assert (link.bytes, link.seconds) == (len("received") + len("sent"), 7.0)
    with pytest.raises(ZeroDivisionError):
        link.run(lambda: 1 / 0, len)
    link.run(inner, len)
    assert (link.bytes, link.seconds) == (20, 9.0)


class Client:
    """An httpx client whose responses have five times the bytes of the request."""

    def send(self, request, **options):
        return types.SimpleNamespace(content=5 * request.content)


def request(path, content):
    return types.SimpleNamespace(url=types.SimpleNamespace(path=f"/v1/fleet/{path}"), content=content)


def test_totals_are_those_of_all_messages_so_far(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "httpx", types.SimpleNamespace(Client=Client, Request=object, Response=object))
    path = tmp_path / "transfers.json"
    transfers.record(path)
    client = sys.modules["httpx"].Client()
    assert transfers.read(path) == {}
    for name in ("pull-messages", "pull-object", "pull-object", "confirm-message-received", "push-object"):
        assert client.send(request(name, b"123")).content == b"123" * 5
    first = transfers.read(path)
    assert (first["download_bytes"], first["upload_bytes"], first["upload_seconds"]) == (30, 0, 0)
    assert first["download_seconds"] > 0
    client.send(request("confirm-message-received", b""))
    assert transfers.read(path)["upload_bytes"] == 3
