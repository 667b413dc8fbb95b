"""The calls that decide what a power cut leaves, in their order."""

import os


def record_disk(monkeypatch, folder):
    """A list that gets every sync in a folder, with the bytes of a file, and every rename."""
    calls, fsync, rename = [], os.fsync, os.rename

    def name(path):
        return os.path.relpath(path, folder).replace(f".{os.getpid()}", ".PID")

    def record_sync(descriptor):
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        size = "" if os.path.isdir(path) else f" {os.path.getsize(path)}"
        calls.append(f"sync {name(path)}{size}")
        fsync(descriptor)

    def record_rename(old, new):
        calls.append(f"rename {name(old)} {name(new)}")
        rename(old, new)

    monkeypatch.setattr(os, "fsync", record_sync)
    monkeypatch.setattr(os, "rename", record_rename)
    return calls
