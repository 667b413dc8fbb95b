"""The batch size for TensorFlow Serving, and the first requests of `serve`."""

import types

import exports
import pytest
import tensorflow as tf

from hetero_tf.export import saved_model
from hetero_tf.export.serve.loading import Serving, VersionPolicy


@pytest.fixture(scope="module", params=[exports.images, exports.text])
def version(request):
    """`(contents of export.json, folder of the version)`."""
    version = request.param()
    return version.about, version.folder


def test_only_requests_with_equal_rows_are_batched(version):
    about, path = version
    hint = path / saved_model.BATCHING
    if about["input"]["kind"] == "images":
        assert hint.read_text() == "max_batch_size { value: 64 }\nbatch_timeout_micros { value: 1000 }\n"
        assert about["limits"]["images"] >= 64
    else:
        assert not hint.exists()


def test_wide_model_has_a_smaller_batch_size(tmp_path):
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
