"""Files of an export for TensorFlow Serving: warm-up requests and the batch size."""

import types

import exports
import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from tensorflow.core.framework import tensor_pb2

from hetero_tf.export import saved_model
from hetero_tf.export.serve.loading import Serving, VersionPolicy

# The fields of tensorflow_serving/apis that a request needs: {message: {number: (name, type)}}.
MESSAGES = {
    "ModelSpec": {1: ("name", "string"), 3: ("signature_name", "string")},
    "Entry": {1: ("key", "string"), 2: ("value", "bytes")},
    "PredictRequest": {1: ("model_spec", "ModelSpec"), 2: ("inputs", "Entry")},
    "PredictLog": {1: ("request", "PredictRequest")},
    "PredictionLog": {6: ("predict_log", "PredictLog")},
}


def prediction_log():
    """Return the class of the message PredictionLog."""
    file = descriptor_pb2.FileDescriptorProto(name="apis.proto", package="apis", syntax="proto3")
    kinds = descriptor_pb2.FieldDescriptorProto
    plain = {"string": kinds.TYPE_STRING, "bytes": kinds.TYPE_BYTES}
    for message, fields in MESSAGES.items():
        message_type = file.message_type.add(name=message)
        for number, (name, kind) in fields.items():
            label = kinds.LABEL_REPEATED if kind == "Entry" else kinds.LABEL_OPTIONAL
            field = message_type.field.add(
                name=name, number=number, type=plain.get(kind, kinds.TYPE_MESSAGE), label=label
            )
            if kind not in plain:
                field.type_name = f".apis.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("apis.PredictionLog"))


@pytest.fixture(scope="module", params=[exports.images, exports.text])
def version(request):
    """`(contents of export.json, folder of the version)`."""
    version = request.param()
    return version.about, version.folder


def test_server_can_parse_and_compute_warmup_requests(version):
    about, path = version
    loaded, kind, names = tf.saved_model.load(str(path)), prediction_log(), []
    for record in tf.data.TFRecordDataset(str(path / saved_model.REQUESTS)):
        request = kind.FromString(record.numpy()).predict_log.request
        tensors = {}
        for entry in request.inputs:
            tensor = tf.make_ndarray(tensor_pb2.TensorProto.FromString(entry.value))
            tensors[entry.key] = tf.constant(tensor)
        outputs = loaded.signatures[request.model_spec.signature_name](**tensors)
        names.append(request.model_spec.signature_name)
        assert all(np.isfinite(value.numpy()).all() for value in outputs.values() if value.dtype.is_floating)
        assert "class" not in outputs or outputs["class"].numpy()[0] >= 0
    assert names == list(about["signatures"]) and len(names) >= 3
    assert str(saved_model.REQUESTS) in about["files"]


def test_only_requests_with_equal_rows_are_batched(version):
    about, path = version
    hint = path / saved_model.BATCHING
    if about["input"]["kind"] == "images":
        assert hint.read_text() == "max_batch_size { value: 64 }\nbatch_timeout_micros { value: 1000 }\n"
        assert about["limits"]["images"] >= 64
    else:
        assert not hint.exists()


def test_wide_model_has_a_smaller_batch_size(tmp_path):
    saved_model.write_warmup(tmp_path, {}, max_batch_size=3)
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
