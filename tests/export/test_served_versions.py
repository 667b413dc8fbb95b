"""Versions of exports: which are served, and their first requests."""

import hashlib
import json
import os
import shutil
import types
from pathlib import Path

import exports
import pytest
import tensorflow as tf
from refusals import refusal

from hetero_tf.export import saved_model
from hetero_tf.export.serve import loading
from hetero_tf.export.serve.loading import Serving, VersionPolicy, load_version

MANIFEST = {"recipe": "r", "level": "a", "parameters": 1, "measured": {}, "input": {}, "signatures": {}}


def write_version(folder, number, content=b"model"):
    path = folder / str(number)
    (path / "variables").mkdir(parents=True)
    contents = {"saved_model.pb": content, "variables/variables.index": b"index"}
    for name, data in contents.items():
        (path / name).write_bytes(data)
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in contents.items()}
    (path / "export.json").write_text(json.dumps({**MANIFEST, "files": digests}))
    return path


class Model:
    signatures: dict = {}


@pytest.fixture
def loads(monkeypatch):
    """Folders of loaded models; TensorFlow is replaced by a fake."""
    loads = []
    monkeypatch.setattr(loading.tf.saved_model, "load", lambda path: loads.append(path) or Model())
    return loads


def make_serving(folder, policy="latest"):
    return Serving(folder, VersionPolicy.parse(policy))


def available(served, level="a"):
    return sorted(served.versions(level))


def test_newest_available_version_is_served(tmp_path, loads):
    for number in (1, 2, 3):
        write_version(tmp_path / "a", number)
    served = make_serving(tmp_path)
    assert served.refresh() == [f"serving level a, version 3: {tmp_path / 'a' / '3'}"]
    shutil.rmtree(tmp_path / "a" / "3")
    assert served.refresh() == [
        f"serving level a, version 2: {tmp_path / 'a' / '2'}", "level a, version 3 is unloaded"
    ]  # fmt: skip
    assert available(served) == [2] and served.newest()["a"].number == 2
    # Nothing changes, so nothing is loaded.
    assert served.refresh() == [] and len(loads) == 2
    (tmp_path / "a").rename(tmp_path / "b")
    served.refresh()
    assert served.levels == ("b",) and available(served, "b") == [2] and available(served) == []
    for number in (1, 2):
        shutil.rmtree(tmp_path / "b" / str(number))
    assert served.refresh() == ["level b, version 2 is unloaded"] and served.levels == ()
    write_version(tmp_path / "b", 5)
    served.refresh()
    assert available(served, "b") == [5]


@pytest.mark.parametrize(
    "policy, expected",
    [("latest", [9]), ("latest:2", [3, 9]), ("latest:9", [1, 2, 3, 9]), ("all", [1, 2, 3, 9]), ("2,3,7", [2, 3])],
)  # fmt: skip
def test_policies_are_those_of_tensorflow_serving(tmp_path, loads, policy, expected):
    for number in (1, 2, 3, 9):
        write_version(tmp_path / "a", number)
    served = make_serving(tmp_path, policy)
    served.refresh()
    assert available(served) == expected


def test_invalid_policies_are_rejected():
    for text in ("", "0", "latest:0", "newest", "1,,2", "9" * 5000, "latest:9999", "all,1"):
        assert refusal(VersionPolicy.parse, text).startswith("--versions must be latest, latest:COUNT, all, or numbers")


@pytest.fixture
def retry(monkeypatch):
    """A function that advances the time to the next try."""
    now = [0.0]
    monkeypatch.setattr(loading.time, "monotonic", lambda: now[0])
    return lambda: now.append(now.pop() + loading.RETRY_SECONDS)


def test_incomplete_copy_is_retried_and_old_version_stays(tmp_path, loads, retry):
    write_version(tmp_path / "a", 1)
    served = make_serving(tmp_path)
    served.refresh()
    source = write_version(tmp_path / ".sources" / "x", 1, b"larger model")
    target = tmp_path / "a" / "2"
    target.mkdir()
    shutil.copy(source / "export.json", target)
    (message,) = served.refresh()
    assert message == f"{target}: cannot be served: saved_model.pb is missing; retrying"
    assert available(served) == [1] and "saved_model.pb is missing" in served.errors("a")[2]
    (target / "saved_model.pb").write_bytes(b"lar")
    (target / "variables").mkdir()
    shutil.copy(source / "variables" / "variables.index", target / "variables")
    assert served.refresh() == []
    retry()
    (message,) = served.refresh()
    assert message.endswith("the SHA-256 of saved_model.pb differs from export.json; retrying")
    retry()
    # The same error is reported once, and that of a removed version is forgotten.
    assert served.refresh() == [] and available(served) == [1] and served.errors("a").keys() == {2}
    target.rename(tmp_path / "away")
    assert served.refresh() == [] and served.errors("a") == {}
    (tmp_path / "away").rename(target)
    (target / "saved_model.pb").write_bytes(b"larger model")
    retry()
    assert served.refresh() == [f"serving level a, version 2: {target}", "level a, version 1 is unloaded"]
    assert available(served) == [2] and len(loads) == 2 and served.errors("a") == {}


INVALID_MANIFESTS = {
    "[]": "export.json: the content must be a mapping",
    "{}": "export.json: recipe is missing",
    '{"recipe": 1}': "export.json: recipe must be text. Received: 1",
    "{": "is not plain JSON",
    json.dumps({**MANIFEST, "files": {}}): "files must list the SHA-256 of every file",
    json.dumps({**MANIFEST, "files": {"saved_model.pb": 1}}): "files.saved_model.pb must be text",
    json.dumps({**MANIFEST, "files": {"a\0": "", "saved_model.pb": ""}}): "",
    json.dumps({**MANIFEST, "files": {"variables": "", "saved_model.pb": ""}}): "variables is missing",
}


@pytest.mark.parametrize("text", INVALID_MANIFESTS, ids=lambda text: text[:40].replace("\0", "NUL"))
def test_invalid_manifest_gives_one_message_and_keeps_serving(tmp_path, loads, text):
    write_version(tmp_path / "a", 1)
    (write_version(tmp_path / "a", 2) / "export.json").write_text(text)
    served = make_serving(tmp_path)
    message, *others = served.refresh()
    assert message.startswith(f"{tmp_path / 'a' / '2'}: cannot be served: ") and INVALID_MANIFESTS[text] in message
    assert "\n" not in message and len(others) == 1 and available(served) == [1]


def test_model_that_tensorflow_rejects_keeps_serving(tmp_path):
    write_version(tmp_path / "a", 1)
    message = refusal(load_version, "a", 1, tmp_path / "a" / "1")
    assert message.startswith(f"{tmp_path / 'a' / '1'}: cannot be served: ") and "\n" not in message


def test_folders_that_cannot_be_listed_keep_their_versions(tmp_path, loads, monkeypatch):
    for level in "ab":
        write_version(tmp_path / level, 1)
    served = make_serving(tmp_path)
    served.refresh()

    listdir = os.listdir

    def fail(path):
        if Path(path) in unreadable:
            raise PermissionError(13, "Permission denied")
        return listdir(path)

    monkeypatch.setattr(os, "listdir", fail)
    monkeypatch.setattr(Path, "iterdir", lambda path: map(path.joinpath, fail(path)))
    for folder in (tmp_path, tmp_path / "a"):
        unreadable = {folder}
        (message,) = served.refresh()
        assert message.startswith(f"{folder}: ") and message.endswith("; served versions stay loaded")
        assert served.refresh() == [] and served.levels == ("a", "b")
    # Other levels are served.
    write_version(tmp_path / "b", 2)
    assert len(served.refresh()) == 2 and available(served) == [1] and available(served, "b") == [2]
    unreadable = set()
    assert served.refresh() == [] and len(loads) == 3


def test_a_folder_that_vanishes_keeps_its_versions_as_tensorflow_serving_does(tmp_path, loads):
    folder = tmp_path / "exports"
    for level in "ab":
        write_version(folder / level, 1)
    served = make_serving(folder)
    served.refresh()
    message = f"{folder}: is missing, or has no folder of a level; served versions stay loaded"
    folder.rename(tmp_path / "away")
    assert served.refresh() == [message] and served.refresh() == []
    # The empty folder of a file system that is not mounted.
    folder.mkdir()
    assert served.refresh() == [] and served.levels == ("a", "b")
    folder.rmdir()
    (tmp_path / "away").rename(folder)
    assert served.refresh() == [] and len(loads) == 2
    shutil.rmtree(folder / "b")
    assert served.refresh() == ["level b, version 1 is unloaded"] and served.levels == ("a",)


def test_names_that_no_url_allows_are_not_levels(tmp_path, loads):
    for name in (b"\xff", b"a:predict", b"a\nb", b"a%2f"):
        os.mkdir(os.path.join(os.fsencode(tmp_path), name))
        os.mkdir(os.path.join(os.fsencode(tmp_path), name, b"1"))
    assert make_serving(tmp_path).refresh() == []


@pytest.fixture(scope="module", params=[exports.images, exports.text])
def version(request):
    """`(contents of export.json, folder of the version)`."""
    version = request.param()
    return version.about, version.folder


def test_only_requests_with_equal_rows_are_batched(version, tmp_path):
    about, path = version
    hint = path / saved_model.BATCHING
    if about["input"]["kind"] == "images":
        assert hint.read_text() == "max_batch_size { value: 64 }\nbatch_timeout_micros { value: 1000 }\n"
        assert about["limits"]["images"] >= 64
    else:
        assert not hint.exists()
    # A wide model has smaller batches.
    saved_model.write_batching(tmp_path, max_batch_size=3)
    assert "max_batch_size { value: 3 }" in (tmp_path / saved_model.BATCHING).read_text()


def test_version_is_warmed_up_before_it_is_served(version, monkeypatch):
    about, path = version
    calls, load_folder = [], tf.saved_model.load

    def load_counted(folder):
        def counted(name, signature):
            def call(**inputs):
                calls.append(name)
                return signature(**inputs)

            call.structured_input_signature = signature.structured_input_signature
            return call

        signatures = load_folder(folder).signatures
        return types.SimpleNamespace(signatures={name: counted(name, each) for name, each in signatures.items()})

    monkeypatch.setattr(tf.saved_model, "load", load_counted)
    serving = Serving(path.parent.parent, VersionPolicy(2))
    assert [sentence.split(":")[0] for sentence in serving.refresh()] == [f"serving level {about['level']}, version 1"]
    assert sorted(calls) == sorted(serving.newest()[about["level"]].manifest["signatures"])
