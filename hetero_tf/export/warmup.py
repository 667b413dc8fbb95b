"""Files for TensorFlow Serving: warm-up requests, and the largest batch size.

The first request of each signature takes much longer than later ones, since TensorFlow optimizes the graph for it. The
warm-up requests contain no data of clients, only black pictures, silence and masked words.
"""

from pathlib import Path

import numpy as np
import tensorflow as tf

from hetero_tf.base import files
from hetero_tf.export import saved_model

# Paths that TensorFlow Serving reads, inside the folder of a version.
REQUESTS, BATCHING = Path("assets.extra", "tf_serving_warmup_requests"), Path("batching_params.pbtxt")
# Examples of a batch: larger batches gain little on a CPU and delay the first request.
BATCH_SIZE = 64
WAIT_MICROSECONDS = 1000


def blank_requests(signatures: dict[str, dict[str, tf.TensorSpec]]) -> dict[str, dict[str, np.ndarray]]:
    """Return a small request for each signature, `{signature: {input: value}}`; `signatures` has their input specs."""
    image = tf.io.encode_png(tf.zeros([1, 1, 3], tf.uint8)).numpy()
    clip = tf.audio.encode_wav(tf.zeros([1, 1]), 16_000).numpy()
    contents = {"audio_bytes": clip, "image_bytes": image, "text": b"<mask>"}

    def blank(name, spec):
        shape = [1 if size is None else size for size in spec.shape]
        if spec.dtype == tf.string:
            return np.full(shape, contents.get(name, b""), object)
        return np.zeros(shape, spec.dtype.as_numpy_dtype)

    return {name: {key: blank(key, spec) for key, spec in specs.items()} for name, specs in signatures.items()}


def write(folder: Path, signatures: dict[str, dict[str, tf.TensorSpec]], max_batch_size: int | None) -> None:
    """Write the files for TensorFlow Serving into the folder of a version.

    Args:
        folder: Folder of the version.
        signatures: See `blank_requests`.
        max_batch_size: Examples of one call of the model; None if requests must not be batched, since their rows may
            have different lengths.
    """
    (folder / REQUESTS.parent).mkdir()
    with saved_model.writing(folder), tf.io.TFRecordWriter(str(folder / REQUESTS)) as records:
        for signature, inputs in blank_requests(signatures).items():
            records.write(_prediction_log(signature, inputs))
    if max_batch_size is not None:
        size = min(max_batch_size, BATCH_SIZE)
        hint = f"max_batch_size {{ value: {size} }}\nbatch_timeout_micros {{ value: {WAIT_MICROSECONDS} }}\n"
        files.write_new(folder / BATCHING, hint.encode())


def _prediction_log(signature, inputs):
    """Return a request as a message PredictionLog of TensorFlow Serving.

    Field numbers: predict_log = 6, request = 1; in the request model_spec = 1 with signature_name = 3, and inputs = 2,
    a map with key = 1 and value = 2.
    """
    tensors = b"".join(
        _field(2, _field(1, name.encode()) + _field(2, tf.make_tensor_proto(value).SerializeToString()))
        for name, value in inputs.items()
    )
    return _field(6, _field(1, _field(1, _field(3, signature.encode())) + tensors))


def _field(number, content):
    """Return a length-delimited field of a protocol buffer: tag, length and bytes."""
    length, left = b"", len(content)
    while left > 127:
        length, left = length + bytes([left % 128 + 128]), left // 128
    return bytes([number << 3 | 2]) + length + bytes([left]) + content
